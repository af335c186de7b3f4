//! Links whose queue decides on arrival: all departures are known at once.

use packtrain_units::Time;

use super::Link;
use crate::element::{DropCause, Observer, Pace, Segments};
use crate::queue::{Arriving, Discipline, Verdict};
use crate::rate::Sent;

/// The rest of a train, and its first part that will be sent at one pace.
struct Cutter<P> {
    /// Arrivals of the rest, including `open`.
    pace: Pace,
    left: Option<P>,
    open: Option<Sent>,
    /// Whether those of `open` are to be marked.
    marks: bool,
}

impl<P: Segments> Link<P> {
    pub(super) fn pass(&mut self, pace: Pace, packet: P, observer: &mut impl Observer<P>) {
        let (count, size) = (packet.count(), packet.size(0));
        let mut coming = Arriving { pace, count, size };
        let ect = packet.is_ect();
        let mut cutter = Cutter { pace, left: Some(packet), open: None, marks: false };
        while coming.count > 0 {
            self.update_transmitter(coming.pace.first);
            if self.backlog.free() == Time::MAX {
                return self.drop_first(&mut cutter, coming.count, DropCause::Down, observer);
            }
            self.backlog.prune(coming.pace.first);
            let taken = match self.queue.admit(coming, &mut self.backlog) {
                Verdict::Take(n) if n >= count && coming.count == count => {
                    // The common case: the whole train at once, at one pace.
                    let free = self.backlog.free();
                    match self.transmitter.send(free, pace, count, size) {
                        Some(sent) if sent.count == count => {
                            return self.take_whole(pace, sent, cutter.left, observer);
                        }
                        _ => self.take(coming, n, &mut cutter, observer),
                    }
                }
                Verdict::Take(n) => self.take(coming, n, &mut cutter, observer),
                Verdict::Drop(n, DropCause::Early)
                    if ect && self.queue.fits(coming, &mut self.backlog) =>
                {
                    self.flush(&mut cutter, observer);
                    cutter.marks = true;
                    // All of them leave at one pace, or each part is marked.
                    let taken = self.take(coming, n, &mut cutter, observer);
                    self.flush(&mut cutter, observer);
                    cutter.marks = false;
                    taken
                }
                Verdict::Drop(n, cause) => {
                    let n = n.clamp(1, coming.count);
                    // What is ECN-capable is dropped only for lack of room.
                    let early = cause == DropCause::Early && ect;
                    let cause = if early { DropCause::Overflow } else { cause };
                    self.drop_first(&mut cutter, n, cause, observer);
                    n
                }
            };
            coming.count -= taken;
            if coming.count > 0 {
                coming.pace = coming.pace.from(taken);
            }
        }
        self.flush(&mut cutter, observer);
    }

    /// Updates the backlog with the transmitter's next start and rate.
    #[inline]
    pub(super) fn update_transmitter(&mut self, now: Time) {
        let free = self.backlog.free();
        if free == Time::MAX {
            return;
        }
        let next = free.max(now);
        let up = self.transmitter.up_from(next);
        let free = if up == next { free } else { up };
        self.backlog.set_transmitter(free, self.transmitter.rate());
    }

    #[inline]
    fn take_whole(
        &mut self,
        pace: Pace,
        sent: Sent,
        packet: Option<P>,
        observer: &mut impl Observer<P>,
    ) {
        let Some(packet) = packet else { return };
        self.backlog.set_transmitter(sent.end(), self.transmitter.rate());
        self.count_waiting(pace, &sent, packet.size(0));
        self.sent(pace, sent, packet, observer);
    }

    /// Sends the first of `coming`, as many as keep one pace and at most `n`; returns how many.
    fn take(
        &mut self,
        coming: Arriving,
        n: u32,
        cutter: &mut Cutter<P>,
        observer: &mut impl Observer<P>,
    ) -> u32 {
        let n = n.clamp(1, coming.count);
        let (free, pace) = (self.backlog.free(), coming.pace);
        let mut taken = 0;
        let mut free_now = free;
        while taken < n {
            let arrive = pace.from(taken);
            let Some(sent) = self.transmitter.send(free_now, arrive, n - taken, coming.size) else {
                self.backlog.set_transmitter(Time::MAX, self.transmitter.rate());
                return taken;
            };
            free_now = sent.end();
            self.backlog.set_transmitter(free_now, self.transmitter.rate());
            self.count_waiting(arrive, &sent, coming.size);
            taken += sent.count;
            match cutter.open.as_mut().and_then(|open| joined(open, &sent)) {
                Some(joined) => cutter.open = Some(joined),
                None => {
                    self.flush(cutter, observer);
                    cutter.open = Some(sent);
                }
            }
        }
        taken
    }

    #[inline]
    fn count_waiting(&mut self, arrive: Pace, sent: &Sent, size: u32) {
        if sent.starts.first > arrive.first {
            self.backlog.push(sent.starts, sent.count, size);
        } else if sent.count > 1 && sent.starts.gap > arrive.gap {
            // The first finds the transmitter idle, the others do not.
            self.backlog.push(sent.starts.from(1), sent.count - 1, size);
        }
    }

    fn drop_first(
        &mut self,
        cutter: &mut Cutter<P>,
        n: u32,
        cause: DropCause,
        observer: &mut impl Observer<P>,
    ) {
        self.flush(cutter, observer);
        if let Some((pace, packet)) = cutter.first(n) {
            observer.dropped(pace, packet, cause);
        }
    }

    fn flush(&mut self, cutter: &mut Cutter<P>, observer: &mut impl Observer<P>) {
        let Some(open) = cutter.open.take() else { return };
        if let Some((pace, mut packet)) = cutter.first(open.count) {
            if cutter.marks {
                packet.mark();
                observer.marked(&packet);
            }
            self.sent(pace, open, packet, observer);
        }
    }
}

impl<P: Segments> Cutter<P> {
    /// Splits off the first `n` with their arrivals.
    fn first(&mut self, n: u32) -> Option<(Pace, P)> {
        let mut packet = self.left.take()?;
        let pace = self.pace;
        if n < packet.count() {
            self.left = Some(packet.split_off(n));
            self.pace = pace.from(n);
        }
        Some((pace, packet))
    }
}

/// Joins both if they keep one pace. They are parts of one train, so their arrivals do.
pub(super) fn joined(one: &Sent, next: &Sent) -> Option<Sent> {
    if one.takes != next.takes {
        return None;
    }
    let step = next.starts.first.since(one.starts.time(one.count - 1));
    let one_fits = one.count == 1 || one.starts.gap == step;
    let next_fits = next.count == 1 || next.starts.gap == step;
    (one_fits && next_fits).then_some(Sent {
        count: one.count + next.count,
        starts: Pace { first: one.starts.first, gap: step },
        takes: one.takes,
    })
}

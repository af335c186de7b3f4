//! The sending end's reading of bitmaps.
//!
//! A unit that a bitmap misses is lost if the bitmap before it reached as far, or if this one
//! reaches well beyond it: packets overtake each other by a few places. One that was sent again is
//! not lost again before it could have been told of.

use std::collections::VecDeque;

use packtrain_units::{Duration, Time};

use super::Bitmap;
use crate::udt::{self, Ack, Impossible, UnitSet};

/// A unit that so many later ones have overtaken is lost.
const OVERTAKEN: u64 = 64;
/// What a bitmap may take besides the round trip: its interval and a late thread at either end.
const SLACK: Duration = Duration::from_millis(15);
/// The sender asks for everything, and tells its round trip, this often at least and at most.
const ASK: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// Most ranges of losses told at once.
const MAX_LOSS_RANGES: usize = 4_096;

/// What the sender knows beside its units under way.
#[derive(Debug)]
pub(crate) struct Reader {
    /// Number and top of the newest bitmap, and the top of the one before.
    newest: Option<(u64, u64)>,
    before: u64,
    /// Units sent again that cannot have been told of yet, and when they were sent.
    young: UnitSet,
    again: VecDeque<(Time, u64, u64)>,
    /// None below is in these.
    floor: u64,
    rtt: Option<(Duration, Duration)>,
    latest: Option<Duration>,
    asked: Option<Time>,
}

impl Reader {
    /// For so many units under way.
    pub(crate) fn new(window: u64) -> Self {
        Self {
            newest: None,
            before: 0,
            young: UnitSet::new(window),
            again: VecDeque::new(),
            floor: 0,
            rtt: None,
            latest: None,
            asked: None,
        }
    }

    /// These units were sent again.
    pub(crate) fn on_again(&mut self, now: Time, (acked, next): (u64, u64), first: u64, end: u64) {
        self.young.remove(self.floor, acked);
        self.floor = acked;
        self.young.cover(acked, next);
        self.young.insert(first.max(acked), end.min(next));
        self.again.push_back((now, first, end));
    }

    /// Whether it is time to ask; counts as asked then. With the round trip to tell.
    pub(crate) fn asks(&mut self, now: Time) -> Option<Duration> {
        let rtt = self.rtt.map_or(Duration::ZERO, |(rtt, _)| rtt);
        let gap = rtt.clamp(ASK.0, ASK.1);
        let due = self.asked.is_none_or(|at| now >= at + gap);
        due.then(|| {
            self.asked = Some(now);
            rtt
        })
    }

    /// The round trip as the bitmap read last measured it, if it did.
    pub(crate) fn take_latest(&mut self) -> Option<Duration> {
        self.latest.take()
    }

    /// Sorts a bitmap into what UDT's sender understands, the acknowledgement first.
    pub(crate) fn read(
        &mut self,
        now: Time,
        bitmap: &Bitmap,
        sender: &udt::Sender,
    ) -> Result<(Ack, Vec<(u64, u64)>), Impossible> {
        let sent = sender.next();
        let Bitmap { next, top, start, end, held, .. } = *bitmap;
        let inside = next <= start
            && start <= end
            && end <= top.max(next)
            && top <= sent
            && held <= top.max(next) - next;
        if !inside || next > sent || bitmap.newest.is_some_and(|(unit, _)| unit >= sent) {
            return Err(Impossible);
        }
        self.measure(now, bitmap, sender);
        let newer = self.newest.is_none_or(|(number, _)| bitmap.number > number);
        if newer {
            self.before = self.newest.map_or(0, |(_, top)| top);
            self.newest = Some((bitmap.number, top));
        }
        let (rtt, rtt_var) = self.rtt.unwrap_or_default();
        let ack = Ack {
            number: bitmap.number as u32,
            next,
            light: false,
            rtt,
            rtt_var,
            room: bitmap.room,
            arrival: None,
            capacity: None,
        };
        let current = self.newest.is_some_and(|(number, _)| bitmap.number == number);
        let lost = if current { self.losses(now, bitmap, sender) } else { Vec::new() };
        Ok((ack, lost))
    }

    /// What is lost, as far as not known.
    fn losses(&mut self, now: Time, bitmap: &Bitmap, sender: &udt::Sender) -> Vec<(u64, u64)> {
        self.grow_up(now, sender.acked(), sender.next());
        let limit = self.before.max(bitmap.end.saturating_sub(OVERTAKEN));
        let mut lost = Vec::new();
        for (first, end) in bitmap.missing() {
            let (mut at, end) = (first.max(sender.acked()), end.min(limit));
            while at < end && lost.len() < MAX_LOSS_RANGES {
                // Not those that are young, nor those that wait to leave again.
                let young = self.young.first_in(at, end).unwrap_or(end);
                let owed = sender.first_owed(at, end).unwrap_or(end);
                let stop = young.min(owed);
                if at < stop {
                    lost.push((at, stop));
                }
                at = if young == stop && stop < end {
                    self.young.run_end(stop, end)
                } else if stop < end {
                    sender.owed_end(stop, end)
                } else {
                    end
                };
            }
        }
        lost
    }

    /// Units sent again long enough ago could have been told of by now.
    fn grow_up(&mut self, now: Time, acked: u64, next: u64) {
        if self.young.is_empty() {
            (self.floor, _) = (acked, self.again.clear());
            return;
        }
        self.young.remove(self.floor, acked);
        self.floor = acked;
        let patience = self.rtt.map_or(Duration::from_secs(1), |(rtt, var)| rtt + var * 4 + SLACK);
        while let Some((at, first, end)) = self.again.front().copied() {
            if now < at + patience && end > acked {
                break;
            }
            self.again.pop_front();
            self.young.remove(first.max(acked), end);
        }
        self.young.cover(acked, next);
    }

    /// The round trip of the unit that raised the top last.
    fn measure(&mut self, now: Time, bitmap: &Bitmap, sender: &udt::Sender) {
        let newest = self.newest.map_or(0, |(_, top)| top);
        let Some((unit, age)) = bitmap.newest.filter(|(unit, _)| *unit >= newest) else { return };
        let Some(sent) = sender.sent_at(unit) else { return };
        if !self.young.is_empty() && self.young.contains(unit) {
            return;
        }
        let Some(sample) = Some(now.since(sent) - age).filter(|s| !s.is_zero()) else { return };
        self.latest = Some(sample);
        // RFC 6298 section 2.
        self.rtt = Some(match self.rtt {
            None => (sample, sample / 2),
            Some((rtt, var)) => {
                let apart = rtt.max(sample) - rtt.min(sample);
                ((rtt * 7 + sample) / 8, (var * 3 + apart) / 4)
            }
        });
    }
}

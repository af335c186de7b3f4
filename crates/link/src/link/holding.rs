//! Links whose queue decides when packets reach its head: packets are kept until then.
//!
//! A decision due at some instant is made before arrivals at the same instant, so it makes no
//! difference whether time or an arrival triggers it.

use std::collections::VecDeque;

use packtrain_units::Time;

use super::Link;
use super::passing::joined;
use crate::element::{DropCause, Observer, Pace, Segments};
use crate::queue::{Arriving, Discipline, Release, Verdict};
use crate::rate::Sent;

/// Waiting packets, as the trains in which they arrived.
#[derive(Debug)]
pub(super) struct Held<P>(VecDeque<(Pace, P)>);

impl<P: Segments> Held<P> {
    pub(super) fn new() -> Self {
        Self(VecDeque::new())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// When the packet at the head can be sent, if the transmitter is free from `free` on.
    pub(super) fn next(&self, free: Time) -> Option<Time> {
        self.0.front().map(|(pace, _)| pace.first.max(free)).filter(|at| *at != Time::MAX)
    }

    fn take_first(&mut self, n: u32) -> Option<(Pace, P)> {
        let (pace, mut packet) = self.0.pop_front()?;
        if n < packet.count() {
            let rest = packet.split_off(n);
            self.0.push_front((pace.from(n), rest));
        }
        Some((pace, packet))
    }
}

impl<P: Segments> Link<P> {
    pub(super) fn hold(&mut self, pace: Pace, packet: P, observer: &mut impl Observer<P>) {
        let size = packet.size(0);
        let (mut pace, mut rest) = (pace, Some(packet));
        while let Some(mut packet) = rest.take() {
            self.release(pace.first, observer);
            self.update_transmitter(pace.first);
            let n = self.undisturbed(Arriving { pace, count: packet.count(), size });
            let coming = Arriving { pace, count: n, size };
            let (n, cause) = match self.backlog.free() {
                Time::MAX => (packet.count(), Some(DropCause::Down)),
                _ => match self.queue.admit(coming, &mut self.backlog) {
                    Verdict::Take(taken) => (taken.clamp(1, n), None),
                    Verdict::Drop(dropped, cause) => (dropped.clamp(1, n), Some(cause)),
                },
            };
            let here = pace;
            if n < packet.count() {
                rest = Some(packet.split_off(n));
                pace = pace.from(n);
            }
            if let Some(cause) = cause {
                observer.dropped(here, packet, cause);
            } else {
                self.backlog.hold(n, size);
                self.held.0.push_back((here, packet));
            }
            self.release(here.time(n - 1), observer);
        }
    }

    /// How many of the first of `coming` arrive before the next packet leaves the queue.
    fn undisturbed(&self, coming: Arriving) -> u32 {
        // With an empty queue, the first of them is itself the next to leave.
        self.held.next(self.backlog.free()).map_or(1, |next| coming.before(next))
    }

    /// Makes all decisions due until `until`.
    pub(super) fn release(&mut self, until: Time, observer: &mut impl Observer<P>) {
        let mut open: Option<Sent> = None;
        // Of the train at the head, `open` is decided but not yet split off.
        while let Some((pace, packet)) = self.held.0.front() {
            let done = open.map_or(0, |sent| sent.count);
            if done == packet.count() {
                self.send_open(&mut open, observer);
                continue;
            }
            let (arrived, size, ect) = (pace.time(done), packet.size(0), packet.is_ect());
            self.update_transmitter(self.backlog.free().max(arrived));
            let now = self.backlog.free().max(arrived);
            if now == Time::MAX {
                self.send_open(&mut open, observer);
                return self.drop_held(observer);
            }
            if now > until {
                break;
            }
            self.backlog.unhold(1, size);
            let drops = self.queue.release(now, now.since(arrived), &self.backlog) == Release::Drop;
            if drops && ect {
                self.send_open(&mut open, observer);
                self.queue.mark(now);
                self.mark_head(observer);
            } else if drops {
                self.send_open(&mut open, observer);
                if let Some((_, packet)) = self.held.take_first(1) {
                    observer.dropped(Pace::at(now), packet, DropCause::Early);
                }
                continue;
            }
            let Some(sent) = self.transmitter.send(now, Pace::at(arrived), 1, size) else { break };
            self.backlog.set_transmitter(sent.end(), self.transmitter.rate());
            match open.and_then(|open| joined(&open, &sent)) {
                Some(joined) => open = Some(joined),
                None => {
                    self.send_open(&mut open, observer);
                    open = Some(sent);
                }
            }
        }
        self.send_open(&mut open, observer);
    }

    /// Marks the packet at the head, which becomes a train of its own.
    fn mark_head(&mut self, observer: &mut impl Observer<P>) {
        if let Some((pace, mut packet)) = self.held.take_first(1) {
            packet.mark();
            observer.marked(&packet);
            self.held.0.push_front((pace, packet));
        }
    }

    /// Drops all waiting packets, because the link is down permanently.
    fn drop_held(&mut self, observer: &mut impl Observer<P>) {
        while let Some((arrived, packet)) = self.held.0.pop_front() {
            self.backlog.unhold(packet.count(), packet.size(0));
            observer.dropped(arrived, packet, DropCause::Down);
        }
    }

    fn send_open(&mut self, open: &mut Option<Sent>, observer: &mut impl Observer<P>) {
        let Some(sent) = open.take() else { return };
        if let Some((arrived, packet)) = self.held.take_first(sent.count) {
            self.sent(arrived, sent, packet, observer);
        }
    }
}

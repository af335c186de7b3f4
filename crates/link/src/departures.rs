//! Packets whose departure is decided and not yet polled.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use packtrain_units::{Duration, Time};

use crate::element::{Pace, Segments};

/// Packets on the wire, in the order in which they arrive.
#[derive(Debug)]
pub(crate) struct Departures<P> {
    /// Packets in order.
    ordered: VecDeque<(Pace, P)>,
    /// Packets that others overtake. If one arrives together with one in order, it was sent before
    /// it and comes first.
    late: BinaryHeap<Reverse<Late<P>>>,
    number: u64,
}

#[derive(Debug)]
struct Late<P> {
    at: Time,
    number: u64,
    packet: P,
}

impl<P: Segments> Departures<P> {
    pub(crate) fn new() -> Self {
        Self { ordered: VecDeque::new(), late: BinaryHeap::new(), number: 0 }
    }

    #[inline]
    pub(crate) fn push(&mut self, pace: Pace, packet: P) {
        self.ordered.push_back((pace, packet));
    }

    pub(crate) fn push_late(&mut self, at: Time, packet: P) {
        self.number += 1;
        self.late.push(Reverse(Late { at, number: self.number, packet }));
    }

    pub(crate) fn next(&self) -> Option<Time> {
        let ordered = self.ordered.front().map(|(pace, _)| pace.first);
        let late = self.late.peek().map(|late| late.0.at);
        ordered.into_iter().chain(late).min()
    }

    /// The next packets not later than `until`.
    #[inline]
    pub(crate) fn pop(&mut self, until: Time) -> Option<(Pace, P)> {
        if until == Time::MAX && self.late.is_empty() {
            return self.ordered.pop_front();
        }
        self.pop_due(until)
    }

    fn pop_due(&mut self, until: Time) -> Option<(Pace, P)> {
        let late = self.late.peek().map(|late| late.0.at);
        let ordered = self.ordered.front().map(|(pace, _)| *pace);
        match (ordered, late) {
            (None, None) => None,
            (Some(pace), None) => self.pop_ordered(pace, until),
            (Some(pace), Some(late)) if pace.first < late => {
                self.pop_ordered(pace, until.min(Time::from_nanos(late.as_nanos() - 1)))
            }
            (_, Some(late)) if late <= until => {
                self.late.pop().map(|late| (Pace::at(late.0.at), late.0.packet))
            }
            (_, Some(_)) => None,
        }
    }

    fn pop_ordered(&mut self, pace: Pace, until: Time) -> Option<(Pace, P)> {
        if pace.first > until {
            return None;
        }
        let (_, mut packet) = self.ordered.pop_front()?;
        if until == Time::MAX || pace.gap == Duration::ZERO {
            return Some((pace, packet));
        }
        let due = until.since(pace.first).as_nanos() / pace.gap.as_nanos() + 1;
        if due < u64::from(packet.count()) {
            let rest = packet.split_off(due as u32);
            self.ordered.push_front((pace.from(due as u32), rest));
        }
        Some((pace, packet))
    }
}

impl<P> PartialEq for Late<P> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<P> Eq for Late<P> {}

impl<P> PartialOrd for Late<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P> Ord for Late<P> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

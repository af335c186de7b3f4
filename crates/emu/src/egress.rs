//! The packets that have left a link for a host and wait for their delivery time.
//!
//! Consecutive segments of one super-packet are kept together, so that the host gets them with one
//! write, at the nominal time of the last. No segment waits longer for this than a given time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use packtrain_link::{Pace, Segments};
use packtrain_units::{Duration, Time};

use crate::packet::Piece;

/// Segments to be written as one packet.
#[derive(Debug)]
pub(crate) struct Run {
    /// The segments.
    pub(crate) piece: Piece,
    /// Arrival of the first.
    pub(crate) first: Time,
    /// Arrival of the last.
    pub(crate) last: Time,
}

/// An entry ordered by time, and among equal times by insertion.
#[derive(Debug)]
pub(crate) struct Timed<T> {
    /// The time.
    pub(crate) at: Time,
    /// The order of insertion.
    pub(crate) order: u64,
    /// The entry.
    pub(crate) what: T,
}

impl<T> PartialEq for Timed<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl<T> Eq for Timed<T> {}

impl<T> PartialOrd for Timed<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Timed<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// The pending arrivals of one host.
#[derive(Debug)]
pub(crate) struct Egress {
    hold: Duration,
    open: Option<Run>,
    /// Entries that were added in the order of their times: nearly all.
    ready: VecDeque<Timed<Run>>,
    /// Entries that overtook others.
    early: BinaryHeap<Reverse<Timed<Run>>>,
    order: u64,
}

impl Egress {
    /// Empty; no segment waits longer than `hold` for others.
    pub(crate) fn new(hold: Duration) -> Self {
        Self { hold, open: None, ready: VecDeque::new(), early: BinaryHeap::new(), order: 0 }
    }

    /// Adds segments that arrive at these times.
    pub(crate) fn push(&mut self, mut pace: Pace, mut piece: Piece) {
        loop {
            let joined = self.join(pace, &piece);
            if joined == piece.count {
                return;
            }
            if joined > 0 {
                piece = piece.split_off(joined);
                pace = pace.from(joined);
            }
            self.close();
            let fit = fit(pace, pace.first + self.hold, piece.count);
            let rest = (fit < piece.count).then(|| piece.split_off(fit));
            self.open = Some(Run { piece, first: pace.first, last: pace.time(fit - 1) });
            let Some(rest) = rest else { return };
            piece = rest;
            pace = pace.from(fit);
        }
    }

    /// Sets the earliest time of the next arrival, none if unknown. The open run closes if the next
    /// arrival cannot join it.
    pub(crate) fn expect(&mut self, next: Option<Time>) {
        let hold = self.hold;
        let done = |run: &Run| {
            let end = run.piece.from + run.piece.count == run.piece.packet.layout.count;
            end || next.is_none_or(|next| next > run.first + hold)
        };
        if self.open.as_ref().is_some_and(done) {
            self.close();
        }
    }

    /// Removes the next run that is due.
    pub(crate) fn due(&mut self, now: Time) -> Option<Run> {
        if self.open.as_ref().is_some_and(|run| run.first + self.hold <= now) {
            self.close();
        }
        if self.soonest()? > now {
            return None;
        }
        match (self.ready.front(), self.early.peek()) {
            (Some(ready), Some(early)) if *ready > early.0 => {
                self.early.pop().map(|run| run.0.what)
            }
            (None, _) => self.early.pop().map(|run| run.0.what),
            _ => self.ready.pop_front().map(|run| run.what),
        }
    }

    fn soonest(&self) -> Option<Time> {
        let early = self.early.peek().map(|run| run.0.at);
        self.ready.front().map(|run| run.at).into_iter().chain(early).min()
    }

    /// The time at which the next run is due.
    pub(crate) fn next(&self) -> Option<Time> {
        let open = self.open.as_ref().map(|run| run.first + self.hold);
        open.into_iter().chain(self.soonest()).min()
    }

    /// Joins the first segments of `piece` to the open run and returns how many.
    fn join(&mut self, pace: Pace, piece: &Piece) -> u32 {
        let Some(run) = &mut self.open else { return 0 };
        let (until, own) = (run.first + self.hold, &run.piece);
        let follows = std::rc::Rc::ptr_eq(&own.packet, &piece.packet)
            && own.from + own.count == piece.from
            && own.wire == piece.wire
            && own.marked == piece.marked;
        if !follows || pace.first < run.last || pace.first > until {
            return 0;
        }
        let fit = fit(pace, until, piece.count);
        run.piece.count += fit;
        run.last = pace.time(fit - 1);
        fit
    }

    fn close(&mut self) {
        if let Some(run) = self.open.take() {
            self.order += 1;
            let timed = Timed { at: run.last, order: self.order, what: run };
            if self.ready.back().is_some_and(|before| before.at > timed.at) {
                self.early.push(Reverse(timed));
            } else {
                self.ready.push_back(timed);
            }
        }
    }
}

/// How many of `count` segments arrive up to `until`, which must not be before the first.
pub(crate) fn fit(pace: Pace, until: Time, count: u32) -> u32 {
    if pace.gap.is_zero() {
        return count;
    }
    let steps = until.since(pace.first).as_nanos() / pace.gap.as_nanos();
    u32::try_from(steps).map_or(count, |steps| count.min(steps.saturating_add(1)))
}

#[cfg(test)]
#[path = "egress_tests.rs"]
mod tests;

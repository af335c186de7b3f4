//! What has arrived for a host and waits for its time.
//!
//! Segments of one super-packet that follow each other are joined again, so that the host gets
//! them with one write. No segment waits longer for that than a given span.

use std::collections::VecDeque;
use std::rc::Rc;

use packtrain_link::Pace;
use packtrain_units::{Duration, Time};

use crate::packet::{Packet, Piece};

/// Segments to be written as one packet, at the nominal time of the last.
#[derive(Debug)]
pub(crate) struct Run {
    /// What they are of.
    pub(crate) packet: Rc<Packet>,
    /// The first.
    pub(crate) from: u32,
    /// The one after the last.
    pub(crate) to: u32,
    /// When the first arrives.
    first: Time,
    /// When the last arrives.
    pub(crate) last: Time,
}

/// Arrivals of one host.
#[derive(Debug)]
pub(crate) struct Egress {
    hold: Duration,
    open: Option<Run>,
    ready: VecDeque<Run>,
}

impl Egress {
    /// Nothing yet; no segment waits longer than `hold` for others.
    pub(crate) fn new(hold: Duration) -> Self {
        Self { hold, open: None, ready: VecDeque::new() }
    }

    /// Segments arrive at these times.
    pub(crate) fn push(&mut self, pace: Pace, piece: &Piece) {
        let mut i = 0;
        while i < piece.count {
            let fit = self.fit(pace.from(i), piece, i);
            if let (Some(run), true) = (&mut self.open, fit > 0) {
                i += fit;
                run.to += fit;
                run.last = pace.time(i - 1);
                continue;
            }
            self.close();
            let from = piece.from + i;
            let (packet, first) = (Rc::clone(&piece.packet), pace.time(i));
            self.open = Some(Run { packet, from, to: from + 1, first, last: first });
            i += 1;
        }
        let whole = |run: &Run| run.to >= run.packet.layout.count || run.packet.is_dead(run.to);
        if self.open.as_ref().is_some_and(whole) {
            self.close();
        }
    }

    /// Tells when the next arrival is at the earliest: what cannot be joined with it stops
    /// waiting for it.
    pub(crate) fn expect(&mut self, next: Option<Time>) {
        let hold = self.hold;
        let late = |run: &Run| next.is_none_or(|next| next > run.first + hold);
        if self.open.as_ref().is_some_and(late) {
            self.close();
        }
    }

    /// The next that is due.
    pub(crate) fn due(&mut self, now: Time) -> Option<Run> {
        if self.open.as_ref().is_some_and(|run| run.first + self.hold <= now) {
            self.close();
        }
        if self.ready.front()?.last > now {
            return None;
        }
        self.ready.pop_front()
    }

    /// When the next is due.
    pub(crate) fn next(&self) -> Option<Time> {
        let open = self.open.as_ref().map(|run| run.first + self.hold);
        let ready = self.ready.front().map(|run| run.last);
        open.into_iter().chain(ready).min()
    }

    /// How many segments of `piece` from `i` on, which arrive at `pace`, continue the open run.
    fn fit(&self, pace: Pace, piece: &Piece, i: u32) -> u32 {
        let Some(run) = &self.open else { return 0 };
        let until = run.first + self.hold;
        let follows = Rc::ptr_eq(&run.packet, &piece.packet) && run.to == piece.from + i;
        if !follows || pace.first < run.last || pace.first > until {
            return 0;
        }
        let rest = piece.count - i;
        if pace.gap.is_zero() {
            return rest;
        }
        let steps = until.since(pace.first).as_nanos() / pace.gap.as_nanos();
        u32::try_from(steps).map_or(rest, |steps| rest.min(steps.saturating_add(1)))
    }

    fn close(&mut self) {
        let Some(run) = self.open.take() else { return };
        // Almost always at the end; a packet that was held up on its way is overtaken.
        let place = self.ready.iter().rposition(|other| other.last <= run.last);
        self.ready.insert(place.map_or(0, |i| i + 1), run);
    }
}

#[cfg(test)]
#[path = "egress_tests.rs"]
mod tests;

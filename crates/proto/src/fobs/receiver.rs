//! The receiving end: which units arrived, and when to send bitmaps.

use std::collections::VecDeque;

use packtrain_units::{Duration, Time};

use super::{Bitmap, PIECE};
use crate::udt::{Impossible, Message, UnitSet, UnitStatus};

/// Bounds of the interval of bitmaps while data arrives; the interval is an eighth of a round trip.
const INTERVAL: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(10));
/// Number of bitmaps that contain each unit, because bitmaps can be lost.
const BITMAPS_PER_UNIT: usize = 3;
/// First interval, or a round trip if that is longer, at which the last acknowledgement is repeated
/// while nothing arrives, because it may have been lost. The interval grows with each repetition.
const MIN_REPEAT_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum repetitions while units are missing, and otherwise.
const MAX_REPEATS: (u32, u32) = (16, 6);
const MAX_REPEAT_DOUBLINGS: u32 = 5;
/// Maximum pieces of one acknowledgement.
const MAX_ACK_PIECES: usize = 64;
/// Room below this fraction of the maximum seen counts as low.
const LOW_ROOM: u64 = 4;
/// Upper limit of the round trip accepted from the sender.
const MAX_RTT: Duration = Duration::from_secs(10);

/// The receiving end of a flow.
#[derive(Debug)]
pub(crate) struct Receiver {
    /// Maximum units accepted beyond the first missing one.
    window: u64,
    /// All units below have arrived.
    next: u64,
    /// One past the highest unit that arrived.
    top: u64,
    missing: UnitSet,
    newest: Option<(u64, Time)>,
    number: u64,
    /// `top` at the last bitmaps, oldest first.
    last_tops: VecDeque<u64>,
    reported_at: Time,
    repeats: u32,
    /// Since when there is something new to report.
    changed_at: Option<Time>,
    /// A complete acknowledgement was requested.
    requested: bool,
    /// Pieces of an acknowledgement still to be sent.
    pieces: VecDeque<(u64, u64)>,
    room: u64,
    advertised_room: u64,
    max_room: u64,
    /// As reported by the sender.
    rtt: Option<Duration>,
}

impl Receiver {
    /// Creates a receiver with a window of `window` units.
    pub(crate) fn new(window: u64, now: Time) -> Self {
        let window = window.max(2);
        Self {
            window,
            next: 0,
            top: 0,
            missing: UnitSet::new(window),
            newest: None,
            number: 0,
            last_tops: VecDeque::from([0; BITMAPS_PER_UNIT]),
            reported_at: now,
            repeats: 0,
            changed_at: None,
            requested: false,
            pieces: VecDeque::new(),
            room: window,
            advertised_room: window,
            max_room: 0,
            rtt: None,
        }
    }

    /// How this unit relates to what has arrived.
    pub(crate) fn check(&self, unit: u64) -> UnitStatus {
        if unit < self.next {
            UnitStatus::Duplicate
        } else if unit >= self.end() {
            UnitStatus::Outside
        } else if unit >= self.top || self.missing.contains(unit) {
            UnitStatus::New
        } else {
            UnitStatus::Duplicate
        }
    }

    /// One past the last unit that the window admits.
    fn end(&self) -> u64 {
        self.next.saturating_add(self.window)
    }

    /// These units arrived and were placed.
    pub(crate) fn take(&mut self, now: Time, first: u64, count: u32) {
        let end = first.saturating_add(u64::from(count)).min(self.end());
        if first >= end || end <= self.next {
            return;
        }
        self.resolve(first.max(self.next), end);
        self.changed_at.get_or_insert(now);
    }

    /// The receiver need not wait for `first..end` any longer.
    fn resolve(&mut self, first: u64, end: u64) {
        if first > self.top {
            self.missing.cover(self.next, first);
            self.missing.insert(self.top, first);
        }
        self.missing.remove(first, end.min(self.top));
        self.top = self.top.max(end);
        if !self.missing.is_empty() {
            self.missing.cover(self.next, self.top);
        }
        if first <= self.next {
            self.next = self.missing.first_in(self.next, self.top).unwrap_or(self.top);
        }
    }

    /// A batch arrived at `at` whose last packet had this unit. A duplicate also causes a bitmap:
    /// the sender does not know yet that the unit arrived.
    pub(crate) fn on_batch(&mut self, now: Time, at: Time, last: u64) {
        self.changed_at.get_or_insert(now);
        if last + 1 == self.top && self.newest.is_none_or(|(unit, _)| last > unit) {
            self.newest = Some((last, at));
        }
    }

    /// Handles a message of the sender.
    pub(crate) fn on_message(&mut self, now: Time, message: &Message) -> Result<(), Impossible> {
        let Message::Drop { first, end } = *message else { return Err(Impossible) };
        if first >= end || end > self.end() {
            return Err(Impossible);
        }
        if end > self.next {
            self.resolve(first.max(self.next), end);
        }
        self.changed_at.get_or_insert(now);
        Ok(())
    }

    /// Handles a request for a complete acknowledgement with the sender's round trip.
    pub(crate) fn on_bitmap_request(&mut self, now: Time, rtt: Duration) {
        if !rtt.is_zero() {
            self.rtt = Some(rtt.min(MAX_RTT));
        }
        self.changed_at.get_or_insert(now);
        self.requested = true;
    }

    /// The owner has room for this many units from `next` on. A bitmap is due when room returns
    /// after it was low.
    pub(crate) fn set_room(&mut self, now: Time, units: u64) {
        self.max_room = self.max_room.max(units);
        let low = (self.max_room / LOW_ROOM).max(1);
        if self.advertised_room < low && units >= low {
            self.changed_at.get_or_insert(now);
        }
        self.room = units;
    }

    /// The sender asks for feedback: a bitmap is due if the owner's room may have stopped it.
    pub(crate) fn request_feedback(&mut self, now: Time) {
        if self.room.min(self.advertised_room) < self.window {
            self.changed_at.get_or_insert(now);
        }
    }

    /// When the next bitmap is due.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        if !self.pieces.is_empty() || self.requested {
            return Some(Time::ZERO);
        }
        let rtt = self.rtt.unwrap_or(INTERVAL.1);
        if self.changed_at.is_some() {
            return Some(self.reported_at + (rtt / 8).clamp(INTERVAL.0, INTERVAL.1));
        }
        let max = if self.missing.is_empty() { MAX_REPEATS.1 } else { MAX_REPEATS.0 };
        let wait = rtt.max(MIN_REPEAT_INTERVAL) * (1 << self.repeats.min(MAX_REPEAT_DOUBLINGS));
        (self.top > 0 && self.repeats < max).then(|| self.reported_at + wait)
    }

    /// The next bitmap to the sender.
    pub(crate) fn poll_bitmap(&mut self, now: Time) -> Option<Bitmap> {
        if let Some((start, end)) = self.pieces.pop_front() {
            return Some(self.piece(now, start, end));
        }
        if self.poll_timeout().is_none_or(|at| at > now) {
            return None;
        }
        let quiet = self.changed_at.take().is_none();
        self.repeats = if quiet { self.repeats + 1 } else { 0 };
        self.number += 1;
        let oldest = self.last_tops.pop_front().unwrap_or(0);
        self.last_tops.push_back(self.top);
        let from = if std::mem::take(&mut self.requested) || quiet { self.next } else { oldest };
        (self.reported_at, self.advertised_room) = (now, self.room);
        let mut at = from.max(self.next);
        while at < self.top && self.pieces.len() < MAX_ACK_PIECES {
            let end = self.top.min(at + PIECE);
            self.pieces.push_back((at, end));
            at = end;
        }
        let (start, end) = self.pieces.pop_front().unwrap_or((self.next, self.next));
        Some(self.piece(now, start, end))
    }

    /// A bitmap of `start..end` with the current state.
    fn piece(&self, now: Time, start: u64, end: u64) -> Bitmap {
        // All units below `next` have arrived since.
        let start = start.max(self.next);
        let end = end.max(start);
        let (mut runs, mut at) = (Vec::new(), start);
        for (a, b) in self.missing.runs(start, end) {
            if at < a {
                runs.push((at, a));
            }
            at = b;
        }
        if at < end {
            runs.push((at, end));
        }
        Bitmap {
            number: self.number,
            next: self.next,
            top: self.top,
            held: self.held(),
            room: self.room.min(self.window),
            newest: self.newest.map(|(unit, at)| (unit, now.since(at))),
            start,
            end,
            runs,
        }
    }

    /// The first unit that has not arrived. Dropped units count as arrived.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// One past the highest unit that arrived.
    pub(crate) fn top(&self) -> u64 {
        self.top
    }

    /// Number of units that arrived beyond a missing one.
    pub(crate) fn held(&self) -> u64 {
        self.top - self.next - self.missing.len()
    }

    /// The sender's round trip, once received.
    pub(crate) fn rtt(&self) -> Option<Duration> {
        self.rtt
    }
}

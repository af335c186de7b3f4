//! The receiving end: which units came, and when to tell it.

use std::collections::VecDeque;

use packtrain_units::{Duration, Time};

use super::{Bitmap, PIECE};
use crate::udt::{Impossible, Message, Seen, UnitSet};

/// A bitmap leaves every eighth of a round trip while data arrives, within these bounds.
const INTERVAL: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(10));
/// Each unit is told of in so many bitmaps, unless the sender asks: some may be lost.
const TIMES: usize = 3;
/// When nothing arrives all is told again, at first after this or a round trip, then ever more
/// seldom: the last bitmap may be lost. So often while something is missing, and otherwise.
const REPEAT: Duration = Duration::from_millis(20);
const MAX_REPEATS: (u32, u32) = (16, 6);
const MAX_REPEAT_DOUBLINGS: u32 = 5;
/// Most pieces of one acknowledgement.
const MAX_ACK_PIECES: usize = 64;
/// Room below this share of the most ever seen is low.
const LOW_ROOM: u64 = 4;
/// A round trip longer than this is not believed.
const MAX_RTT: Duration = Duration::from_secs(10);

/// The receiving end of a flow.
#[derive(Debug)]
pub(crate) struct Receiver {
    /// Most units accepted beyond the first that is missing.
    window: u64,
    /// All below have come.
    next: u64,
    /// Behind the highest that came.
    top: u64,
    missing: UnitSet,
    newest: Option<(u64, Time)>,
    number: u64,
    /// What `top` was at the last bitmaps, oldest first.
    told: VecDeque<u64>,
    told_at: Time,
    repeats: u32,
    /// Since when there is something new to tell.
    news: Option<Time>,
    /// Everything is to be told, and at once.
    asked: bool,
    /// Pieces of an acknowledgement that are still to leave.
    pieces: VecDeque<(u64, u64)>,
    room: u64,
    told_room: u64,
    most_room: u64,
    /// As the sender told it.
    rtt: Option<Duration>,
}

impl Receiver {
    /// A receiver that starts now, for so many units at once.
    pub(crate) fn new(window: u64, now: Time) -> Self {
        let window = window.max(2);
        Self {
            window,
            next: 0,
            top: 0,
            missing: UnitSet::new(window),
            newest: None,
            number: 0,
            told: VecDeque::from([0; TIMES]),
            told_at: now,
            repeats: 0,
            news: None,
            asked: false,
            pieces: VecDeque::new(),
            room: window,
            told_room: window,
            most_room: window,
            rtt: None,
        }
    }

    /// What this unit is to it.
    pub(crate) fn check(&self, unit: u64) -> Seen {
        if unit < self.next {
            Seen::Again
        } else if unit >= self.end() {
            Seen::Outside
        } else if unit >= self.top || self.missing.contains(unit) {
            Seen::New
        } else {
            Seen::Again
        }
    }

    /// Behind the last unit that the window admits.
    fn end(&self) -> u64 {
        self.next.saturating_add(self.window)
    }

    /// These units came and were placed.
    pub(crate) fn take(&mut self, now: Time, first: u64, count: u32) {
        let end = first.saturating_add(u64::from(count)).min(self.end());
        if first >= end || end <= self.next {
            return;
        }
        self.came(first.max(self.next), end);
        self.news.get_or_insert(now);
    }

    /// `first..end` need not be waited for any more.
    fn came(&mut self, first: u64, end: u64) {
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

    /// A batch came, the last packet of it this unit, at `at`; it may have come before, and then
    /// its sender has not heard of it.
    pub(crate) fn on_batch(&mut self, now: Time, at: Time, last: u64) {
        self.news.get_or_insert(now);
        if last + 1 == self.top && self.newest.is_none_or(|(unit, _)| last > unit) {
            self.newest = Some((last, at));
        }
    }

    /// The sender said this.
    pub(crate) fn on_message(&mut self, now: Time, message: &Message) -> Result<(), Impossible> {
        let Message::Drop { first, end } = *message else { return Err(Impossible) };
        if first >= end || end > self.end() {
            return Err(Impossible);
        }
        if end > self.next {
            self.came(first.max(self.next), end);
        }
        self.news.get_or_insert(now);
        Ok(())
    }

    /// The sender wants everything told; this is its round trip.
    pub(crate) fn on_ask(&mut self, now: Time, rtt: Duration) {
        if !rtt.is_zero() {
            self.rtt = Some(rtt.min(MAX_RTT));
        }
        self.news.get_or_insert(now);
        self.asked = true;
    }

    /// The owner has room for so many units from `next` on. Room that comes back after it was low
    /// is told.
    pub(crate) fn set_room(&mut self, now: Time, units: u64) {
        self.most_room = self.most_room.max(units);
        let low = (self.most_room / LOW_ROOM).max(1);
        if self.told_room < low && units >= low {
            self.news.get_or_insert(now);
        }
        self.room = units;
    }

    /// When the next bitmap is due.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        if !self.pieces.is_empty() || self.asked {
            return Some(Time::ZERO);
        }
        let rtt = self.rtt.unwrap_or(INTERVAL.1);
        if self.news.is_some() {
            return Some(self.told_at + (rtt / 8).clamp(INTERVAL.0, INTERVAL.1));
        }
        let most = if self.missing.is_empty() { MAX_REPEATS.1 } else { MAX_REPEATS.0 };
        let wait = rtt.max(REPEAT) * (1 << self.repeats.min(MAX_REPEAT_DOUBLINGS));
        (self.top > 0 && self.repeats < most).then(|| self.told_at + wait)
    }

    /// What to tell the sender.
    pub(crate) fn poll_bitmap(&mut self, now: Time) -> Option<Bitmap> {
        if let Some((start, end)) = self.pieces.pop_front() {
            return Some(self.piece(now, start, end));
        }
        if self.poll_timeout().is_none_or(|at| at > now) {
            return None;
        }
        let quiet = self.news.take().is_none();
        self.repeats = if quiet { self.repeats + 1 } else { 0 };
        self.number += 1;
        let oldest = self.told.pop_front().unwrap_or(0);
        self.told.push_back(self.top);
        let from = if std::mem::take(&mut self.asked) || quiet { self.next } else { oldest };
        (self.told_at, self.told_room) = (now, self.room);
        let mut at = from.max(self.next);
        while at < self.top && self.pieces.len() < MAX_ACK_PIECES {
            let end = self.top.min(at + PIECE);
            self.pieces.push_back((at, end));
            at = end;
        }
        let (start, end) = self.pieces.pop_front().unwrap_or((self.next, self.next));
        Some(self.piece(now, start, end))
    }

    /// A bitmap of `start..end`, as it is now.
    fn piece(&self, now: Time, start: u64, end: u64) -> Bitmap {
        // All below `next` have come since.
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

    /// The first unit that has not come: all below have, or were dropped.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Behind the highest unit that came.
    pub(crate) fn top(&self) -> u64 {
        self.top
    }

    /// How many units came that are beyond a missing one.
    pub(crate) fn held(&self) -> u64 {
        self.top - self.next - self.missing.len()
    }

    /// The sender's round trip, once told.
    pub(crate) fn rtt(&self) -> Option<Duration> {
        self.rtt
    }
}

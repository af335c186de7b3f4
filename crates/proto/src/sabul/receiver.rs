//! The receiving end: a jump in the numbers is told at once, everything every 500 packets.

use std::collections::VecDeque;

use packtrain_cc::sabul::REVIEW;
use packtrain_units::{DataRate, Duration, Time};

use super::message::{Message, State};
use crate::udt::{Impossible, Seen, UnitSet};

/// Without a state every 500 packets there is one after this time.
const EVERY: Duration = Duration::from_millis(100);
/// And after this while only what was lost is still to come.
const EVERY_AT_END: Duration = Duration::from_millis(20);
/// When nothing came for this long what is missing at the end of a buffer is lost.
const QUIET: Duration = Duration::from_millis(20);
/// Most ranges in one state.
pub(crate) const MAX_STATE_RANGES: usize = 4_096;
/// Room below this share of the most ever seen is low.
const LOW_ROOM: u64 = 4;

/// The receiving end of a flow.
#[derive(Debug)]
pub(crate) struct Receiver {
    /// Most units accepted beyond the first that is missing.
    window: u64,
    /// All below have come.
    next: u64,
    /// Behind the highest that came or is known to be missing.
    above: u64,
    missing: UnitSet,
    /// Gaps just seen, to be told.
    gaps: VecDeque<(u64, u64)>,
    received: u64,
    /// The highest that came, and when it did.
    top: Option<(u64, Time)>,
    /// When something came last.
    heard_at: Time,
    /// Units that came since all was told, and when that was.
    since: u64,
    told_at: Time,
    /// Something is new since then.
    news: bool,
    /// The end of the buffer, as far as told, and up to which END was said.
    end: u64,
    ended: u64,
    room: u64,
    told_room: u64,
    most_room: u64,
    requested: Option<DataRate>,
}

impl Receiver {
    /// A receiver that starts now and accepts so many units beyond the first that is missing.
    pub(crate) fn new(window: u64, requested: Option<DataRate>, now: Time) -> Self {
        let window = window.max(2);
        Self {
            window,
            next: 0,
            above: 0,
            missing: UnitSet::new(window),
            gaps: VecDeque::new(),
            received: 0,
            top: None,
            heard_at: now,
            since: 0,
            told_at: now,
            news: false,
            end: 0,
            ended: 0,
            room: window,
            told_room: window,
            most_room: window,
            requested,
        }
    }

    /// What this unit is to it.
    pub(crate) fn check(&self, unit: u64) -> Seen {
        if unit < self.next {
            Seen::Again
        } else if unit >= self.limit() {
            Seen::Outside
        } else if unit >= self.above || self.missing.contains(unit) {
            Seen::New
        } else {
            Seen::Again
        }
    }

    /// Behind the last unit that the window admits.
    fn limit(&self) -> u64 {
        self.next.saturating_add(self.window)
    }

    /// These units came and were placed.
    pub(crate) fn take(&mut self, now: Time, first: u64, count: u32) {
        let end = first.saturating_add(u64::from(count)).min(self.limit());
        if first >= end || end <= self.next {
            return;
        }
        self.gap_before(first);
        let known = end.min(self.above).saturating_sub(first);
        let new = self.missing.remove(first, end.min(self.above).max(first));
        let new = new + (end - first) - known;
        self.came(end);
        if self.top.is_none_or(|(top, _)| top < end) {
            self.top = Some((end - 1, now));
        }
        self.received += new;
        self.since += new;
        self.news |= new > 0;
        self.heard_at = now;
    }

    /// What lies between what was known and `first` is missing.
    fn gap_before(&mut self, first: u64) {
        if first > self.above {
            self.missing.cover(self.next, first);
            self.missing.insert(self.above, first);
            self.gaps.push_back((self.above, first));
            self.above = first;
        }
    }

    /// Everything up to `end` is known, here or missing.
    fn came(&mut self, end: u64) {
        self.above = self.above.max(end);
        if !self.missing.is_empty() {
            self.missing.cover(self.next, self.above);
        }
        self.next = self.missing.first_in(self.next, self.above).unwrap_or(self.above);
    }

    /// The sender said this.
    pub(crate) fn on_message(&mut self, now: Time, message: &Message) -> Result<(), Impossible> {
        match *message {
            Message::Buffer { end } if end <= self.limit() => {
                // Its data was sent before, but may come later.
                self.heard_at = if end > self.end { now } else { self.heard_at };
                self.end = self.end.max(end);
                self.news = true;
                Ok(())
            }
            Message::Drop { first, end } if first < end && end <= self.limit() => {
                let first = first.max(self.next);
                if first < end {
                    self.gap_before(first);
                    self.missing.remove(first, end.min(self.above).max(first));
                    self.came(end);
                    self.news = true;
                }
                Ok(())
            }
            // A receiver gets no state.
            _ => Err(Impossible),
        }
    }

    /// What to tell the sender: losses first.
    pub(crate) fn poll_message(&mut self, now: Time) -> Option<Message> {
        self.handle_timeout(now);
        if !self.gaps.is_empty() {
            return Some(Message::State(self.jump(now)));
        }
        let due = self.state_due().is_some_and(|at| at <= now);
        due.then(|| Message::State(self.whole(now)))
    }

    /// The gaps just seen, without what came since.
    fn jump(&mut self, now: Time) -> State {
        let mut lost = Vec::new();
        while lost.len() < MAX_STATE_RANGES
            && let Some((first, end)) = self.gaps.pop_front()
        {
            for run in self.missing.runs(first.max(self.next), end) {
                if lost.len() == MAX_STATE_RANGES {
                    // The rest of a gap that fell apart waits for the next message.
                    self.gaps.push_front((run.0, end));
                    break;
                }
                lost.push(run);
            }
        }
        State { lost, ..self.head(now) }
    }

    /// All that is missing, or the first part of it.
    fn whole(&mut self, now: Time) -> State {
        (self.since, self.told_at, self.news) = (0, now, false);
        self.told_room = self.room;
        let mut lost: Vec<(u64, u64)> =
            self.missing.runs(self.next, self.above).take(MAX_STATE_RANGES + 1).collect();
        let rest = if lost.len() > MAX_STATE_RANGES { lost.pop() } else { None };
        let whole = Some(rest.map_or(self.above, |(first, _)| first));
        let end = self.is_end();
        if end {
            self.ended = self.end;
        }
        State { lost, whole, end, ..self.head(now) }
    }

    fn head(&self, now: Time) -> State {
        State {
            lost: Vec::new(),
            whole: None,
            missing: self.missing.len(),
            received: self.received,
            next: self.next,
            top: self.top.map(|(unit, at)| (unit, now.since(at))),
            room: self.room.min(self.window),
            requested: self.requested,
            end: false,
        }
    }

    fn is_end(&self) -> bool {
        self.end > 0 && self.next >= self.end
    }

    /// The owner has room for so many units from `next` on. Room that comes back after it was low
    /// is told at once.
    pub(crate) fn set_room(&mut self, units: u64) {
        self.most_room = self.most_room.max(units);
        self.room = units;
    }

    fn has_room_again(&self) -> bool {
        let low = (self.most_room / LOW_ROOM).max(1);
        self.told_room < low && self.room >= low
    }

    /// When all is to be told.
    fn state_due(&self) -> Option<Time> {
        let finished = self.is_end() && self.ended < self.end;
        if finished || self.since >= REVIEW || self.has_room_again() {
            return Some(Time::ZERO);
        }
        let ending = self.end > 0 && self.above >= self.end;
        let waits = self.news || !self.missing.is_empty() || self.end > self.next;
        waits.then(|| self.told_at + if ending { EVERY_AT_END } else { EVERY })
    }

    /// When what is missing at the end of the buffer is lost.
    fn quiet_at(&self) -> Option<Time> {
        (self.end > self.above).then(|| self.heard_at + QUIET)
    }

    /// Runs the timers that are due.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        if self.quiet_at().is_some_and(|at| at <= now) {
            self.gap_before(self.end);
        }
    }

    /// When something happens by itself; the epoch, which is past, if a message waits.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let at_once = (!self.gaps.is_empty()).then_some(Time::ZERO);
        [at_once, self.state_due(), self.quiet_at()].into_iter().flatten().min()
    }

    /// The first unit that has not come: all below have, or were dropped.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Behind the highest unit that came or is known to be missing.
    pub(crate) fn top(&self) -> u64 {
        self.above
    }

    /// How many units came that are beyond a missing one.
    pub(crate) fn held(&self) -> u64 {
        (self.above - self.next).saturating_sub(self.missing.len())
    }

    /// How many units are missing.
    #[cfg(test)]
    pub(crate) fn missing(&self) -> u64 {
        self.missing.len()
    }
}

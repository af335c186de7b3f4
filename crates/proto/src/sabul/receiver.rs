//! The receiving end: reports a gap in the numbers at once, and its whole state every 500 packets.

use std::collections::VecDeque;

use packtrain_cc::sabul::REVIEW_PACKETS;
use packtrain_units::{DataRate, Duration, Time};

use super::message::{Message, State};
use crate::udt::{Impossible, UnitSet, UnitStatus};

/// Maximum interval between states.
const STATE_INTERVAL: Duration = Duration::from_millis(100);
/// The same when only lost units are still missing.
const END_STATE_INTERVAL: Duration = Duration::from_millis(20);
/// Time without arrivals after which missing units at the end of a buffer are lost.
const QUIET_TIMEOUT: Duration = Duration::from_millis(20);
/// Maximum ranges in one state.
pub(crate) const MAX_STATE_RANGES: usize = 4_096;
/// Room below this fraction of the maximum seen counts as low.
const LOW_ROOM: u64 = 4;

/// The receiving end of a flow.
#[derive(Debug)]
pub(crate) struct Receiver {
    /// Maximum units accepted beyond the first missing one.
    window: u64,
    /// All units below have arrived.
    next: u64,
    /// One past the highest unit that arrived or is known to be missing.
    above: u64,
    missing: UnitSet,
    /// New gaps, to be reported.
    gaps: VecDeque<(u64, u64)>,
    received: u64,
    /// The highest unit that arrived, and when.
    top: Option<(u64, Time)>,
    /// When a packet last arrived.
    last_received_at: Time,
    /// Units that arrived since the last whole state, and when that was sent.
    since: u64,
    reported_at: Time,
    /// Whether there is something new to report since then.
    changed: bool,
    /// The announced end of the buffer, and the end for which END was sent.
    end: u64,
    ended: u64,
    room: u64,
    advertised_room: u64,
    max_room: u64,
    requested: Option<DataRate>,
}

impl Receiver {
    /// Creates a receiver that accepts `window` units beyond the first missing one.
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
            last_received_at: now,
            since: 0,
            reported_at: now,
            changed: false,
            end: 0,
            ended: 0,
            room: window,
            advertised_room: window,
            max_room: 0,
            requested,
        }
    }

    /// How this unit relates to what has arrived.
    pub(crate) fn check(&self, unit: u64) -> UnitStatus {
        if unit < self.next {
            UnitStatus::Duplicate
        } else if unit >= self.limit() {
            UnitStatus::Outside
        } else if unit >= self.above || self.missing.contains(unit) {
            UnitStatus::New
        } else {
            UnitStatus::Duplicate
        }
    }

    /// One past the last unit that the window admits.
    fn limit(&self) -> u64 {
        self.next.saturating_add(self.window)
    }

    /// These units arrived and were placed.
    pub(crate) fn take(&mut self, now: Time, first: u64, count: u32) {
        let end = first.saturating_add(u64::from(count)).min(self.limit());
        if first >= end || end <= self.next {
            return;
        }
        self.gap_before(first);
        let known = end.min(self.above).saturating_sub(first);
        let new = self.missing.remove(first, end.min(self.above).max(first));
        let new = new + (end - first) - known;
        self.extend(end);
        if self.top.is_none_or(|(top, _)| top < end) {
            self.top = Some((end - 1, now));
        }
        self.received += new;
        self.since += new;
        self.changed |= new > 0;
        self.last_received_at = now;
    }

    /// Marks the units between the highest known unit and `first` missing.
    fn gap_before(&mut self, first: u64) {
        if first > self.above {
            self.missing.cover(self.next, first);
            self.missing.insert(self.above, first);
            self.gaps.push_back((self.above, first));
            self.above = first;
        }
    }

    /// The state of all units up to `end` is known: arrived or missing.
    fn extend(&mut self, end: u64) {
        self.above = self.above.max(end);
        if !self.missing.is_empty() {
            self.missing.cover(self.next, self.above);
        }
        self.next = self.missing.first_in(self.next, self.above).unwrap_or(self.above);
    }

    /// Handles a message of the sender.
    pub(crate) fn on_message(&mut self, now: Time, message: &Message) -> Result<(), Impossible> {
        match *message {
            Message::Buffer { end } if end <= self.limit() => {
                // Its data was sent before the message, but may arrive later.
                self.last_received_at = if end > self.end { now } else { self.last_received_at };
                self.end = self.end.max(end);
                self.changed = true;
                Ok(())
            }
            Message::Drop { first, end } if first < end && end <= self.limit() => {
                let first = first.max(self.next);
                if first < end {
                    self.gap_before(first);
                    self.missing.remove(first, end.min(self.above).max(first));
                    self.extend(end);
                    self.changed = true;
                }
                Ok(())
            }
            // A receiver gets no state.
            _ => Err(Impossible),
        }
    }

    /// The next message to the sender: losses first.
    pub(crate) fn poll_message(&mut self, now: Time) -> Option<Message> {
        self.handle_timeout(now);
        if !self.gaps.is_empty() {
            return Some(Message::State(self.gap_state(now)));
        }
        let due = self.state_due().is_some_and(|at| at <= now);
        due.then(|| Message::State(self.whole_state(now)))
    }

    /// A state with the new gaps, without the units that arrived meanwhile.
    fn gap_state(&mut self, now: Time) -> State {
        let mut lost = Vec::new();
        while lost.len() < MAX_STATE_RANGES
            && let Some((first, end)) = self.gaps.pop_front()
        {
            for run in self.missing.runs(first.max(self.next), end) {
                if lost.len() == MAX_STATE_RANGES {
                    // The rest of a gap that was split waits for the next message.
                    self.gaps.push_front((run.0, end));
                    break;
                }
                lost.push(run);
            }
        }
        State { lost, ..self.head(now) }
    }

    /// A state with all missing units, or the first part of them.
    fn whole_state(&mut self, now: Time) -> State {
        (self.since, self.reported_at, self.changed) = (0, now, false);
        self.advertised_room = self.room;
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

    /// The owner has room for this many units from `next` on. A state is due at once when room
    /// returns after it was low.
    pub(crate) fn set_room(&mut self, units: u64) {
        self.max_room = self.max_room.max(units);
        self.room = units;
    }

    /// The sender asks for feedback: a state is due if the owner's room may have stopped it.
    pub(crate) fn request_feedback(&mut self) {
        self.changed |= self.room.min(self.advertised_room) < self.window;
    }

    fn has_room_again(&self) -> bool {
        let low = (self.max_room / LOW_ROOM).max(1);
        self.advertised_room < low && self.room >= low
    }

    /// When a whole state is due.
    fn state_due(&self) -> Option<Time> {
        let finished = self.is_end() && self.ended < self.end;
        if finished || self.since >= REVIEW_PACKETS || self.has_room_again() {
            return Some(Time::ZERO);
        }
        let ending = self.end > 0 && self.above >= self.end;
        let waits = self.changed || !self.missing.is_empty() || self.end > self.next;
        waits.then(|| self.reported_at + if ending { END_STATE_INTERVAL } else { STATE_INTERVAL })
    }

    /// When missing units at the end of the buffer count as lost.
    fn quiet_timeout_at(&self) -> Option<Time> {
        (self.end > self.above).then(|| self.last_received_at + QUIET_TIMEOUT)
    }

    /// Runs the timers that are due.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        if self.quiet_timeout_at().is_some_and(|at| at <= now) {
            self.gap_before(self.end);
        }
    }

    /// When the next timer is due; the epoch, which has passed, if a message waits.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let at_once = (!self.gaps.is_empty()).then_some(Time::ZERO);
        [at_once, self.state_due(), self.quiet_timeout_at()].into_iter().flatten().min()
    }

    /// The first unit that has not arrived. Dropped units count as arrived.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// One past the highest unit that arrived or is known to be missing.
    pub(crate) fn top(&self) -> u64 {
        self.above
    }

    /// Number of units that arrived beyond a missing one.
    pub(crate) fn held(&self) -> u64 {
        (self.above - self.next).saturating_sub(self.missing.len())
    }

    /// Number of missing units.
    #[cfg(test)]
    pub(crate) fn missing(&self) -> u64 {
        self.missing.len()
    }
}

//! Timing of ACKs, and the round trip measured by ACK2s.

use std::collections::VecDeque;

use packtrain_units::{Duration, Time};

use crate::udt::SYN;

/// Maximum ACKs that wait for their ACK2.
const REMEMBERED: usize = 1_024;
/// An unanswered ACK is repeated at growing intervals: the interval doubles this often at most.
const MAX_INTERVAL_DOUBLINGS: u32 = 5;
/// The initial round trip of UDT, while none is measured.
pub(crate) const RTT_GUESS: Duration = Duration::from_millis(100);

/// The ACKs of one receiver.
#[derive(Debug)]
pub(super) struct Acks {
    start: Time,
    number: u32,
    /// Sent and not answered, oldest first; their numbers are consecutive.
    open: VecDeque<Open>,
    /// When the last one was sent.
    last_sent_at: Time,
    repeats: u32,
    /// Number of the first ACK with the contents of the last one.
    content: u32,
    /// Whether an ACK with these contents was answered.
    known: bool,
    /// Since when there is something new to report.
    changed_at: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    number: u32,
    at: Time,
}

impl Acks {
    pub(super) fn new(now: Time) -> Self {
        Self {
            start: now,
            number: 0,
            open: VecDeque::new(),
            last_sent_at: now,
            repeats: 0,
            content: 0,
            known: true,
            changed_at: None,
        }
    }

    /// There is something new to report since `now`.
    pub(super) fn on_change(&mut self, now: Time) {
        self.changed_at.get_or_insert(now);
    }

    /// When the next ACK is due.
    pub(super) fn due(&self, rtt: Duration) -> Option<Time> {
        match self.changed_at {
            Some(since) => Some(self.tick(since)),
            // A repetition, at the earliest two round trips after the last.
            None if !self.known => {
                let wait = (rtt * 2).max(SYN) * (1 << self.repeats.min(MAX_INTERVAL_DOUBLINGS));
                Some(self.last_sent_at + wait)
            }
            None => None,
        }
    }

    /// An ACK is sent; returns its number.
    pub(super) fn sent(&mut self, now: Time) -> u32 {
        self.number = self.number.wrapping_add(1);
        if self.changed_at.take().is_some() {
            (self.repeats, self.content) = (0, self.number);
        } else {
            self.repeats += 1;
        }
        if self.open.len() == REMEMBERED {
            self.open.pop_front();
        }
        self.open.push_back(Open { number: self.number, at: now });
        (self.last_sent_at, self.known) = (now, false);
        self.number
    }

    /// The ACK2 of this number arrived; returns the round trip if the ACK is still known.
    pub(super) fn answered(&mut self, now: Time, number: u32) -> Option<Duration> {
        let oldest = self.open.front()?.number;
        let at = number.wrapping_sub(oldest) as usize;
        let open = *self.open.get(at)?;
        self.open.drain(..=at);
        self.known |= number.wrapping_sub(self.content) as i32 >= 0;
        Some(now.since(open.at))
    }

    /// The first tick of the ACK timer after `at`.
    fn tick(&self, at: Time) -> Time {
        let passed = at.since(self.start).as_nanos() / SYN.as_nanos();
        self.start + SYN * (passed + 1)
    }
}

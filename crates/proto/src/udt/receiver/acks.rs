//! When ACKs leave, and the round trip that ACK2s measure.

use std::collections::VecDeque;

use packtrain_units::{Duration, Time};

/// SYN: the interval of ACKs (section III.A).
pub(crate) const SYN: Duration = Duration::from_millis(10);
/// ACKs whose ACK2 may still come.
const REMEMBERED: usize = 1_024;
/// An ACK that is not answered is repeated ever more seldom; so often its interval doubles.
const MAX_INTERVAL_DOUBLINGS: u32 = 5;
/// The round trip while nobody has measured one: where UDT starts.
pub(crate) const RTT_GUESS: Duration = Duration::from_millis(100);

/// The ACKs of one receiver.
#[derive(Debug)]
pub(super) struct Acks {
    start: Time,
    number: u32,
    /// Sent and not answered, oldest first; their numbers are consecutive.
    open: VecDeque<Open>,
    /// When the last one left.
    told_at: Time,
    repeats: u32,
    /// Number of the first ACK that said what the last one says.
    content: u32,
    /// Whether one that said it was answered.
    known: bool,
    /// Since when there is something new to tell.
    news: Option<Time>,
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
            told_at: now,
            repeats: 0,
            content: 0,
            known: true,
            news: None,
        }
    }

    /// There is something new to tell since `now`.
    pub(super) fn news(&mut self, now: Time) {
        self.news.get_or_insert(now);
    }

    /// When the next is due.
    pub(super) fn due(&self, rtt: Duration) -> Option<Time> {
        match self.news {
            Some(since) => Some(self.tick(since)),
            // The same again, no sooner than two round trips after the last.
            None if !self.known => {
                let wait = (rtt * 2).max(SYN) * (1 << self.repeats.min(MAX_INTERVAL_DOUBLINGS));
                Some(self.told_at + wait)
            }
            None => None,
        }
    }

    /// One leaves; gives its number.
    pub(super) fn sent(&mut self, now: Time) -> u32 {
        self.number = self.number.wrapping_add(1);
        if self.news.take().is_some() {
            (self.repeats, self.content) = (0, self.number);
        } else {
            self.repeats += 1;
        }
        if self.open.len() == REMEMBERED {
            self.open.pop_front();
        }
        self.open.push_back(Open { number: self.number, at: now });
        (self.told_at, self.known) = (now, false);
        self.number
    }

    /// The ACK2 of this number came; gives the round trip, if the ACK is remembered.
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

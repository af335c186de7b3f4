//! Repairs what a stock receiver never asks for again: it reports a loss once, so that a repeat
//! that is lost too, or a report that is, would wait for the sender's silence, which an
//! uninterrupted flow does not have.
//!
//! When the acknowledgement has stood still for the time that a repeat and its acknowledgement
//! take, all that was repeated before that time is repeated again. If the unit that it stands at
//! was never reported, that one is, and twice as many each time until something behind them turns
//! out to have arrived; and the last one, which makes a receiver report all that it lacks if
//! nothing behind them did.

use std::collections::VecDeque;

use packtrain_units::{Duration, Time};

/// Repeats remembered.
const MAX_REMEMBERED_REPEATS: usize = 4096;
/// Units repeated at once without a report, at most.
const MAX_GUESSED_UNITS: u64 = 64;
/// The wait doubles so often at most.
const MAX_WAIT_DOUBLINGS: u32 = 6;

/// What was repeated, and since when the acknowledgement stands.
#[derive(Debug)]
pub(super) struct Stuck {
    /// First unit, behind the last, when; in order of time.
    repeats: VecDeque<(u64, u64, Time)>,
    head: u64,
    since: Time,
    /// Times that the wait was over since something was acknowledged.
    fired: u32,
    /// Units repeated without a report: how many the last time, and the one behind them.
    guess: (u64, u64),
    /// Behind the highest unit that was ever repeated.
    repeated: u64,
}

impl Stuck {
    pub(super) fn new(now: Time, first: u64) -> Self {
        Self {
            repeats: VecDeque::new(),
            head: first,
            since: now,
            fired: 0,
            guess: (0, first),
            repeated: first,
        }
    }

    /// All below `acked` has arrived.
    pub(super) fn on_ack(&mut self, now: Time, acked: u64) {
        if acked > self.head {
            (self.head, self.since, self.fired) = (acked, now, 0);
            if acked > self.guess.1 {
                self.guess = (0, acked);
            }
            while self.repeats.front().is_some_and(|(_, end, _)| *end <= acked) {
                self.repeats.pop_front();
            }
        }
    }

    /// These units left.
    pub(super) fn on_sent(&mut self, now: Time, first: u64, end: u64, again: bool) {
        if again {
            self.repeated = self.repeated.max(end);
            if self.repeats.len() < MAX_REMEMBERED_REPEATS {
                self.repeats.push_back((first, end, now));
            }
        }
        if (first..end).contains(&self.head) {
            self.since = now;
        }
    }

    /// Whether this unit left only once, so that its acknowledgement measures the round trip.
    pub(super) fn left_once(&self, unit: u64) -> bool {
        unit >= self.repeated
    }

    /// When it is to be asked, if nothing is acknowledged until then.
    pub(super) fn due(&self, turnaround: Duration) -> Time {
        self.since + turnaround * (1 << self.fired.min(MAX_WAIT_DOUBLINGS))
    }

    /// What to repeat, `next` being the first unit that was never sent.
    pub(super) fn fire(&mut self, now: Time, turnaround: Duration, next: u64) -> Vec<(u64, u64)> {
        let mut again = Vec::new();
        let old = |(_, _, at): &(u64, u64, Time)| *at + turnaround <= now;
        while let Some((first, end, _)) = self.repeats.pop_front_if(|entry| old(entry)) {
            if end > self.head {
                again.push((first.max(self.head), end));
            }
        }
        if !again.iter().any(|(first, end)| (*first..*end).contains(&self.head)) {
            let count = (self.guess.0 * 2).clamp(1, MAX_GUESSED_UNITS);
            let end = next.min(self.head + count);
            self.guess = (count, end);
            again.push((self.head, end));
            if end < next {
                again.push((next - 1, next));
            }
        }
        self.since = now;
        self.fired += 1;
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_repeat_is_repeated_and_a_lost_report_found() {
        let (ms, wait) = (|ms| Time::ZERO + Duration::from_millis(ms), Duration::from_millis(50));
        let mut stuck = Stuck::new(ms(0), 10);
        stuck.on_sent(ms(0), 10, 40, false);
        stuck.on_ack(ms(20), 12);
        stuck.on_sent(ms(21), 12, 13, true);
        stuck.on_sent(ms(22), 20, 22, true);
        assert_eq!(stuck.due(wait), ms(71), "from the repeat of the unit it stands at");
        assert_eq!(stuck.fire(ms(72), wait, 40), [(12, 13), (20, 22)]);
        assert_eq!(stuck.due(wait), ms(172), "twice as long");
        // Unit 12 comes, and 13 was lost without a report.
        stuck.on_sent(ms(73), 12, 13, true);
        stuck.on_ack(ms(100), 13);
        assert_eq!(stuck.fire(ms(150), wait, 40), [(13, 14), (39, 40)]);
        stuck.on_ack(ms(240), 14);
        assert_eq!(stuck.fire(ms(290), wait, 40), [(14, 16), (39, 40)], "no more than was guessed");
        stuck.on_ack(ms(295), 30);
        assert_eq!(stuck.fire(ms(299), wait, 40), [(30, 31), (39, 40)]);
        assert!(!stuck.left_once(21) && stuck.left_once(22));
        stuck.on_ack(ms(300), 40);
        assert_eq!(stuck.due(wait), ms(350));
    }
}

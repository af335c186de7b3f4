//! Repairs losses that a stock receiver never reports again. It reports a loss once, so a lost
//! retransmission or a lost report would wait for the sender's silence timer, which an
//! uninterrupted flow does not reach.
//!
//! When the acknowledgement has stood still for the time of a retransmission and its
//! acknowledgement, all units retransmitted before that time are retransmitted again. If the unit
//! at which the acknowledgement stands was never reported, it is retransmitted too, and twice as
//! many units each time until one behind them turns out to have arrived; and the last one, which
//! makes a receiver report all missing units if nothing behind them arrived.

use std::collections::VecDeque;

use packtrain_units::{Duration, Time};

/// Maximum retransmissions remembered.
const MAX_REMEMBERED_REPEATS: usize = 4096;
/// Maximum units retransmitted at once without a report.
const MAX_GUESSED_UNITS: u64 = 64;
/// Maximum doublings of the wait.
const MAX_WAIT_DOUBLINGS: u32 = 6;

/// Retransmitted units, and since when the acknowledgement has stood still.
#[derive(Debug)]
pub(super) struct StallRepair {
    /// First unit, one past the last, time; in order of time.
    repeats: VecDeque<(u64, u64, Time)>,
    head: u64,
    since: Time,
    /// Timeouts since the last new acknowledgement.
    fired: u32,
    /// Units retransmitted without a report: their number the last time, and the unit after them.
    guess: (u64, u64),
    /// One past the highest unit that was ever retransmitted.
    repeated: u64,
}

impl StallRepair {
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

    /// All units below `acked` have arrived.
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

    /// Units were sent.
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

    /// Whether this unit was sent only once, so that its acknowledgement measures the round trip.
    pub(super) fn sent_once(&self, unit: u64) -> bool {
        unit >= self.repeated
    }

    /// When to check next, if nothing is acknowledged until then.
    pub(super) fn due(&self, turnaround: Duration) -> Time {
        self.since + turnaround * (1 << self.fired.min(MAX_WAIT_DOUBLINGS))
    }

    /// The units to retransmit; `next` is the first unit that was never sent.
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
        let mut stall_repair = StallRepair::new(ms(0), 10);
        stall_repair.on_sent(ms(0), 10, 40, false);
        stall_repair.on_ack(ms(20), 12);
        stall_repair.on_sent(ms(21), 12, 13, true);
        stall_repair.on_sent(ms(22), 20, 22, true);
        assert_eq!(stall_repair.due(wait), ms(71), "from the repeat of the unit it stands at");
        assert_eq!(stall_repair.fire(ms(72), wait, 40), [(12, 13), (20, 22)]);
        assert_eq!(stall_repair.due(wait), ms(172), "twice as long");
        // Unit 12 arrives, and 13 was lost without a report.
        stall_repair.on_sent(ms(73), 12, 13, true);
        stall_repair.on_ack(ms(100), 13);
        assert_eq!(stall_repair.fire(ms(150), wait, 40), [(13, 14), (39, 40)]);
        stall_repair.on_ack(ms(240), 14);
        assert_eq!(
            stall_repair.fire(ms(290), wait, 40),
            [(14, 16), (39, 40)],
            "no more than was guessed"
        );
        stall_repair.on_ack(ms(295), 30);
        assert_eq!(stall_repair.fire(ms(299), wait, 40), [(30, 31), (39, 40)]);
        assert!(!stall_repair.sent_once(21) && stall_repair.sent_once(22));
        stall_repair.on_ack(ms(300), 40);
        assert_eq!(stall_repair.due(wait), ms(350));
    }
}

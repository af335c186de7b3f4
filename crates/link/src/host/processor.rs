//! The processor, as the process that reads sees it: it has it, or others do.

use packtrain_units::{Duration, Rng, Time};

use super::Scheduler;
use crate::random::exponential;

/// Spans in which the process may run, in turn.
#[derive(Clone, Debug)]
pub(super) struct Processor {
    scheduler: Scheduler,
    rng: Rng,
    /// The present or next such span.
    from: Time,
    to: Time,
}

impl Processor {
    pub(super) fn new(scheduler: Scheduler, mut rng: Rng) -> Self {
        let (from, to) = match scheduler {
            Scheduler::Alone => (Time::ZERO, Time::MAX),
            Scheduler::Slices { slice, competitors } => {
                // Time begins anywhere in the turns of the others.
                let others = slice * u64::from(competitors);
                let from = Time::from_nanos(rng.below(others.as_nanos()));
                (from, from + slice)
            }
            Scheduler::OnOff { on, off } => {
                let from = Time::ZERO + exponential(&mut rng, off);
                (from, from + exponential(&mut rng, on))
            }
        };
        Self { scheduler, rng, from, to }
    }

    /// The first instant from `at` on at which the process may run. Times never decrease.
    pub(super) fn next_turn(&mut self, at: Time) -> Time {
        if let (Scheduler::Slices { slice, competitors }, true) = (self.scheduler, at >= self.to) {
            let round = (slice * (u64::from(competitors) + 1)).max(Duration::from_nanos(1));
            let rounds = at.since(self.from).as_nanos() / round.as_nanos();
            self.from += round * rounds;
            self.to = self.from + slice;
        }
        while at >= self.to && self.to != Time::MAX {
            self.advance();
        }
        at.max(self.from)
    }

    /// Works for `work` from `at` on, whenever it may run; when that is done.
    pub(super) fn run(&mut self, at: Time, work: Duration) -> Time {
        let (mut now, mut left) = (self.next_turn(at), work);
        while left > self.to.since(now) && self.to != Time::MAX {
            left -= self.to.since(now);
            now = self.next_turn(self.to);
        }
        now + left
    }

    fn advance(&mut self) {
        match self.scheduler {
            Scheduler::Alone => {}
            Scheduler::Slices { slice, competitors } => {
                self.from = self.to + slice * u64::from(competitors);
                self.to = self.from + slice.max(Duration::from_nanos(1));
            }
            Scheduler::OnOff { on, off } => {
                self.from = self.to + exponential(&mut self.rng, off);
                let on = exponential(&mut self.rng, on);
                self.to = self.from + on.max(Duration::from_nanos(1));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn alone_it_runs_at_once() {
        let mut processor = Processor::new(Scheduler::Alone, Rng::new(1));
        let at = Time::from_nanos(77);
        assert_eq!(processor.next_turn(at), at);
        assert_eq!(processor.run(at, MS), at + MS);
    }

    #[test]
    fn in_turns_it_waits_at_most_a_slice_for_each_other() {
        let scheduler = Scheduler::Slices { slice: MS, competitors: 3 };
        let mut processor = Processor::new(scheduler, Rng::new(2));
        let (mut now, mut longest) = (Time::ZERO, Duration::ZERO);
        for i in 0..1_000 {
            now += Duration::from_micros(i * 7 % 913);
            longest = longest.max(processor.next_turn(now).since(now));
        }
        assert!(longest <= MS * 3 && longest > MS * 2, "{longest}");
        // A quarter of the processor does four times as long.
        let start = processor.next_turn(now);
        let done = processor.run(start, MS * 100);
        assert!(done.since(start) >= MS * 397 && done.since(start) <= MS * 400);
    }

    #[test]
    fn on_and_off_shares_are_as_configured() {
        let scheduler = Scheduler::OnOff { on: MS * 3, off: MS };
        let mut processor = Processor::new(scheduler, Rng::new(3));
        let done = processor.run(Time::ZERO, Duration::from_secs(30));
        let share = 30.0 / done.since(Time::ZERO).as_secs_f64();
        assert!((share - 0.75).abs() < 0.01, "{share}");
    }
}

//! The processor from the view of the reading process.

use packtrain_units::{Duration, Rng, Time};

use super::Scheduler;
use crate::random::exponential;

/// Successive spans in which the process may run.
#[derive(Clone, Debug)]
pub(super) struct Processor {
    scheduler: Scheduler,
    rng: Rng,
    /// The current or next such span.
    from: Time,
    to: Time,
    /// Process generator: number of other processes, and until when.
    others: u64,
    change: Time,
}

impl Processor {
    pub(super) fn new(scheduler: Scheduler, mut rng: Rng) -> Self {
        let (from, to) = match scheduler {
            Scheduler::Alone => (Time::ZERO, Time::MAX),
            Scheduler::Slices { slice, competitors } => {
                // The start time is random within the turns of the others.
                let others = slice * u64::from(competitors);
                let from = Time::from_nanos(rng.below(others.as_nanos()));
                (from, from + slice)
            }
            Scheduler::OnOff { on, off } => {
                let from = Time::ZERO + exponential(&mut rng, off);
                (from, from + exponential(&mut rng, on))
            }
            Scheduler::Generator { .. } => (Time::ZERO, Time::ZERO),
        };
        let (others, change) = (0, Time::ZERO);
        Self { scheduler, rng, from, to, others, change }
    }

    /// The first time from `at` on at which the process may run. Times never decrease.
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

    /// Works for `work` from `at` on, while it may run; returns when the work is done.
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
            Scheduler::Generator { most, slice, spread, keep } => {
                self.compete(most, slice, spread);
                if self.others == 0 {
                    // Until they return it has the processor to itself.
                    self.to = self.change;
                } else {
                    let keep = exponential(&mut self.rng, keep).max(Duration::from_nanos(1));
                    self.to = self.from + keep;
                }
            }
        }
    }

    /// The others run, if there are any, and then it is this process's turn: sets `from`.
    fn compete(&mut self, most: u32, slice: Duration, spread: f64) {
        self.from = self.to;
        if self.from >= self.change {
            self.others = match self.others {
                0 => self.rng.below(u64::from(most) + 1),
                _ => 0,
            };
            let seconds = match self.others {
                0 => 20.0 * self.rng.unit(),
                _ => 1.0 + 6.0 * self.rng.unit(),
            };
            self.change = self.from + Duration::from_secs_f64(seconds);
        } else {
            for _ in 0..=self.rng.below(self.others) {
                self.from += slice.mul_f64(1.0 + spread * (2.0 * self.rng.unit() - 1.0));
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
        // With a quarter of the processor the work takes four times as long.
        let start = processor.next_turn(now);
        let done = processor.run(start, MS * 100);
        assert!(done.since(start) >= MS * 397 && done.since(start) <= MS * 400);
    }

    #[test]
    fn generated_processes_come_and_go() {
        let (most, slice, spread, keep) = (7, MS * 10, 0.2, MS * 40);
        let scheduler = Scheduler::Generator { most, slice, spread, keep };
        let mut processor = Processor::new(scheduler, Rng::new(4));
        let (mut now, mut lost, mut longest) = (Time::ZERO, Duration::ZERO, Duration::ZERO);
        let span = Duration::from_secs(3_000);
        while now.since(Time::ZERO) < span {
            let turn = processor.next_turn(now);
            let wait = turn.since(now);
            (lost, longest) = (lost + wait, longest.max(wait));
            now = turn + MS;
        }
        assert!(longest <= MS * 84 && longest > MS * 60, "{longest}");
        // They are present for 4 of 14 seconds, in seven of eight cases; they then take two and a
        // half turns of ten milliseconds, per forty milliseconds and those turns.
        let share = lost.as_secs_f64() / now.since(Time::ZERO).as_secs_f64();
        assert!((0.05..0.16).contains(&share), "{share}");
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

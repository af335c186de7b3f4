//! Tells the delay that a path's jitter adds from a queue.
//!
//! Where packets are delayed at random and keep their order, each waits for the slowest before it.
//! The more packets a round trip has, the nearer all of them are to the longest delay, while the
//! minimum round trip is that of a few packets. The difference looks like a standing queue that grows
//! with the rate, and a window governed by delay stays small beside an empty queue.
//!
//! The two differ in what follows from more packets: at a full link a larger window delivers no more
//! and the queue grows. So where packets arrive in bunches, the window takes a step up. If more is
//! delivered and the delay stays, the delay was no queue, and counts as part of the path.

use crate::native::signals::Round;

/// The last rounds in which reports with bunched packets are counted, and how many reports show
/// jitter: a host that is late once makes one.
const BUNCH_ROUNDS: usize = 8;
const MIN_BUNCHES: u32 = 3;
/// A delay below this, in seconds, is a third of the queue that the window keeps, and hardly holds it
/// down.
const MIN_DELAY: f64 = 3e-4;
/// The shares of the measured capacity between which the own rate fills the link. Jitter makes the
/// measurement wrong, but seldom by just as much as it holds the rate down.
const FULL_LINK: std::ops::Range<f64> = 0.95..1.05;
/// Rounds in a row with such a delay before a step.
const HELD_ROUNDS: u32 = 2;
/// Factors on the window: of the first step, and of those after one that delivered more.
const FIRST_STEP: f64 = 1.25;
const NEXT_STEP: f64 = 1.5;
/// The share of the step by which the delivered rate must grow, and the share of it, in round trips,
/// by which the round trip must not. At a full link nothing is delivered in addition and all of it is
/// queued, at an empty one the reverse; this is halfway.
const STEP_RESPONSE: f64 = 0.5;
/// The delay is given up when a round shows less than this share of it: the path has become steadier.
const KEPT_DELAY: f64 = 0.5;
/// Rounds until the step shows: one passes before anything sent in it is acknowledged.
const EFFECT_ROUNDS: u32 = 3;
/// Rounds without a step after one that failed, first and at most.
const FIRST_PAUSE: u32 = 8;
const MAX_PAUSE: u32 = 128;
/// A delivered rate below this share of that of the last failed step ends the pause: the link is
/// not full any more.
const FALLEN_RATE: f64 = 0.9;

/// The delay of the path's jitter.
#[derive(Debug)]
pub(super) struct Jitter {
    /// Delay that is no queue, in seconds.
    delay: f64,
    /// Reports with bunched packets, by round, newest first.
    bunches: [u32; BUNCH_ROUNDS],
    /// Rounds in a row in which a delay with jitter held the window down.
    held: u32,
    step: Option<Step>,
    /// Rounds left until the end of the last step shows.
    settling: u32,
    /// Rounds left without a step, and the length of the next pause.
    pause: u32,
    next_pause: u32,
    /// The rate that the last failed step delivered, in bytes per second.
    full: f64,
}

/// A step of the window that goes on.
#[derive(Clone, Copy, Debug)]
struct Step {
    left: u32,
    factor: f64,
    /// Before it: the rate delivered in bytes per second, and the delay in seconds.
    delivered: f64,
    queue: f64,
    /// The least delay since then.
    least: f64,
}

/// What the window does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Act {
    /// It follows the queue.
    Follow,
    /// It grows by this factor.
    Step(f64),
    /// It stays: a step goes on.
    Stay,
    /// The link is full: it becomes what was delivered in a round trip.
    Settle,
}

impl Default for Jitter {
    fn default() -> Self {
        Self {
            delay: 0.0,
            bunches: [0; BUNCH_ROUNDS],
            held: 0,
            step: None,
            settling: 0,
            pause: 0,
            next_pause: FIRST_PAUSE,
            full: 0.0,
        }
    }
}

impl Jitter {
    /// Delay that is no queue, in seconds.
    pub(super) fn delay(&self) -> f64 {
        self.delay
    }

    /// Whether the window has just become what was delivered, and its effect does not show yet.
    pub(super) fn settles(&self) -> bool {
        self.settling > 0
    }

    /// Takes a round as measured, and moves what is no queue from its queue to its base.
    pub(super) fn on_round(&mut self, round: &mut Round, may_step: bool) -> Act {
        let queue = round.queue;
        if queue < self.delay * KEPT_DELAY {
            self.delay = queue;
        }
        self.bunches.rotate_right(1);
        self.bunches[0] = round.bunches;
        let act = self.act(round, may_step);
        round.queue = (queue - self.delay).max(0.0);
        round.base += self.delay;
        act
    }

    fn act(&mut self, round: &Round, may_step: bool) -> Act {
        self.pause = self.pause.saturating_sub(1);
        if !may_step {
            (self.held, self.step, self.settling) = (0, None, 0);
            return Act::Follow;
        }
        if self.settling > 0 {
            self.settling -= 1;
            return Act::Stay;
        }
        if let Some(step) = &mut self.step {
            step.left -= 1;
            step.least = step.least.min(round.queue);
            if step.left > 0 {
                return Act::Stay;
            }
            let step = *step;
            return self.judge(round, step);
        }
        if round.delivered < FALLEN_RATE * self.full {
            self.pause = 0;
        }
        let fills = round.capacity.is_some_and(|c| FULL_LINK.contains(&(round.delivered / c)));
        let held = !fills
            && self.bunches.iter().sum::<u32>() >= MIN_BUNCHES
            && round.queue - self.delay > MIN_DELAY;
        self.held = if held { self.held + 1 } else { 0 };
        if self.held < HELD_ROUNDS || self.pause > 0 {
            return Act::Follow;
        }
        self.begin(round, FIRST_STEP)
    }

    fn begin(&mut self, round: &Round, factor: f64) -> Act {
        self.held = 0;
        let (delivered, queue) = (round.delivered, round.queue);
        self.step = Some(Step { left: EFFECT_ROUNDS, factor, delivered, queue, least: queue });
        Act::Step(factor)
    }

    fn judge(&mut self, round: &Round, step: Step) -> Act {
        let share = STEP_RESPONSE * (step.factor - 1.0);
        let followed = round.delivered > step.delivered * (1.0 + share);
        let stayed = round.queue < step.queue + share * (round.base + step.queue);
        if followed && stayed {
            self.delay = self.delay.max(step.least);
            self.next_pause = FIRST_PAUSE;
            return self.begin(round, NEXT_STEP);
        }
        self.fail(round);
        self.settling = EFFECT_ROUNDS - 1;
        Act::Settle
    }

    fn fail(&mut self, round: &Round) {
        self.step = None;
        self.full = round.delivered;
        self.pause = self.next_pause;
        self.next_pause = (self.next_pause * 2).min(MAX_PAUSE);
    }

    /// The window did not follow in this round: it was cut, or the losses of a cut were reported. A
    /// step that had just begun did not take place, an earlier one met a full queue, and nothing settles.
    pub(super) fn on_not_followed(&mut self, round: &Round) {
        match self.step {
            Some(step) if step.left < EFFECT_ROUNDS => self.fail(round),
            _ => self.step = None,
        }
        self.settling = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: f64 = 0.1;

    /// Rounds of 0.1 s at a link of `capacity` bytes per second with a steady or unsteady delay of
    /// `delay` seconds that is no queue, as a window of `window` bytes would see them. Returns the
    /// window, and what the rounds of the last ten seconds look like.
    fn play(jitter: &mut Jitter, capacity: f64, delay: f64, bunches: u32) -> (f64, Round) {
        let mut window = 0.2 * capacity * BASE;
        let (mut sent, mut last) = (window, Round::default());
        for i in 0..100 {
            let queue = (sent / capacity - BASE - delay).max(0.0);
            let mut round = Round {
                at: f64::from(i) * BASE,
                delivered: (sent / (BASE + delay)).min(capacity),
                queue: queue + delay,
                bunches,
                base: BASE,
                ..Round::default()
            };
            sent = window;
            match jitter.on_round(&mut round, true) {
                Act::Step(factor) => window *= factor,
                Act::Settle => window = round.delivered * round.base,
                Act::Follow | Act::Stay => {}
            }
            last = round;
        }
        (window, last)
    }

    #[test]
    fn a_delay_that_does_not_follow_the_rate_belongs_to_the_path() {
        for (capacity, delay) in [(12.5e6, 0.005), (125e6, 0.005), (125e6, 0.02)] {
            let mut jitter = Jitter::default();
            let (window, round) = play(&mut jitter, capacity, delay, 1);
            let full = capacity * (BASE + delay);
            assert!(window > 0.95 * full && window < 1.05 * full, "{window} of {full}");
            assert!((jitter.delay() - delay).abs() < 1e-4, "{jitter:?}");
            assert!(round.queue < 1e-3 && round.base > BASE + delay - 1e-4, "{round:?}");
        }
    }

    #[test]
    fn a_steady_delay_causes_no_step() {
        let mut jitter = Jitter::default();
        let (window, round) = play(&mut jitter, 125e6, 0.005, 0);
        assert_eq!((jitter.delay(), round.base), (0.0, BASE));
        assert_eq!(window, 0.2 * 125e6 * BASE);
    }

    #[test]
    fn at_a_full_link_steps_become_rare_and_end_at_what_it_delivers() {
        let (mut jitter, mut steps) = (Jitter::default(), Vec::new());
        for i in 0..400u32 {
            let mut round = Round {
                delivered: 125e6,
                queue: 0.004,
                bunches: 1,
                base: BASE,
                ..Round::default()
            };
            match jitter.on_round(&mut round, true) {
                Act::Step(factor) => {
                    assert_eq!(factor, FIRST_STEP);
                    steps.push(i);
                }
                Act::Settle => assert_eq!(steps.last().map(|at| at + EFFECT_ROUNDS), Some(i)),
                Act::Follow | Act::Stay => {}
            }
            assert_eq!((jitter.delay(), round.queue), (0.0, 0.004));
        }
        assert!(steps.len() > 3 && steps.len() < 8, "{steps:?}");
        while jitter.step.is_some() || jitter.settles() {
            jitter
                .on_round(&mut Round { delivered: 125e6, queue: 0.004, ..Round::default() }, true);
        }
        // Less is delivered: the link is not full any more, however long the pause would last.
        let slower = Round { delivered: 60e6, queue: 0.004, bunches: 1, ..Round::default() };
        let acts = [0; HELD_ROUNDS as usize].map(|_| jitter.on_round(&mut slower.clone(), true));
        assert!(
            jitter.next_pause > FIRST_PAUSE * 2 && acts.contains(&Act::Step(FIRST_STEP)),
            "{acts:?}"
        );
    }

    /// A round of a path with jitter: the rate in Mbit/s and the delay in milliseconds.
    fn round(mbps: f64, delay: f64) -> Round {
        let (delivered, queue) = (mbps * 125e3, delay / 1e3);
        Round { delivered, queue, bunches: 3, base: BASE, ..Round::default() }
    }

    #[test]
    fn a_step_that_the_window_did_not_take_says_nothing() {
        let mut jitter = Jitter::default();
        let begin = |jitter: &mut Jitter| {
            (0..9).find(|_| jitter.on_round(&mut round(500.0, 4.0), true) == Act::Step(FIRST_STEP))
        };
        begin(&mut jitter).expect("a step");
        jitter.on_not_followed(&round(500.0, 4.0));
        assert_eq!((jitter.pause, jitter.next_pause), (0, FIRST_PAUSE));
        begin(&mut jitter).expect("the step again");
        jitter.on_round(&mut round(500.0, 4.0), true);
        jitter.on_not_followed(&round(500.0, 4.0));
        assert_eq!((jitter.pause, jitter.next_pause), (FIRST_PAUSE, 2 * FIRST_PAUSE));
    }

    #[test]
    fn what_a_step_found_is_no_longer_than_the_least_delay_in_it() {
        // An own queue was about to drain when the step began.
        let mut jitter = Jitter::default();
        let rounds = [(800.0, 20.0), (800.0, 24.0), (760.0, 4.0), (900.0, 5.0), (1000.0, 15.0)];
        let acts = rounds.map(|(rate, delay)| jitter.on_round(&mut round(rate, delay), true));
        assert_eq!(acts[1], Act::Step(FIRST_STEP));
        assert_eq!(acts[4], Act::Step(NEXT_STEP));
        assert!((jitter.delay() - 0.004).abs() < 1e-9, "{jitter:?}");
    }

    #[test]
    fn the_window_stays_until_the_end_of_a_step_shows() {
        let mut jitter = Jitter::default();
        let acts = [(); 8].map(|()| jitter.on_round(&mut round(900.0, 4.0), true));
        let end = acts.iter().position(|act| *act == Act::Settle).expect("the step fails");
        assert_eq!(acts[end + 1..end + EFFECT_ROUNDS as usize], [Act::Stay; 2]);
        assert_eq!(acts[end + EFFECT_ROUNDS as usize], Act::Follow);
        // Unless it was cut in the round in which the step failed.
        let mut jitter = Jitter::default();
        let failed = (0..9).find(|_| jitter.on_round(&mut round(900.0, 4.0), true) == Act::Settle);
        assert!(failed.is_some() && jitter.settles());
        jitter.on_not_followed(&round(900.0, 4.0));
        assert!(!jitter.settles());
        assert_eq!(jitter.on_round(&mut round(900.0, 4.0), true), Act::Follow);
    }

    #[test]
    fn when_the_path_becomes_steady_its_delay_is_forgotten() {
        let mut jitter = Jitter::default();
        play(&mut jitter, 125e6, 0.005, 1);
        let mut round = Round { queue: 0.001, base: BASE, ..Round::default() };
        jitter.on_round(&mut round, false);
        assert_eq!((jitter.delay(), round.queue), (0.001, 0.0));
    }
}

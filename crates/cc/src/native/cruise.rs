//! The steady state, after FAST TCP (Wei, Jin, Low, Hegde 2006, equation 5): once a round
//! w <- w/2 + (w base/(base+q) + a)/2, so that every flow holds `a` bytes in the queue, which
//! gives equal rates whatever the round trips.

use packtrain_units::Rng;

use crate::native::signals::Round;
use crate::native::verdict::Cause;

/// A flow aims at holding this much time's worth of the capacity in the queue, in seconds.
const TARGET: f64 = 1e-3;
/// A window this far above what is delivered would be a burst in waiting.
const HEADROOM: f64 = 1.15;
/// The path is taken to carry at most this many times the own rate.
const MAX_CAPACITY_OVER_RATE: f64 = 64.0;
/// Growth of a window that has met no queue for `CALM_ROUNDS`: the path has become faster.
const RISE: f64 = 1.25;
const CALM_ROUNDS: u32 = 5;
/// Growth while the queue has only just emptied.
const CREEP: f64 = 0.03;
/// The least cut at congestion.
const CUT: f64 = 0.85;
/// Every so many rounds a pair of steps up and down tests whether our own rate causes the loss.
const EXPERIMENT_EVERY: u32 = 8;
const STEP: f64 = 0.06;

/// The window of the steady state.
#[derive(Debug)]
pub(super) struct Cruise {
    window: f64,
    /// Delivered in the last rounds, newest first.
    recent: [f64; 3],
    /// Rounds in a row with a nearly empty queue.
    calm: u32,
    /// The window was steered in this round and not in the one before.
    changed: bool,
    /// It was cut in the round before: what is lost now was sent before the cut.
    deaf: bool,
    /// Queue at the last congestive loss, in seconds.
    queue_at_loss: Option<f64>,
    experiment: Experiment,
}

impl Cruise {
    pub(super) fn new(rng: Rng) -> Self {
        Self {
            window: 0.0,
            recent: [0.0; 3],
            calm: CALM_ROUNDS,
            changed: false,
            deaf: false,
            queue_at_loss: None,
            experiment: Experiment::new(rng),
        }
    }

    /// Starts at `rate` bytes a second.
    pub(super) fn enter(&mut self, rate: f64, round: &Round) {
        self.window = rate * round.span();
        self.recent = [rate; 3];
        // What the launch overshot is still being reported lost.
        self.deaf = true;
    }

    /// Goes on, after a competition, with what is delivered.
    pub(super) fn resume(&mut self, round: &Round) {
        self.window = self.window.max(round.delivered * round.span());
        self.calm = 0;
    }

    /// Bytes.
    pub(super) fn window(&self) -> f64 {
        self.window
    }

    /// Factor on the pace, for the experiment.
    pub(super) fn gain(&self) -> f64 {
        self.experiment.gain()
    }

    pub(super) fn on_round(&mut self, round: &Round, cause: Cause, mtu: f64) {
        let blamed = self.experiment.on_round(round);
        if !round.app_limited || round.delivered > self.recent[0] {
            self.recent = [round.delivered, self.recent[0], self.recent[1]];
        }
        let base = round.span();
        let was_deaf = std::mem::take(&mut self.deaf);
        match cause {
            Cause::Backstop if !was_deaf => {
                self.window = round.delivered * base;
                self.deaf = true;
            }
            Cause::Congestion if !was_deaf => self.cut(round, base),
            _ if blamed && !was_deaf => self.cut(round, base),
            Cause::Congestion | Cause::Backstop => {}
            _ if round.app_limited => self.idle(round, base),
            _ => self.steer(round, base, mtu),
        }
        self.window = self.window.max(super::LEAST_PACKETS * mtu);
    }

    fn cut(&mut self, round: &Round, base: f64) {
        self.window = (round.delivered * base).max(CUT * self.window).min(self.window);
        self.queue_at_loss = Some(round.queue.max(1e-4));
        self.calm = 0;
        self.deaf = true;
    }

    /// What was not used proves nothing: the window stays, and shrinks only to what the fastest
    /// recent rounds make plausible.
    fn idle(&mut self, round: &Round, base: f64) {
        if round.queue > 2.0 * TARGET {
            self.window =
                self.window.min(2.0 * HEADROOM * self.fastest() * base).max(self.window / 2.0);
        }
    }

    fn steer(&mut self, round: &Round, base: f64, mtu: f64) {
        let fastest = self.fastest();
        // Half-way to what the path can: `a` in proportion to the own rate alone would make any
        // split between flows an equilibrium, and dispersion is not to be trusted blindly.
        let path =
            round.capacity.unwrap_or(fastest).clamp(fastest, MAX_CAPACITY_OVER_RATE * fastest);
        let capacity = (fastest * path).sqrt();
        let mut target = TARGET;
        if let Some(queue) = self.queue_at_loss {
            target = target.min(queue / 4.0);
        }
        let a = (capacity * target).max(2.0 * mtu);
        let calm = round.queue * capacity < a / 4.0;
        self.calm = if calm { self.calm + 1 } else { 0 };
        // The effect of a change shows only after a round: FAST changes every other one, too.
        self.changed = !self.changed;
        if !self.changed {
            return;
        }
        if self.calm >= CALM_ROUNDS {
            self.window *= RISE;
        } else if calm {
            self.window += (a / 2.0).max(CREEP * self.window);
        } else {
            let fed_back = self.window * base / (base + round.queue) + a;
            self.window = self.window / 2.0 + fed_back / 2.0;
        }
        self.window = self.window.min(HEADROOM * fastest * base + a);
    }

    fn fastest(&self) -> f64 {
        self.recent.into_iter().fold(0.0, f64::max)
    }
}

/// Pairs of rounds a little faster and a little slower, in random order: if the faster one only
/// loses more, the loss is ours (a policer, or a queue too short to see).
#[derive(Debug)]
struct Experiment {
    rng: Rng,
    round: u32,
    up_first: bool,
    measured: [Option<(f64, f64)>; 2],
}

impl Experiment {
    fn new(rng: Rng) -> Self {
        Self { rng, round: 0, up_first: true, measured: [None; 2] }
    }

    /// Each step lasts two rounds; the second of them is measured.
    fn step(&self) -> Option<usize> {
        let within = self.round.checked_sub(EXPERIMENT_EVERY)?;
        Some((within / 2) as usize)
    }

    fn gain(&self) -> f64 {
        match self.step() {
            Some(step) if (step == 0) == self.up_first => 1.0 + STEP,
            Some(_) => 1.0 - STEP,
            None => 1.0,
        }
    }

    /// True if the pair just finished blames our rate.
    fn on_round(&mut self, round: &Round) -> bool {
        if let Some(step) = self.step()
            && self.round % 2 == 1
            && !round.app_limited
        {
            self.measured[step.min(1)] = Some((round.loss(), round.delivered));
        }
        self.round += 1;
        if self.round < EXPERIMENT_EVERY + 4 {
            return false;
        }
        self.round = 0;
        let [first, second] = std::mem::take(&mut self.measured);
        let (up, down) = if self.up_first { (first, second) } else { (second, first) };
        self.up_first = self.rng.chance(0.5);
        let (Some(up), Some(down)) = (up, down) else { return false };
        up.0 - down.0 > STEP / 2.0 && up.1 < down.1 * (1.0 + STEP / 2.0)
    }
}

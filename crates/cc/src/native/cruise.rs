//! The steady state, after FAST TCP (Wei, Jin, Low, Hegde 2006, equation 5): once per round w <-
//! w/2 + (w base/(base+q) + a)/2. Every flow then holds `a` bytes in the queue, which gives equal
//! rates whatever the round trips.
//!
//! That rule takes some 2 (base+q)/q changes to make unequal flows equal: at 100 ms and a queue of 3 ms
//! a quarter of a minute. It cannot be much faster, since all flows together would then move the queue
//! by more than they see of it. So a second rule moves the window towards the rate at
//! which the mean queue of some seconds holds a flow. That mean is too slow for the flows together to
//! swing, and each rule has the same equilibrium. It rests where the queue is longer than the own
//! kind's: beside others a slow flow must not give way before the competition begins.

use packtrain_units::Rng;

use crate::native::compete::standing_queue;
use crate::native::jitter::Act;
use crate::native::signals::Round;
use crate::native::verdict::Cause;

/// Target queue of a flow, in seconds of the capacity.
const TARGET: f64 = 1e-3;
/// Time over which the queue is averaged, in seconds, for the rate that is fair.
const MEAN_TIME: f64 = 3.0;
/// The share of the distance to the fair rate, in logarithms, that the window moves at each change,
/// and the most that it moves.
const FAIR_GAIN: f64 = 0.03;
const MAX_FAIR_STEP: f64 = 0.05;
/// Maximum ratio of the window to the delivered data; a larger window would cause a burst later.
const HEADROOM: f64 = 1.15;
/// Upper limit of the assumed capacity, in multiples of the own rate.
const MAX_CAPACITY_OVER_RATE: f64 = 64.0;
/// Growth of a window that has had no queue for `CALM_ROUNDS`: the path has become faster.
const RISE: f64 = 1.25;
const CALM_ROUNDS: u32 = 5;
/// A rate above this multiple of the measured capacity, and seconds without a queue, that show that the
/// path has become faster since the measurement. Others that leave the queue empty for a moment, as
/// in a common drain, do so for less.
const DOUBT_SHARE: f64 = 1.02;
const DOUBT_TIME: f64 = 1.0;
/// The shares of the measured capacity between which the own rate counts as having reached it.
/// Above, the measurement is wrong.
const NEAR_CAPACITY: (f64, f64) = (0.85, 1.1);
/// Growth while the queue has only just emptied.
const CREEP: f64 = 0.03;
/// Upper limit of that growth, in multiples of its share of the own window.
const MAX_CREEP: f64 = 4.0;
/// Smallest cut at congestion.
const CUT: f64 = 0.85;
/// Minimum and maximum interval in rounds of an experiment that steps the rate up and down to test
/// whether the own rate causes the loss. It doubles after each one that found nothing: an experiment
/// costs an eighth of a round trip.
const EXPERIMENT_EVERY: (u32, u32) = (8, 64);
const STEP: f64 = 0.06;
/// Loss of a round below this needs no experiment. An experiment finds a difference of half of
/// `STEP`.
const MIN_LOSS: f64 = 0.005;
/// Loss above that of the last experiment by this factor and share is a new one: the interval is the
/// minimum again.
const NEW_LOSS: (f64, f64) = (2.0, 0.01);

/// The window of the steady state.
#[derive(Debug)]
pub(super) struct Cruise {
    window: f64,
    /// Delivery rates of the last rounds, newest first.
    recent: [f64; 3],
    /// Consecutive rounds with a nearly empty queue, and when the last round before them ended.
    calm: u32,
    calm_from: f64,
    /// Whether the window was changed in this round and not in the previous one.
    changed: bool,
    /// Mean queue of some seconds, in seconds, and when it was last updated.
    mean_queue: f64,
    mean_at: f64,
    /// Whether it was cut in the previous round: losses reported now were sent before the cut.
    cut_last_round: bool,
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
            calm_from: 0.0,
            changed: false,
            mean_queue: 0.0,
            mean_at: 0.0,
            cut_last_round: false,
            queue_at_loss: None,
            experiment: Experiment::new(rng),
        }
    }

    /// Starts at `rate` bytes per second; `span` is the time base of the window ([`Round::span`]).
    pub(super) fn enter(&mut self, rate: f64, span: f64) {
        self.window = rate * span;
        self.recent = [rate; 3];
        // Losses of the launch's overshoot are still being reported.
        self.cut_last_round = true;
    }

    /// The window in bytes.
    pub(super) fn window(&self) -> f64 {
        self.window
    }

    /// Factor on the window, for the experiment.
    pub(super) fn gain(&self) -> f64 {
        self.experiment.gain()
    }

    /// Ends a round. Returns whether the window followed `act`.
    pub(super) fn on_round(&mut self, round: &Round, cause: Cause, act: Act, mtu: f64) -> bool {
        let mut followed = false;
        let blamed = self.experiment.on_round(round);
        if !round.app_limited || round.delivered > self.recent[0] {
            self.recent = [round.delivered, self.recent[0], self.recent[1]];
        }
        let base = round.span();
        let was_deaf = std::mem::take(&mut self.cut_last_round);
        match cause {
            Cause::Backstop if !was_deaf => {
                self.window = round.delivered * base;
                self.cut_last_round = true;
            }
            Cause::Congestion if !was_deaf => self.cut(round, base),
            _ if blamed && !was_deaf => self.cut(round, base),
            Cause::Congestion | Cause::Backstop => {}
            _ if round.app_limited => self.idle(round, base),
            _ => {
                followed = true;
                match act {
                    Act::Stay => {}
                    Act::Step(factor) => self.window *= factor,
                    Act::Settle => self.window = round.delivered * base,
                    Act::Follow => self.steer(round, base, mtu),
                }
            }
        }
        self.window = self.window.max(super::MIN_PACKETS * mtu);
        followed
    }

    fn cut(&mut self, round: &Round, base: f64) {
        self.window = (round.delivered * base).max(CUT * self.window).min(self.window);
        self.queue_at_loss = Some(round.queue.max(1e-4));
        (self.calm, self.calm_from) = (0, round.at);
        self.cut_last_round = true;
    }

    /// Handles an application-limited round. The window stays, and shrinks only to what the fastest
    /// recent rounds make plausible.
    fn idle(&mut self, round: &Round, base: f64) {
        if round.queue > 2.0 * TARGET {
            self.window =
                self.window.min(2.0 * HEADROOM * self.fastest() * base).max(self.window / 2.0);
        }
    }

    fn steer(&mut self, round: &Round, base: f64, mtu: f64) {
        let fastest = self.fastest();
        // The geometric mean of the own rate and the path's capacity. With `a` in proportion to the
        // own rate alone, any split between flows would be an equilibrium; and the dispersion
        // measurement may be wrong.
        let path =
            round.capacity.unwrap_or(fastest).clamp(fastest, MAX_CAPACITY_OVER_RATE * fastest);
        let capacity = (fastest * path).sqrt();
        let mut target = TARGET;
        if let Some(queue) = self.queue_at_loss {
            target = target.min(queue / 4.0);
        }
        let a = (capacity * target).max(2.0 * mtu);
        let calm = round.queue * capacity < a / 4.0;
        if calm {
            self.calm += 1;
        } else {
            (self.calm, self.calm_from) = (0, round.at);
        }
        // The effect of a change shows only after a round: FAST also changes the window every other
        // round.
        self.changed = !self.changed;
        if !self.changed {
            return;
        }
        // Near the measured capacity a leap would only fill the queue.
        let near = |c: f64| fastest > NEAR_CAPACITY.0 * c && fastest < NEAR_CAPACITY.1 * c;
        let doubtful = |c: f64| fastest > DOUBT_SHARE * c && round.at - self.calm_from > DOUBT_TIME;
        let is_near = round.capacity.is_some_and(|c| near(c) && !doubtful(c));
        if self.calm >= CALM_ROUNDS && !is_near {
            self.window *= RISE;
        } else if calm {
            // In proportion to the same mean, so that flows become equal while the queue is empty.
            let mean = (self.window * path * base).sqrt();
            let creep = CREEP * mean.min(MAX_CREEP * self.window);
            // The rest of a link that is nearly full is less than that: more would fill the queue,
            // and the way back from there leaves a part of the link idle.
            let rest = round.capacity.filter(|c| near(*c)).map(|c| (c - fastest) * base / 2.0);
            if rest.is_some() {
                self.average_queue(round);
            }
            self.window += rest.map_or(creep, |rest| rest.min(creep)).max(a / 2.0);
        } else {
            let fed_back = self.window * base / (base + round.queue) + a;
            self.window = self.window / 2.0 + fed_back / 2.0;
            self.average_queue(round);
            self.window *= self.fair_step(round, path, target);
        }
        self.window = self.window.min(HEADROOM * fastest * round.mean_span() + a);
    }

    fn average_queue(&mut self, round: &Round) {
        let elapsed = round.at - std::mem::replace(&mut self.mean_at, round.at);
        self.mean_queue += (round.queue - self.mean_queue) * (elapsed / MEAN_TIME).clamp(0.0, 1.0);
    }

    /// The factor that moves the window towards the rate that is fair: with `a` in proportion to the
    /// root of the own rate times that of the path, a flow that holds `a` in a queue of `q` seconds has
    /// the rate `path` (`target`/q)².
    fn fair_step(&self, round: &Round, path: f64, target: f64) -> f64 {
        if self.mean_queue > standing_queue(round.base) {
            return 1.0;
        }
        let fair = path * (target / self.mean_queue.max(target)).powi(2);
        let distance = (fair / self.fastest()).ln();
        (FAIR_GAIN * distance).clamp(-MAX_FAIR_STEP, MAX_FAIR_STEP).exp()
    }

    fn fastest(&self) -> f64 {
        self.recent.into_iter().fold(0.0, f64::max)
    }
}

/// Pairs of steps slightly faster and slightly slower, in random order. If the faster step only
/// loses more, the own rate causes the loss (a policer, or a queue too short to see).
#[derive(Debug)]
struct Experiment {
    rng: Rng,
    round: u32,
    /// The round in which the steps begin.
    every: u32,
    up_first: bool,
    /// Whether much was lost in a round since the last pair: else there is nothing to find.
    lossy: bool,
    /// The loss of the last pair.
    known: f64,
    measured: [Option<(f64, f64)>; 2],
}

impl Experiment {
    fn new(rng: Rng) -> Self {
        let every = EXPERIMENT_EVERY.0;
        Self { rng, round: 0, every, up_first: true, lossy: false, known: 0.0, measured: [None; 2] }
    }

    /// Each step lasts two rounds; the second of them is measured.
    fn step(&self) -> Option<usize> {
        let within = self.round.checked_sub(self.every)?;
        Some((within / 2) as usize)
    }

    fn gain(&self) -> f64 {
        match self.step() {
            Some(step) if (step == 0) == self.up_first => 1.0 + STEP,
            Some(_) => 1.0 - STEP,
            None => 1.0,
        }
    }

    /// Returns true if the pair just finished shows that the own rate causes the loss.
    fn on_round(&mut self, round: &Round) -> bool {
        if let Some(step) = self.step()
            && (self.round - self.every) % 2 == 1
            && !round.app_limited
        {
            self.measured[step.min(1)] = Some((round.loss(), round.delivered));
        }
        self.lossy |= round.loss() > MIN_LOSS;
        if self.step().is_none() && round.loss() > NEW_LOSS.0 * self.known + NEW_LOSS.1 {
            self.every = EXPERIMENT_EVERY.0.max(self.round + 1);
        }
        if self.round + 1 == self.every && !self.lossy {
            return false;
        }
        self.round += 1;
        if self.round < self.every + 4 {
            return false;
        }
        (self.round, self.lossy) = (0, false);
        let [first, second] = std::mem::take(&mut self.measured);
        let (up, down) = if self.up_first { (first, second) } else { (second, first) };
        self.up_first = self.rng.chance(0.5);
        let (Some(up), Some(down)) = (up, down) else { return false };
        self.known = up.0.max(down.0);
        let blamed = up.0 - down.0 > STEP / 2.0 && up.1 < down.1 * (1.0 + STEP / 2.0);
        let (min, max) = EXPERIMENT_EVERY;
        self.every = if blamed { min } else { (2 * self.every).min(max) };
        blamed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rounds, of 1,000, in which the experiment steps the rate, if `loss` of a round and gain
    /// is lost.
    fn steps(loss: impl Fn(u32, f64) -> f64) -> Vec<u32> {
        let mut experiment = Experiment::new(Rng::new(1));
        let mut stepped = Vec::new();
        for i in 0..1_000 {
            let gain = experiment.gain();
            if gain != 1.0 {
                stepped.push(i);
            }
            let lost = 10_000.0 * loss(i, gain);
            let arrived = 10_000.0 - lost;
            experiment.on_round(&Round { arrived, lost, delivered: arrived, ..Round::default() });
        }
        stepped
    }

    /// The windows after rounds without a queue of a flow with the rate 1 MB/s and a base of 0.1 s.
    fn calm_windows(capacity: f64, rounds: usize) -> Vec<f64> {
        let mut cruise = Cruise::new(Rng::new(1));
        cruise.enter(1e6, 0.1);
        cruise.calm = 0;
        let round = Round { delivered: 1e6, base: 0.1, ..Round::default() };
        let round = Round { capacity: Some(capacity), ..round };
        let step = |i| {
            let round = Round { at: 0.1 * i as f64, ..round };
            cruise.on_round(&round, Cause::None, Act::Follow, 1_000.0);
            cruise.window()
        };
        (0..rounds).map(step).collect()
    }

    #[test]
    fn a_window_grows_by_no_more_than_the_rest_of_a_link_that_is_nearly_full() {
        let growth = |capacity: f64| calm_windows(capacity, 1)[0] / 1e5 - 1.0;
        assert!((growth(1.02e6) - 0.01 * 1.102).abs() < 1e-3, "half of 2 %: {}", growth(1.02e6));
        assert!(growth(1.001e6) > 0.005, "but it goes on: {}", growth(1.001e6));
        assert!(growth(1.15e6) > 0.03, "at most as much as elsewhere: {}", growth(1.15e6));
        assert!(growth(1.15e6) < 0.035, "{}", growth(1.15e6));
    }

    #[test]
    fn a_link_that_became_faster_is_found_although_its_capacity_was_measured_before() {
        // Rounds of 0.1 s until the window grows like one that is not near the capacity.
        let found = |capacity: f64| {
            let windows = calm_windows(capacity, 40);
            windows.windows(2).position(|pair| pair[1] > 1.04 * pair[0])
        };
        let first = found(0.97e6).expect("it delivers more than the capacity");
        assert!((10..=12).contains(&first), "after a second: {first}");
        assert_eq!(found(0.99e6), None, "that may be an error of the measurement");
    }

    #[test]
    fn an_experiment_that_finds_nothing_is_repeated_less_and_less_often() {
        assert_eq!(steps(|_, _| 1e-3), [] as [u32; 0], "too little to find anything");
        let random = steps(|_, _| 0.02);
        let gaps: Vec<u32> =
            random.windows(2).map(|w| w[1] - w[0]).filter(|gap| *gap > 1).collect();
        assert_eq!(gaps[..4], [17, 33, 65, 65], "rounds without a step");
        // Four times the loss is another one.
        let later = steps(|i, _| if i < 500 { 0.02 } else { 0.08 });
        assert!(later.iter().filter(|i| (500..512).contains(*i)).count() >= 4, "{later:?}");
    }

    #[test]
    fn an_experiment_that_blames_the_own_rate_is_repeated_soon() {
        let policed = steps(|_, gain| 0.01 + (gain - 1.0).max(0.0));
        assert!(policed.len() > 300, "{}", policed.len());
    }
}

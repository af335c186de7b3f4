//! Competition with flows that fill the queue, beside which a window governed by delay starves.
//!
//! One more flow of their own kind is what the others leave room for, so the competition is one of
//! two complete controllers: CUBIC (`Loss`), or BBR (`Rate`) beside flows that do not yield to
//! losses.
//!
//! Others are recognised by a queue that stands, by losses that recur, or by the probes of BBR.

use std::collections::VecDeque;

use packtrain_units::{ByteCount, Time};

use crate::bbr::Bbr;
use crate::config::ControllerConfig;
use crate::cubic::Cubic;
use crate::interface::{CongestionController, Feedback, Sent};
use crate::native::probes::{PROBE_ROUNDS, are_probed};
use crate::native::signals::{Round, seconds};
use crate::native::verdict::Cause;

/// A standing queue above this, in seconds, and above this share of the base, is not the own kind's:
/// n flows of it hold about 1 ms times the root of n.
const QUEUE: f64 = 5e-3;
const QUEUE_SHARE: f64 = 1.0 / 16.0;
/// Rounds and time in seconds over which a queue must stand: the launch of another flow takes less.
const STANDING_ROUNDS: usize = 16;
const STANDING_TIME: f64 = 0.5;
/// Time in seconds over which losses must recur.
const RECURRING_TIME: f64 = 3.0;
/// The share of the capacity below which others take the rest, and above which nobody does.
const SHARED: f64 = 0.9;
const ALONE: f64 = 0.93;
/// The share of the capacity below which BBR, whose probes the queue shows, has most of the path.
const PROBED: f64 = 0.5;
/// Time and rounds with all of the capacity that end a competition.
const ALONE_TIME: f64 = 2.0;
const ALONE_ROUNDS: u32 = 10;
/// The window to start from is the highest of this many rounds.
const MEMORY_ROUNDS: usize = 48;
/// Consecutive cuts, each within `SPACING` round trips per packet of the window of the one before,
/// that show that the others do not yield. A flow beside its like is cut once in 0.57 round trips
/// per packet (RFC 9438 section 4.3).
const CUTS: u32 = 3;
const SPACING: f64 = 0.25;
const MAX_SPACING: f64 = 20.0;
/// Mean loss over some 32 rounds that a flow which yields to losses does not meet.
const HEAVY_LOSS: f64 = 0.1;
const MEAN_ROUNDS: f64 = 32.0;
/// A share of the capacity that flows which do not yield would not leave, and how long it is held,
/// in seconds.
const YIELDED: f64 = 0.7;
const YIELD_TIME: f64 = 2.0;
/// Time in seconds without BBR after the others yielded to it.
const RATE_AFTER: f64 = 30.0;
/// The share of the capacity to start from beside others.
const START: f64 = 0.5;
/// Congestive losses, at least `EPOCH` and at most `MAX_EPOCH` rounds apart, that show others in a
/// queue too short to stand.
const EPOCHS: u32 = 5;
const EPOCH: u32 = 4;
const MAX_EPOCH: u32 = 48;
/// A queue of less than this, in base round trips, is too short: in a longer one the others' queue
/// stands, and launches of flows of the own kind cause the losses.
const SHORT_QUEUE: f64 = 0.5;
/// Time in seconds and rounds without a cut, and share of the capacity above which the others do
/// not fill the queue: they keep it at a length of their own.
const QUIET: f64 = 4.0;
const QUIET_ROUNDS: f64 = 32.0;
const GAINING: f64 = 2.0 / 3.0;
/// Share of the capacity below which the others fill the queue after all.
const LOSING: f64 = 0.25;
/// Interval in seconds of the times at which a flow may leave on trial, the factor by which the
/// interval grows if the queue stands again within `TRIAL_ROUNDS`, and its maximum. The times are
/// multiples of the interval, so that flows of the own kind, which may compete with each other, leave
/// together: one alone would find the queue of the others. Each interval divides 160 s, modulo which
/// the clocks of all processes agree (`clock::now` of packtrain-os).
const TRIAL_INTERVAL: f64 = 10.0;
const TRIAL_BACKOFF: f64 = 2.0;
const MAX_TRIAL_INTERVAL: f64 = 160.0;
/// Minimum time in seconds before a trial.
const MIN_TRIAL_AFTER: f64 = 5.0;
const TRIAL_ROUNDS: u32 = 64;

/// The state of the competition.
#[derive(Debug)]
pub(super) struct Compete {
    config: ControllerConfig,
    /// One past the highest send index used.
    next: u64,
    /// The last rounds, newest first.
    past: VecDeque<Past>,
    mode: Option<Mode>,
    /// Congestive losses in a row that are neither close together nor far apart, and rounds since
    /// the last one.
    epochs: u32,
    since_epoch: u32,
    epochs_from: f64,
    /// When the queue was last short, in seconds.
    short_at: f64,
    /// When the next trial begins, and the interval of trials.
    trial_at: f64,
    trial_interval: f64,
    /// Rounds since the flow left on trial.
    trial: Option<u32>,
    /// Since when the share has been too small.
    losing: f64,
    /// When BBR may be used again.
    rate_from: f64,
    /// The rate before the trial.
    rate: f64,
    /// Since when all of the capacity was delivered, and in how many rounds.
    alone: (f64, u32),
    /// Since when the others have yielded.
    yielding: f64,
    /// The last cut, and how many in a row came early.
    cut_at: f64,
    early: u32,
    /// Mean loss of the competition by losses.
    loss: f64,
    cwnd: f64,
}

#[derive(Clone, Copy, Debug)]
struct Past {
    queue: f64,
    delivered: f64,
    window: f64,
}

#[derive(Debug)]
enum Mode {
    Loss(Box<Cubic>),
    Rate(Box<Bbr>),
}

/// What a round changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    None,
    /// The flow cruises, but the competition may continue.
    OnTrial,
    /// The others have gone.
    Over,
}

impl Compete {
    pub(super) fn new(config: &ControllerConfig) -> Self {
        Self {
            config: *config,
            next: 0,
            past: VecDeque::new(),
            mode: None,
            epochs: 0,
            since_epoch: MAX_EPOCH,
            epochs_from: 0.0,
            short_at: 0.0,
            trial_at: 0.0,
            trial_interval: TRIAL_INTERVAL,
            trial: None,
            losing: 0.0,
            rate_from: 0.0,
            rate: 0.0,
            alone: (0.0, 0),
            yielding: 0.0,
            cut_at: 0.0,
            early: 0,
            loss: 0.0,
            cwnd: 0.0,
        }
    }

    /// The controller in force during a competition.
    pub(super) fn controller(&self) -> Option<&dyn CongestionController> {
        if self.trial.is_some() {
            return None;
        }
        match self.mode.as_ref()? {
            Mode::Loss(cubic) => Some(&**cubic),
            Mode::Rate(bbr) => Some(&**bbr),
        }
    }

    pub(super) fn name(&self) -> Option<&'static str> {
        self.controller()?;
        match self.mode.as_ref()? {
            Mode::Loss(_) => Some("compete by loss"),
            Mode::Rate(_) => Some("compete by rate"),
        }
    }

    /// A packet has `mtu` bytes from now on.
    pub(super) fn set_mtu(&mut self, mtu: ByteCount) {
        self.config.mtu = mtu;
        match &mut self.mode {
            Some(Mode::Loss(cubic)) => cubic.set_mtu(mtu),
            Some(Mode::Rate(bbr)) => bbr.set_mtu(mtu),
            None => {}
        }
    }

    pub(super) fn on_sent(&mut self, sent: &Sent) {
        self.next = sent.first.saturating_add(u64::from(sent.count)).max(self.next);
        match &mut self.mode {
            Some(Mode::Loss(cubic)) => cubic.on_sent(sent),
            Some(Mode::Rate(bbr)) => bbr.on_sent(sent),
            None => {}
        }
    }

    /// Takes feedback; `full` says whether the queue is full enough for its losses to count.
    pub(super) fn on_feedback(&mut self, feedback: &Feedback<'_>, full: bool, srtt: f64) {
        match &mut self.mode {
            Some(Mode::Loss(cubic)) => {
                let lost = if full { feedback.lost } else { &[] };
                cubic.on_feedback(&Feedback { lost, ..feedback.clone() });
                let cwnd = cubic.cwnd().get() as f64;
                let packets = self.cwnd / self.config.mtu.get().max(1) as f64;
                if cwnd < 0.9 * self.cwnd {
                    let now = seconds(feedback.now);
                    let spacing = (SPACING * packets).min(MAX_SPACING) * srtt;
                    self.early = if now - self.cut_at < spacing { self.early + 1 } else { 0 };
                    self.cut_at = now;
                }
                self.cwnd = cwnd;
            }
            Some(Mode::Rate(bbr)) => bbr.on_feedback(feedback),
            None => {}
        }
    }

    /// Ends a round. `capacity` is that of the path in bytes per second, `window` that of the
    /// cruise.
    pub(super) fn on_round(
        &mut self,
        round: &Round,
        cause: Cause,
        capacity: f64,
        window: f64,
    ) -> Change {
        self.past.push_front(Past { queue: round.queue, delivered: round.delivered, window });
        self.past.truncate(MEMORY_ROUNDS);
        self.count_epochs(round, cause);
        if round.queue < standing_queue(round.base) {
            self.short_at = round.at;
        }
        if self.mode.is_none() {
            let pressed = self.is_pressed(round, capacity);
            if pressed || self.is_probed(round, capacity) {
                self.alone = (round.at, 0);
                self.plan_trial(round);
                if pressed && !self.is_recurring(round) {
                    self.enter_loss(round, capacity);
                } else {
                    self.start_rate(round, (START * capacity).max(round.delivered));
                }
            }
            return Change::None;
        }
        if let Some(rounds) = self.trial {
            return self.on_trial_round(round, capacity, rounds);
        }
        if round.delivered < ALONE * capacity {
            self.alone = (round.at, 0);
        } else {
            self.alone.1 += 1;
        }
        if self.alone.1 >= ALONE_ROUNDS && round.at - self.alone.0 >= ALONE_TIME {
            self.leave();
            return Change::Over;
        }
        if round.at > self.trial_at {
            self.trial = Some(0);
            self.rate = round.delivered;
            self.past.clear();
            self.epochs = 0;
            return Change::OnTrial;
        }
        self.change_mode(round, capacity);
        Change::None
    }

    fn leave(&mut self) {
        self.mode = None;
        self.trial = None;
        self.trial_interval = TRIAL_INTERVAL;
        self.past.clear();
        self.epochs = 0;
    }

    fn on_trial_round(&mut self, round: &Round, capacity: f64, rounds: u32) -> Change {
        self.trial = Some(rounds + 1);
        if self.is_pressed(round, capacity) || self.is_probed(round, capacity) {
            self.trial = None;
            self.trial_interval = (self.trial_interval * TRIAL_BACKOFF).min(MAX_TRIAL_INTERVAL);
            self.plan_trial(round);
            if matches!(self.mode, Some(Mode::Rate(_))) {
                self.start_rate(round, self.rate);
            }
        } else if rounds >= TRIAL_ROUNDS {
            self.leave();
            return Change::Over;
        }
        Change::None
    }

    fn plan_trial(&mut self, round: &Round) {
        let earliest = round.at + MIN_TRIAL_AFTER;
        self.trial_at = (earliest / self.trial_interval).ceil() * self.trial_interval;
    }

    fn count_epochs(&mut self, round: &Round, cause: Cause) {
        self.since_epoch = self.since_epoch.saturating_add(1);
        let is_short = round.queue < (SHORT_QUEUE * round.base).max(2.0 * QUEUE);
        if is_short && matches!(cause, Cause::Congestion | Cause::Backstop) {
            if self.since_epoch > MAX_EPOCH {
                self.epochs = 1;
                self.epochs_from = round.at;
            } else if self.since_epoch >= EPOCH {
                self.epochs += 1;
            }
            self.since_epoch = 0;
        }
    }

    /// Whether a queue stands that this flow cannot have filled.
    fn is_pressed(&self, round: &Round, capacity: f64) -> bool {
        // On trial there is no launch to wait for.
        let on_trial = self.trial.is_some();
        let standing = if on_trial { STANDING_ROUNDS / 2 } else { STANDING_ROUNDS };
        let recent = self.past.iter().take(standing);
        let fastest = recent.clone().map(|past| past.delivered).fold(0.0, f64::max);
        if fastest > SHARED * capacity || round.app_limited {
            return false;
        }
        if self.is_recurring(round) {
            return true;
        }
        let stands = on_trial || round.at - self.short_at > STANDING_TIME;
        if self.past.len() < standing || !stands {
            return false;
        }
        let newest = recent.clone().take(standing / 2).map(|past| past.queue);
        let least = newest.fold(f64::INFINITY, f64::min);
        let most = recent.map(|past| past.queue).fold(0.0, f64::max);
        // A queue of the own kind's making, as after a launch, halves every few rounds.
        least > standing_queue(round.base) && least > most / 2.0
    }

    /// Whether losses recur in a queue too short to stand.
    fn is_recurring(&self, round: &Round) -> bool {
        let lasts = self.trial.is_some() || round.at - self.epochs_from > RECURRING_TIME;
        self.epochs >= EPOCHS && lasts && self.since_epoch == 0
    }

    /// Whether BBR has most of the path, and keeps the queue too short to stand.
    fn is_probed(&self, round: &Round, capacity: f64) -> bool {
        let recent = || self.past.iter().take(PROBE_ROUNDS);
        let fastest = recent().map(|past| past.delivered).fold(0.0, f64::max);
        let queues: Vec<f64> = recent().map(|past| past.queue).collect();
        let is_behind = !round.app_limited && fastest <= PROBED * capacity;
        is_behind && are_probed(&queues, round.base, standing_queue(round.base))
    }

    /// Begins a competition by losses, at the window before it began, but at least at a share that
    /// the others must yield to.
    fn enter_loss(&mut self, round: &Round, capacity: f64) {
        let window = self.past.iter().map(|past| past.window);
        let before = window.fold(START * capacity * (round.base + round.reverse), f64::max);
        self.start_loss(round, before + START * capacity * round.queue);
    }

    /// Begins CUBIC at a window in bytes.
    fn start_loss(&mut self, round: &Round, window: f64) {
        let config = self.config_at(round);
        (self.cwnd, self.cut_at) = (window, round.at);
        (self.early, self.loss) = (0, 0.0);
        let packets = window / config.mtu.get().max(1) as f64;
        self.mode = Some(Mode::Loss(Box::new(Cubic::resumed(&config, packets, self.next))));
    }

    /// Begins BBR at a rate in bytes per second.
    fn start_rate(&mut self, round: &Round, rate: f64) {
        let config = self.config_at(round);
        (self.yielding, self.losing) = (round.at, round.at);
        self.loss = 0.0;
        let rtt = round.base + round.reverse;
        self.mode = Some(Mode::Rate(Box::new(Bbr::resumed(&config, rate, rtt, self.next))));
    }

    fn config_at(&self, round: &Round) -> ControllerConfig {
        let now = Time::from_nanos((round.at * 1e9) as u64);
        ControllerConfig { now, ..self.config }
    }

    fn change_mode(&mut self, round: &Round, capacity: f64) {
        self.loss += (round.loss() - self.loss) / MEAN_ROUNDS;
        let share = round.delivered / capacity.max(1.0);
        match &self.mode {
            Some(Mode::Loss(_)) => {
                let quiet = QUIET.max(QUIET_ROUNDS * round.round_trip());
                let bounded = round.at - self.cut_at > quiet && share > GAINING;
                let unyielding = self.early >= CUTS || self.loss > HEAVY_LOSS;
                if (unyielding || bounded) && round.at > self.rate_from {
                    self.start_rate(round, (START * capacity).max(round.delivered));
                }
            }
            Some(Mode::Rate(_)) => {
                if share < YIELDED {
                    self.yielding = round.at;
                }
                if share > LOSING || self.loss > 0.01 {
                    self.losing = round.at;
                }
                let since = self.yielding.min(self.losing);
                if round.at - since > YIELD_TIME {
                    self.rate_from = round.at + RATE_AFTER;
                    self.start_loss(round, START * capacity * round.round_trip());
                }
            }
            None => {}
        }
    }
}

/// The queue, in seconds, above which flows of the own kind alone do not stand.
pub(super) fn standing_queue(base: f64) -> f64 {
    QUEUE.max(QUEUE_SHARE * base)
}

#[cfg(test)]
mod tests {
    use packtrain_units::ByteCount;

    use super::*;
    use crate::interface::LossRange;

    const CAPACITY: f64 = 12.5e6;

    fn compete() -> Compete {
        Compete::new(&ControllerConfig {
            mtu: ByteCount(1_472),
            seed: 1,
            now: Time::ZERO,
            ceiling: None,
            rtt: None,
        })
    }

    fn round(at: f64, queue: f64, share: f64) -> Round {
        Round { at, queue, base: 0.04, delivered: share * CAPACITY, ..Round::default() }
    }

    /// Rounds of 50 ms from `at` on; returns the changes.
    fn play(compete: &mut Compete, at: f64, rounds: u32, queue: f64, share: f64) -> Vec<Change> {
        (0..rounds)
            .map(|i| round(at + f64::from(i) * 0.05, queue, share))
            .map(|round| compete.on_round(&round, Cause::None, CAPACITY, 1e5))
            .collect()
    }

    #[test]
    fn a_queue_that_stands_while_others_have_the_capacity_starts_it() {
        let mut compete = compete();
        play(&mut compete, 0.0, 15, 0.02, 0.3);
        assert_eq!(compete.name(), None, "too early");
        play(&mut compete, 0.75, 1, 0.02, 0.3);
        assert_eq!(compete.name(), Some("compete by loss"));
        let window = compete.controller().unwrap().cwnd().get() as f64;
        assert!(window > 0.49 * CAPACITY * 0.06, "half of the path: {window}");
    }

    #[test]
    fn nothing_starts_it_that_this_flow_may_have_caused() {
        // A queue of a few milliseconds, all of the capacity, a queue that drains, and a share that
        // the application limits.
        for (queue, share) in [(0.004, 0.3), (0.02, 0.95)] {
            let mut compete = compete();
            play(&mut compete, 0.0, 200, queue, share);
            assert_eq!(compete.name(), None, "{queue} s, {share}");
        }
        let mut draining = compete();
        for i in 0..40u32 {
            let queue = 0.2 * 0.5f64.powf(f64::from(i) / 4.0);
            draining.on_round(&round(f64::from(i), queue, 0.5), Cause::None, CAPACITY, 1e5);
        }
        assert_eq!(draining.name(), None);
        let mut idle = compete();
        for i in 0..40u32 {
            let limited = Round { app_limited: true, ..round(f64::from(i), 0.02, 0.1) };
            idle.on_round(&limited, Cause::None, CAPACITY, 1e5);
        }
        assert_eq!(idle.name(), None);
    }

    #[test]
    fn losses_again_and_again_start_it_where_no_queue_can_stand() {
        let mut compete = compete();
        for i in 0..120u32 {
            let cause = if i % 12 == 11 { Cause::Congestion } else { Cause::None };
            compete.on_round(&round(f64::from(i) * 0.05, 0.001, 0.6), cause, CAPACITY, 1e5);
            assert_eq!(compete.name().is_some(), i >= 83, "round {i}");
        }
    }

    #[test]
    fn all_of_the_capacity_ends_it_and_an_empty_queue_alone_does_not() {
        let mut compete = compete();
        play(&mut compete, 0.0, 62, 0.02, 0.3);
        let changes = play(&mut compete, 3.5, 60, 0.0, 0.5);
        assert!(changes.iter().all(|c| *c == Change::None) && compete.name().is_some());
        let changes = play(&mut compete, 6.5, 60, 0.02, 0.97);
        assert_eq!(changes.iter().filter(|c| **c == Change::Over).count(), 1);
        assert_eq!(compete.name(), None);
    }

    #[test]
    fn trials_find_an_empty_path_and_grow_rare_beside_others() {
        let mut beside = compete();
        let mut trials = Vec::new();
        for i in 0..4_000u32 {
            let at = f64::from(i) * 0.05;
            if beside.on_round(&round(at, 0.02, 0.3), Cause::None, CAPACITY, 1e5) == Change::OnTrial
            {
                trials.push(at as u32);
            }
        }
        assert_eq!(trials, [10, 20, 40, 80, 160]);
        let mut left = compete();
        play(&mut left, 0.0, 62, 0.02, 0.3);
        let changes = play(&mut left, 3.5, 300, 0.0, 0.6);
        assert!(changes.contains(&Change::OnTrial) && changes.contains(&Change::Over));
    }

    /// The 100 packets from the send index `first` on are sent at `at`.
    fn send(compete: &mut Compete, at: f64, first: u64) {
        compete.on_sent(&Sent {
            now: Time::from_nanos((at * 1e9) as u64),
            first,
            count: 100,
            bytes: ByteCount(147_200),
            in_flight: ByteCount(147_200),
            retransmission: false,
            app_limited: false,
        });
    }

    /// A report at `at` acknowledges the packet `acked` and tells the loss of `lost`.
    fn report(compete: &mut Compete, at: f64, acked: u64, lost: u64) {
        let now = Time::from_nanos((at * 1e9) as u64);
        let lost = [LossRange { first: lost, count: 1, bytes: ByteCount(1_472), sent_at: now }];
        let feedback = Feedback {
            largest_acked: Some(acked),
            acked: ByteCount(1_472),
            lost: &lost,
            ..crate::bottleneck::silence(now)
        };
        compete.on_feedback(&feedback, true, 0.05);
    }

    /// Acknowledges a packet and loses one each round of 50 ms; CUBIC cuts each time.
    fn cut_often(compete: &mut Compete, at: f64, rounds: u64) {
        for i in 0..rounds {
            let now = at + i as f64 * 0.05;
            send(compete, now, i * 100);
            report(compete, now, i * 100 + 99, i * 100);
        }
    }

    #[test]
    fn what_was_lost_before_it_began_is_no_reason_to_cut() {
        let mut compete = compete();
        send(&mut compete, 0.0, 0);
        play(&mut compete, 0.0, 16, 0.02, 0.3);
        let window = |compete: &Compete| compete.controller().expect("it competes").cwnd().get();
        let begun = window(&compete);
        (0..20).for_each(|i| report(&mut compete, 0.8, 50 + i, 20 + i));
        assert_eq!(window(&compete), begun, "losses of a queue that was full before");
        send(&mut compete, 0.81, 100);
        report(&mut compete, 0.86, 150, 120);
        let cut = window(&compete);
        assert!(cut < begun * 3 / 4, "{cut} of {begun}");
        report(&mut compete, 0.861, 151, 121);
        assert_eq!(window(&compete), cut, "once a round");
    }

    #[test]
    fn others_that_do_not_yield_to_losses_are_met_by_rate_and_those_that_do_by_loss() {
        let mut compete = compete();
        play(&mut compete, 0.0, 62, 0.02, 0.3);
        cut_often(&mut compete, 3.1, 4);
        play(&mut compete, 3.3, 1, 0.02, 0.2);
        assert_eq!(compete.name(), Some("compete by rate"));
        play(&mut compete, 3.4, 30, 0.02, 0.5);
        assert_eq!(compete.name(), Some("compete by rate"));
        // They yield: it takes more than they would leave.
        play(&mut compete, 5.0, 50, 0.02, 0.85);
        assert_eq!(compete.name(), Some("compete by loss"));
    }
}

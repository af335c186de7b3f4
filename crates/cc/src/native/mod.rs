//! The controller `native`: launches by measuring the capacity, cruises with a small queue, and
//! reduces its rate only for losses that it probably caused.
//!
//! Files: `launch` measures the capacity; `cruise` keeps a small and equal amount of data in the
//! queue; `jitter` tells the delay of a path's jitter from a queue; `drain` empties the queue to
//! measure the base delay again; `compete` follows CUBIC beside flows that fill the queue, and BBR
//! beside flows that do not yield; `probes` recognises BBR where no queue stands; `saved` is what an
//! earlier flow measured; `verdict` classifies the losses of a round; `signals` turns feedback into
//! the numbers of one round.
//!
//! Units: rates in bytes per second, times in seconds, amounts in bytes, as `f64`.

mod compete;
mod cruise;
mod drain;
mod jitter;
mod launch;
mod probes;
mod reverse;
mod saved;
mod signals;
mod verdict;

use packtrain_units::{ByteCount, DataRate, Duration, Rng};

use crate::config::ControllerConfig;
use crate::interface::{CongestionController, Feedback, SavedPath, Sent, Signal, Signals};
use crate::native::compete::{Change, Compete};
use crate::native::cruise::Cruise;
use crate::native::drain::Drain;
use crate::native::jitter::Jitter;
use crate::native::launch::Launch;
use crate::native::signals::{Round, Rounds};
use crate::native::verdict::{Cause, Judge};
use crate::pacing::quantum;

/// Packets of a train in the launch.
const TRAIN: f64 = 16.0;
/// Room in the launch for bursts, in packets: a path of 5 Gbit/s needs 512 for a burst that lasts
/// long enough to measure.
const BURST_PACKETS: f64 = 512.0;
/// Room in cruise for a burst, in packets, while the launch ended without a capacity; and the number
/// of rounds for which the bursts are awaited.
const FIRST_BURST: f64 = 64.0;
const MAX_UNMEASURED_ROUNDS: u32 = 64;
/// Minimum window, in packets.
const MIN_PACKETS: f64 = 4.0;
/// Delay of threads on top of the round trip and the reports, in seconds: the window covers it.
const THREAD_LATENESS: f64 = 4e-3;
/// The pace leads the window by this factor, so that the window and not the pace limits.
const PACE_LEAD: f64 = 1.02;
/// After host drops, batches are half as large for this many round trips. The pace is reduced by
/// the flow (the receiver rate cap), for any controller.
const SMALL_BATCH_ROUNDS: u32 = 16;

/// The controller `native`.
#[derive(Debug)]
pub struct Native {
    mtu: f64,
    ceiling: Option<f64>,
    state: State,
    rounds: Rounds,
    judge: Judge,
    cruise: Cruise,
    drain: Drain,
    jitter: Jitter,
    /// None: it yields to flows that fill the queue.
    compete: Option<Compete>,
    best: Best,
    /// Rounds left in which the launch goes on as soon as a capacity is measured: it ended without.
    unmeasured_rounds: u32,
    /// The rate in force, in bytes per second.
    rate: f64,
    /// Rounds left with smaller batches because the receiving host dropped packets.
    small_batch_rounds: u32,
}

/// The highest rate that two rounds in a row delivered, of the last minute.
#[derive(Debug, Default)]
struct Best {
    last: f64,
    /// The highest of the last half minute and of the one before, and when the former began.
    best: [f64; 2],
    since: f64,
}

impl Best {
    /// Returns the capacity: that of trains, or the best rate if that is higher.
    fn on_round(&mut self, round: &Round) -> f64 {
        if round.at - self.since > 30.0 {
            (self.best, self.since) = ([0.0, self.best[0]], round.at);
        }
        let both = round.delivered.min(std::mem::replace(&mut self.last, round.delivered));
        self.best[0] = self.best[0].max(both);
        self.best[0].max(self.best[1]).max(round.capacity.unwrap_or(0.0))
    }
}

#[derive(Debug)]
enum State {
    Launch(Box<Launch>),
    Cruise,
}

impl Native {
    /// A controller in its first round.
    pub fn new(config: &ControllerConfig) -> Self {
        let mut rng = Rng::new(config.seed);
        let mtu = config.mtu.get().max(1) as f64;
        let rtt = config.rtt.map_or(0.1, Duration::as_secs_f64);
        let launch = Launch::new(mtu, rtt);
        Self {
            mtu,
            ceiling: config.ceiling.map(|c| c.as_bps() as f64 / 8.0),
            rate: launch.rate(),
            state: State::Launch(Box::new(launch)),
            rounds: Rounds::new(config.now, rtt),
            judge: Judge::default(),
            cruise: Cruise::new(rng.fork()),
            drain: Drain::new(config.now),
            jitter: Jitter::default(),
            compete: Some(Compete::new(config)),
            best: Best::default(),
            unmeasured_rounds: 0,
            small_batch_rounds: 0,
        }
    }

    /// A controller that never competes: beside flows that fill the queue it falls to its minimum
    /// window.
    pub fn background(config: &ControllerConfig) -> Self {
        Self { compete: None, ..Self::new(config) }
    }

    /// The controller in force during a competition.
    fn competing(&self) -> Option<&dyn CongestionController> {
        self.compete.as_ref().and_then(Compete::controller)
    }

    fn on_round(&mut self, mut round: Round) {
        let cruises = matches!(self.state, State::Cruise) && self.competing().is_none();
        let may_step = cruises && !round.app_limited;
        let act = self.jitter.on_round(&mut round, may_step);
        let round = &round;
        let verdict = self.judge.judge(round);
        let host = verdict == Cause::Host;
        self.small_batch_rounds =
            if host { SMALL_BATCH_ROUNDS } else { self.small_batch_rounds.saturating_sub(1) };
        if matches!(self.state, State::Launch(_)) {
            return;
        }
        self.unmeasured_rounds = self.unmeasured_rounds.saturating_sub(1);
        let capacity = self.best.on_round(round);
        if self.competing().is_none() {
            if !self.cruise.on_round(round, verdict, act, self.mtu) {
                self.jitter.on_not_followed(round);
            }
            let share = round.delivered / capacity.max(1.0);
            self.drain.on_round(round, self.rounds.base_seen_at(), share);
        }
        let Some(compete) = &mut self.compete else { return self.update_rate() };
        match compete.on_round(round, verdict, capacity, self.cruise.window()) {
            Change::None => {}
            Change::OnTrial => self.cruise.enter(round.delivered, round.span()),
            Change::Over => {
                self.rounds.forget_base();
                self.cruise.enter(round.delivered, round.span());
            }
        }
        self.update_rate();
    }

    /// Goes on with a launch that ended before a capacity was measured: a queue that others filled
    /// dropped the end of its bursts.
    fn resume_launch(&mut self, feedback: &Feedback<'_>) {
        let Some(capacity) = feedback.capacity.map(|c| c.as_bps() as f64 / 8.0) else { return };
        self.unmeasured_rounds = 0;
        if let Some(launch) = Launch::resumed(self.rate, capacity) {
            self.state = State::Launch(Box::new(launch));
            self.update_rate();
        }
    }

    fn update_rate(&mut self) {
        let rate = match &self.state {
            State::Launch(launch) => launch.rate(),
            State::Cruise => match self.competing() {
                Some(competing) => {
                    competing.pacing_rate().map_or(0.0, |rate| rate.as_bps() as f64 / 8.0)
                }
                // The queue of the step is about to be gone; the delay of the jitter stays.
                None if self.jitter.settles() => {
                    PACE_LEAD * self.window() / (self.rounds.empty_rtt() + self.jitter.delay())
                }
                None => PACE_LEAD * self.window() / self.rounds.effective_rtt(),
            },
        };
        let capped = self.ceiling.map_or(rate, |c| rate.min(c));
        self.rate = capped.max(self.least_rate());
    }

    /// The window of the steady state, in bytes. The network reacts to it, not to the pace.
    fn window(&self) -> f64 {
        self.cruise.window() * self.cruise.gain() * self.drain.gain()
    }

    fn least_rate(&self) -> f64 {
        MIN_PACKETS * self.mtu / (self.rounds.srtt() + lateness(self.rounds.base()))
    }
}

impl CongestionController for Native {
    fn name(&self) -> &'static str {
        "native"
    }

    fn needs(&self) -> Signals {
        Signals::of(&[Signal::Rtt, Signal::QueueingDelay, Signal::DeliveryRate, Signal::Losses])
    }

    fn on_saved_path(&mut self, saved: SavedPath) {
        if let State::Launch(launch) = &mut self.state {
            launch.on_saved_path(saved);
        }
    }

    fn on_path(&mut self, rtt: Duration) {
        let rtt = rtt.as_secs_f64();
        self.rounds.on_path(rtt);
        if let State::Launch(launch) = &mut self.state {
            launch.on_path(self.mtu, rtt);
        }
        self.update_rate();
    }

    fn launches_at_capacity(&self) -> bool {
        true
    }

    fn on_capacity(&mut self, capacity: DataRate) {
        if let State::Launch(launch) = &mut self.state {
            launch.on_capacity(capacity.as_bps() as f64 / 8.0);
        }
        self.update_rate();
    }

    fn answers_marks(&self) -> bool {
        true
    }

    fn set_mtu(&mut self, mtu: ByteCount) {
        self.mtu = mtu.get().max(1) as f64;
        if let Some(compete) = &mut self.compete {
            compete.set_mtu(mtu);
        }
        self.update_rate();
    }

    fn on_sent(&mut self, sent: &Sent) {
        self.rounds.on_sent(sent);
        if let State::Launch(launch) = &mut self.state {
            launch.on_sent(sent);
        }
        if let Some(compete) = &mut self.compete {
            compete.on_sent(sent);
        }
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        if let Some(round) = self.rounds.on_feedback(feedback, self.rate) {
            self.on_round(round);
        }
        if let Some(compete) = &mut self.compete {
            let full = self.judge.is_full(self.rounds.newest_queue() - self.jitter.delay());
            compete.on_feedback(feedback, full, self.rounds.srtt());
            self.update_rate();
        }
        let base = self.rounds.base();
        self.drain.on_time(feedback.now, base);
        if let State::Launch(launch) = &mut self.state {
            if launch.on_feedback(feedback, base, self.rate) {
                let span = base + lateness(base) + self.rounds.reverse();
                self.cruise.enter(launch.rate(), span);
                self.rounds.restart(feedback.now);
                self.unmeasured_rounds = if launch.has_leapt() { 0 } else { MAX_UNMEASURED_ROUNDS };
                self.state = State::Cruise;
            }
            self.update_rate();
        } else if self.unmeasured_rounds > 0 && self.competing().is_none() {
            self.resume_launch(feedback);
        }
    }

    /// In the launch twice what the rate needs, because the pace limits, and room for a burst that
    /// measures the capacity; then the window itself.
    fn cwnd(&self) -> ByteCount {
        let window = match &self.state {
            State::Launch(_) => {
                let rtt = self.rounds.srtt() + lateness(self.rounds.base());
                2.0 * self.rate * rtt + BURST_PACKETS * self.mtu
            }
            State::Cruise => match self.competing() {
                Some(competing) => competing.cwnd().get() as f64,
                // Room for the bursts that measure the capacity.
                None if self.unmeasured_rounds > 0 => self.window() + FIRST_BURST * self.mtu,
                None => self.window(),
            },
        };
        // BBR's probe of the round trip waits until four packets are in flight.
        let least = if self.competing().is_some() { MIN_PACKETS / 2.0 } else { 2.0 * MIN_PACKETS };
        ByteCount(window.max(least * self.mtu) as u64)
    }

    fn paces_itself(&self) -> bool {
        true
    }

    fn pacing_rate(&self) -> Option<DataRate> {
        Some(DataRate::from_bps((self.rate * 8.0) as u64))
    }

    fn send_quantum(&self) -> ByteCount {
        let rate = DataRate::from_bps((self.rate * 8.0) as u64);
        let full = quantum(rate, ByteCount(self.mtu as u64));
        let halved = if self.small_batch_rounds > 0 { ByteCount(full.get() / 2) } else { full };
        let min_packets = match &self.state {
            // Long enough for their spread to show the path's speed.
            State::Launch(launch) if launch.may_send_trains() => TRAIN,
            State::Launch(_) | State::Cruise => 2.0,
        };
        halved.max(ByteCount((min_packets * self.mtu) as u64))
    }

    fn state(&self) -> String {
        let name = match &self.state {
            State::Launch(_) => "launch",
            State::Cruise if self.competing().is_some() => {
                self.compete.as_ref().and_then(Compete::name).unwrap_or("compete")
            }
            State::Cruise if self.drain.gain() < 1.0 => "drain",
            State::Cruise => "cruise",
        };
        let host = if self.small_batch_rounds > 0 { ", the host drops" } else { "" };
        format!("{name}{host}, last loss: {}", self.judge.last())
    }
}

/// Maximum delay of feedback at a round trip of `base` seconds: threads, and the interval of
/// reports, which is a sixteenth of the round trip within limits.
fn lateness(base: f64) -> f64 {
    THREAD_LATENESS + (base / 16.0).clamp(5e-4, 1e-2)
}

#[cfg(test)]
mod tests;

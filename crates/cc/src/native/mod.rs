//! The controller `native`: launches by measuring, cruises with a small queue of its own, and
//! cuts only for losses that it has reason to blame on itself.
//!
//! One file an idea: `launch` finds the capacity, `cruise` keeps a small and equal amount in the
//! queue, `drain` empties it to see the base again, `compete` holds its own beside flows that
//! fill the queue, `verdict` says what a round's losses were. `signals` turns feedback into the
//! numbers of one round.
//!
//! Units: rates in bytes a second, times in seconds, amounts in bytes, as `f64`.

mod compete;
mod cruise;
mod drain;
mod launch;
mod signals;
mod verdict;

use packtrain_units::{ByteCount, DataRate, Duration, Rng};

use crate::config::ControllerConfig;
use crate::interface::{CongestionController, Feedback, Sent, Signal, Signals};
use crate::native::compete::Compete;
use crate::native::cruise::Cruise;
use crate::native::drain::Drain;
use crate::native::launch::Launch;
use crate::native::signals::{Round, Rounds};
use crate::native::verdict::{Cause, Judge};
use crate::pacing::quantum;

/// Packets of a train in the launch.
const TRAIN: f64 = 16.0;
/// The least window, in packets.
const LEAST_PACKETS: f64 = 4.0;
/// Threads are late by up to this on top of the round trip and the reports: the window covers it.
const THREADS: f64 = 4e-3;
/// The pace leads the window by this much, so that the window and not the pace binds.
const PACE: f64 = 1.02;
/// After host drops batches are half as large for this many round trips. The pace is the flow's
/// concern: it is held at what the host takes, whatever the controller.
const GENTLE_ROUNDS: u32 = 16;

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
    /// None: it yields to whoever fills the queue.
    compete: Option<Compete>,
    /// Bytes a second in force.
    rate: f64,
    /// Rounds for which the receiving host is still spared large batches.
    gentle: u32,
}

#[derive(Debug)]
enum State {
    Launch(Launch),
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
            state: State::Launch(launch),
            rounds: Rounds::new(config.now, rtt),
            judge: Judge::default(),
            cruise: Cruise::new(rng.fork()),
            drain: Drain::new(config.now),
            compete: Some(Compete::default()),
            gentle: 0,
        }
    }

    /// A controller that never competes: beside flows that fill the queue it goes down to its
    /// least window, and takes what they leave.
    pub fn background(config: &ControllerConfig) -> Self {
        Self { compete: None, ..Self::new(config) }
    }

    /// The window that competing asks for, while it does.
    fn competing(&self) -> Option<f64> {
        self.compete.as_ref().and_then(Compete::window)
    }

    fn on_round(&mut self, round: &Round) {
        let verdict = self.judge.judge(round);
        let host = verdict == Cause::Host;
        self.gentle = if host { GENTLE_ROUNDS } else { self.gentle.saturating_sub(1) };
        match &mut self.state {
            State::Launch(launch) => {
                if launch.on_round(round, verdict) {
                    let start = launch.rate();
                    self.cruise.enter(start, round);
                    self.state = State::Cruise;
                }
            }
            State::Cruise => {
                self.cruise.on_round(round, verdict, self.mtu);
                self.drain.on_round(round, self.rounds.base_seen_at());
                if let Some(compete) = &mut self.compete {
                    let before = compete.window();
                    compete.on_round(round, verdict, self.cruise.window());
                    if before.is_some() && compete.window().is_none() {
                        self.cruise.resume(round);
                    }
                }
            }
        }
        self.update_rate();
    }

    fn update_rate(&mut self) {
        let rate = match &self.state {
            State::Launch(launch) => launch.rate(),
            State::Cruise => PACE * self.window() / self.rounds.effective_rtt(),
        };
        let capped = self.ceiling.map_or(rate, |c| rate.min(c));
        self.rate = capped.max(self.least_rate());
    }

    /// The window of the steady state, in bytes: the network answers to it, not to the pace.
    fn window(&self) -> f64 {
        let window = self.cruise.window().max(self.competing().unwrap_or(0.0));
        window * self.cruise.gain() * self.drain.gain()
    }

    fn least_rate(&self) -> f64 {
        LEAST_PACKETS * self.mtu / (self.rounds.srtt() + lateness(self.rounds.base()))
    }
}

impl CongestionController for Native {
    fn name(&self) -> &'static str {
        "native"
    }

    fn needs(&self) -> Signals {
        Signals::of(&[Signal::Rtt, Signal::QueueingDelay, Signal::DeliveryRate, Signal::Losses])
    }

    fn on_sent(&mut self, sent: &Sent) {
        self.rounds.on_sent(sent);
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        let alarm = match &self.state {
            State::Launch(launch) => launch.alarm(self.rounds.base()),
            State::Cruise => None,
        };
        if let Some(round) = self.rounds.on_feedback(feedback, self.rate, alarm) {
            self.on_round(&round);
        }
    }

    /// In the launch twice what the rate needs: the pace governs. Then the window itself.
    fn cwnd(&self) -> ByteCount {
        let window = match &self.state {
            State::Launch(_) => {
                2.0 * self.rate * (self.rounds.srtt() + lateness(self.rounds.base()))
            }
            State::Cruise => self.window(),
        };
        ByteCount(window.max(2.0 * LEAST_PACKETS * self.mtu) as u64)
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
        let halved = if self.gentle > 0 { ByteCount(full.get() / 2) } else { full };
        let least = match &self.state {
            // Trains long enough to show by their spread how fast the path is.
            State::Launch(_) => TRAIN,
            State::Cruise => 2.0,
        };
        halved.max(ByteCount((least * self.mtu) as u64))
    }

    fn state(&self) -> String {
        let name = match &self.state {
            State::Launch(_) => "launch",
            State::Cruise if self.competing().is_some() => "compete",
            State::Cruise if self.drain.gain() < 1.0 => "drain",
            State::Cruise => "cruise",
        };
        let host = if self.gentle > 0 { ", the host drops" } else { "" };
        format!("{name}{host}, last loss: {}", self.judge.last())
    }
}

/// How late feedback may be at a round trip of `base` seconds: threads, and the interval of
/// reports, which is a sixteenth of the round trip within limits.
fn lateness(base: f64) -> f64 {
    THREADS + (base / 16.0).clamp(5e-4, 1e-2)
}

#[cfg(test)]
mod tests;

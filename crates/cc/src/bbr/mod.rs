//! BBR, version 1: draft-cardwell-iccrg-bbr-congestion-control-00 and Cardwell et al., "BBR:
//! congestion-based congestion control", 2016; details follow Linux.
//!
//! BBR models the path by the maximum delivery rate of ten rounds and the minimum round trip of ten
//! seconds. It paces at that rate and bounds the data in flight by twice the product. `model` has
//! these two values, `modes` the four modes, `policer` the rate of a token bucket, and
//! `aggregation` the extra room for acknowledgements that arrive in batches. This file computes
//! window and pace.
//!
//! Units: packets, packets per second, seconds, as `f64`.

mod aggregation;
mod filter;
mod model;
mod modes;
mod policer;

use packtrain_units::{ByteCount, DataRate, Duration, Rng, Time};

use crate::config::{ControllerConfig, Start};
use crate::interface::{CongestionController, Feedback, Sent, Signal, Signals};
use model::Model;
use modes::{Mode, Modes};

/// 2/ln 2: the smallest gain that doubles the rate each round.
const HIGH_GAIN: f64 = 2.885;
/// Minimum packets in flight.
const MIN_IN_FLIGHT: f64 = 4.0;
/// Maximum window, in packets.
const MAX_WINDOW: f64 = (1u64 << 28) as f64;
/// The pace is this fraction of the rate, to keep the queue short.
const PACE_MARGIN: f64 = 0.99;
/// The assumed round trip for the first pace, in seconds.
const NOMINAL_RTT: f64 = 1e-3;
/// A burst is the data of 2^-10 s, at most 64 KiB; at least one packet below 1.2 Mbit/s, else two.
const BURST_SECONDS: f64 = 1.0 / 1024.0;
const BURST_BYTES: f64 = 65_535.0;
const SLOW: f64 = 1.2e6 / 8.0;

/// The controller `bbr`.
#[derive(Debug)]
pub struct Bbr {
    mss: f64,
    initial: f64,
    cwnd: f64,
    /// The window to restore after recovery or after the round-trip probe.
    prior_cwnd: f64,
    /// In packets per second.
    pace: f64,
    paced_by_rtt: bool,
    repair: Repair,
    /// Send indices below this were sent before the recovery began.
    recover: u64,
    /// In the first round of a recovery, one packet is sent for each that arrived (packet
    /// conservation).
    conserving: bool,
    model: Model,
    modes: Modes,
    was_app_limited: bool,
    /// Whether losses leave the window alone.
    ignores_loss: bool,
}

/// State of loss recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repair {
    Open,
    Recovery,
    Timeout,
}

impl Bbr {
    /// A controller in its first round.
    pub fn new(config: &ControllerConfig, start: &Start) -> Self {
        let initial = f64::from(start.initial_window.clamp(1, 1 << 20));
        let rtt = config.rtt.map(Duration::as_secs_f64).filter(|rtt| *rtt > 0.0);
        Self {
            mss: config.mtu.get().max(1) as f64,
            initial,
            cwnd: initial,
            prior_cwnd: 0.0,
            pace: HIGH_GAIN * PACE_MARGIN * initial / rtt.unwrap_or(NOMINAL_RTT),
            paced_by_rtt: rtt.is_some(),
            repair: Repair::Open,
            recover: 0,
            conserving: false,
            model: Model::new(config.now, config.mtu.get().max(1) as f64),
            modes: Modes::new(config.now, Rng::new(config.seed)),
            was_app_limited: false,
            ignores_loss: false,
        }
    }

    /// A controller that continues at `rate` bytes per second on a path with the round trip `rtt`
    /// in seconds, in the mode that probes the rate. Losses do not reduce its window. `next` is one
    /// past the highest send index used.
    pub(crate) fn resumed(config: &ControllerConfig, rate: f64, rtt: f64, next: u64) -> Self {
        let mut bbr = Self::new(config, &Start::default());
        let rate = rate / bbr.mss;
        bbr.model.next = next;
        bbr.ignores_loss = true;
        bbr.paced_by_rtt = true;
        bbr.pace = PACE_MARGIN * rate;
        bbr.model.resume(config.now, rate, rtt);
        bbr.modes.resume(config.now);
        bbr.cwnd = bbr.target(2.0);
        bbr
    }

    /// Packets of a burst.
    fn burst(&self) -> f64 {
        let bytes = (self.pace * self.mss * BURST_SECONDS).min(BURST_BYTES);
        let min_packets = if self.pace * self.mss < SLOW { 1.0 } else { 2.0 };
        (bytes / self.mss).floor().clamp(min_packets, 127.0)
    }

    /// `gain` times the product of rate and round trip, rounded up.
    fn bdp(&self, rate: f64, gain: f64) -> f64 {
        self.model.min_rtt().map_or(self.initial, |rtt| (gain * rate * rtt).ceil().min(MAX_WINDOW))
    }

    /// Room for the bursts at both ends, and for acknowledgements of every second packet.
    fn with_budget(&self, packets: f64) -> f64 {
        let even = ((packets + 3.0 * self.burst()) / 2.0).ceil() * 2.0;
        even + if self.modes.is_probing_up() { 2.0 } else { 0.0 }
    }

    /// The amount in flight that fills the path `gain` times.
    fn target(&self, gain: f64) -> f64 {
        self.with_budget(self.bdp(self.model.max_rate(), gain))
    }

    fn on_repair(&mut self, event: &Event) {
        match self.repair {
            Repair::Open if event.lost > 0.0 => {
                self.save_cwnd();
                self.repair = Repair::Recovery;
                self.recover = self.model.next;
                self.conserving = true;
                self.model.start_round();
                if !self.ignores_loss {
                    self.cwnd = event.in_flight + event.acked;
                }
            }
            Repair::Recovery | Repair::Timeout if self.model.newest > self.recover => {
                self.repair = Repair::Open;
                self.conserving = false;
                self.cwnd = self.cwnd.max(self.prior_cwnd);
            }
            _ => {}
        }
    }

    fn save_cwnd(&mut self) {
        if self.repair == Repair::Open && self.modes.mode != Mode::ProbeRtt {
            self.prior_cwnd = self.cwnd;
        } else {
            self.prior_cwnd = self.prior_cwnd.max(self.cwnd);
        }
    }

    /// The retransmission timer expired: one packet, and the path may have changed.
    fn on_timer(&mut self, now: Time) {
        self.save_cwnd();
        self.repair = Repair::Timeout;
        self.recover = self.model.next;
        self.conserving = false;
        self.cwnd = 1.0;
        self.modes.reset_plateau();
        self.model.on_timer(now, self.modes.mode == Mode::ProbeBw);
    }

    fn update_pace(&mut self, rtt: Option<f64>) {
        if let Some(rtt) = rtt.filter(|rtt| *rtt > 0.0 && !self.paced_by_rtt) {
            self.paced_by_rtt = true;
            self.pace = HIGH_GAIN * PACE_MARGIN * self.cwnd.max(1.0) / rtt;
        }
        let gain = self.modes.pacing_gain(self.model.is_policed());
        let pace = gain * PACE_MARGIN * self.model.rate();
        if self.modes.is_full() || pace > self.pace {
            self.pace = pace;
        }
    }

    fn update_cwnd(&mut self, event: &Event) {
        if event.acked > 0.0 {
            if !self.ignores_loss {
                self.cwnd = (self.cwnd - event.lost).max(1.0);
            }
            self.on_repair(event);
            if self.conserving && !self.ignores_loss {
                self.cwnd = self.cwnd.max(event.in_flight + event.acked);
            } else {
                self.grow(event.acked);
            }
        } else if event.lost > 0.0 {
            self.on_repair(event);
        }
        self.cwnd = self.cwnd.clamp(1.0, MAX_WINDOW);
        if self.modes.mode == Mode::ProbeRtt {
            self.cwnd = self.cwnd.min(MIN_IN_FLIGHT);
        }
    }

    fn grow(&mut self, acked: f64) {
        let rate = self.model.rate();
        let extra = if self.modes.is_full() { self.model.aggregation.extra(rate) } else { 0.0 };
        let target = self.with_budget(self.bdp(rate, self.modes.cwnd_gain()) + extra);
        if self.modes.is_full() {
            self.cwnd = (self.cwnd + acked).min(target);
        } else if self.cwnd < target || self.model.delivered < self.initial {
            self.cwnd += acked;
        }
        self.cwnd = self.cwnd.max(MIN_IN_FLIGHT);
    }
}

/// A feedback in this controller's units.
#[derive(Clone, Copy, Debug)]
struct Event {
    now: Time,
    acked: f64,
    lost: f64,
    in_flight: f64,
    rate: Option<f64>,
    rtt: Option<f64>,
    app_limited: bool,
}

impl Event {
    fn new(feedback: &Feedback<'_>, mss: f64) -> Self {
        let lost: u64 = feedback.lost.iter().fold(0, |sum, l| sum.saturating_add(l.bytes.get()));
        Self {
            now: feedback.now,
            acked: feedback.acked.get() as f64 / mss,
            lost: lost as f64 / mss,
            in_flight: feedback.in_flight.get() as f64 / mss,
            rate: feedback.delivery_rate.map(|rate| rate.as_bps() as f64 / 8.0 / mss),
            rtt: feedback.rtt.map(|rtt| rtt.latest.as_secs_f64()),
            app_limited: feedback.app_limited,
        }
    }
}

impl CongestionController for Bbr {
    fn name(&self) -> &'static str {
        "bbr"
    }

    fn needs(&self) -> Signals {
        Signals::of(&[Signal::Rtt, Signal::DeliveryRate, Signal::Losses])
    }

    fn set_mtu(&mut self, mtu: ByteCount) {
        let mss = mtu.get().max(1) as f64;
        let factor = std::mem::replace(&mut self.mss, mss) / mss;
        let begun = self.model.set_mss(mss, factor);
        if begun {
            self.cwnd = (self.cwnd * factor).max(1.0);
            self.prior_cwnd *= factor;
            self.pace *= factor;
        }
    }

    fn on_sent(&mut self, sent: &Sent) {
        let idle = sent.in_flight == sent.bytes && self.was_app_limited;
        self.was_app_limited = sent.app_limited;
        self.model.next = sent.first.saturating_add(u64::from(sent.count)).max(self.model.next);
        if idle {
            self.model.aggregation.restart(sent.now);
            self.modes.idle_restart = true;
            if self.modes.mode == Mode::ProbeBw {
                self.pace = PACE_MARGIN * self.model.rate();
            }
        }
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        let event = Event::new(feedback, self.mss);
        if let Some(index) = feedback.largest_acked {
            self.model.newest = self.model.newest.max(index.saturating_add(1));
        }
        if feedback.timeout {
            return self.on_timer(feedback.now);
        }
        let restart = self.model.on_event(&event, self.cwnd, self.modes.mode == Mode::ProbeBw);
        if self.model.round_started {
            self.conserving = false;
        }
        if restart {
            self.modes.enter_probe_bw(event.now);
        }
        self.advance(&event);
        self.update_pace(feedback.rtt.map(|rtt| rtt.smoothed.as_secs_f64()));
        self.update_cwnd(&event);
    }

    fn cwnd(&self) -> ByteCount {
        ByteCount((self.cwnd * self.mss) as u64)
    }

    fn paces_itself(&self) -> bool {
        true
    }

    fn pacing_rate(&self) -> Option<DataRate> {
        let bps = 8.0 * self.pace * self.mss;
        Some(DataRate::from_bps(bps.max(8.0 * self.mss) as u64))
    }

    fn send_quantum(&self) -> ByteCount {
        ByteCount((self.burst() * self.mss) as u64)
    }

    fn state(&self) -> String {
        let mbps = 8e-6 * self.model.rate() * self.mss;
        let rtt = 1e3 * self.model.min_rtt().unwrap_or(0.0);
        let policed = if self.model.is_policed() { ", policed" } else { "" };
        format!("{}, {mbps:.1} Mbit/s, {rtt:.1} ms{policed}", self.modes.mode.name())
    }
}

#[cfg(test)]
mod tests;

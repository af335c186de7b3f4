//! CUBIC: RFC 9438, with the HyStart of Linux.
//!
//! Where the RFC leaves a choice, this follows Linux: a cut reduces the window and not the flight
//! size; `t` is ahead by the minimum round trip; a window without any loss so far grows by at least
//! a twentieth per round trip; and the Reno-friendly window keeps its slope above the old window,
//! where section 4.3 would increase it (`cubic:rfc` follows the RFC).

mod curve;
mod hystart;

use packtrain_units::{ByteCount, DataRate, Duration, Time};

use crate::config::{ControllerConfig, Start};
use crate::interface::{CongestionController, Feedback, Sent, Signal, Signals};
use crate::window::{Action, Window};

pub(crate) use curve::{BETA, Curve};
use hystart::{Ack, HyStart};

/// Slope of the Reno-friendly window, in packets per round trip (RFC 9438 section 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Minimum acknowledgements for one more packet, and the maximum while no loss has occurred.
const MIN_ACKS_PER_PACKET: f64 = 2.0;
const MAX_ACKS_PER_PACKET_BEFORE_LOSS: f64 = 20.0;
/// With whole packets, a computed increase is reused for this time while the window stays the same
/// (Linux: a 32nd of a second).
const REUSE_INTERVAL: Duration = Duration::from_micros(31_250);
/// Round trips in this time after a cut do not count for the minimum, because the queue is not
/// empty.
const SETTLE_TIME: Duration = Duration::from_secs(1);

/// The controller `cubic`.
#[derive(Debug)]
pub struct Cubic {
    window: Window,
    hystart: Option<HyStart>,
    /// Whether the Reno-friendly window follows the RFC exactly.
    exact: bool,
    /// The minimum round trip since the start or the last timeout.
    min_rtt: Option<Duration>,
    /// The window before the last cut, lowered by fast convergence; none before the first loss.
    w_max: Option<f64>,
    /// The window before the last cut.
    cwnd_prior: f64,
    epoch: Option<Epoch>,
    last: Time,
    /// What a cut or collapse replaced, for the case that it is undone (RFC 9438 section 4.9).
    replaced: Option<Replaced>,
}

/// The state beside the window that an undone cut restores.
#[derive(Clone, Copy, Debug)]
struct Replaced {
    w_max: Option<f64>,
    cwnd_prior: f64,
    epoch: Option<Epoch>,
}

/// Congestion avoidance since the last cut.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    start: Time,
    curve: Curve,
    /// The Reno-friendly window (`W_est`).
    reno: f64,
    /// The last computed increase: its time, its window, and the packets to acknowledge for one
    /// more packet.
    found: Option<(Time, f64, f64)>,
}

impl Cubic {
    /// A controller in its first round.
    pub fn new(config: &ControllerConfig, start: &Start) -> Self {
        Self {
            window: Window::new(config, start),
            hystart: Some(HyStart::new(config.now, start.paced)),
            exact: false,
            min_rtt: None,
            w_max: None,
            cwnd_prior: 0.0,
            epoch: None,
            last: config.now,
            replaced: None,
        }
    }

    /// CUBIC that follows section 4.3 of RFC 9438 exactly.
    pub fn exact(config: &ControllerConfig, start: &Start) -> Self {
        Self { exact: true, ..Self::new(config, start) }
    }

    /// CUBIC without HyStart: slow start until a loss.
    pub(crate) fn without_hystart(config: &ControllerConfig, start: &Start) -> Self {
        Self { hystart: None, ..Self::new(config, start) }
    }

    /// CUBIC that continues in congestion avoidance at `window` packets, without a window before a
    /// cut: it grows by at least a twentieth per round trip until a loss. `next` is one past the
    /// highest send index used.
    pub(crate) fn resumed(config: &ControllerConfig, window: f64, next: u64) -> Self {
        let mut cubic = Self::without_hystart(config, &Start::default());
        cubic.window.resume(window, next);
        cubic
    }

    fn on_rtt(&mut self, feedback: &Feedback<'_>) {
        let Some(rtt) = feedback.rtt.map(|rtt| rtt.latest.max(Duration::from_nanos(1))) else {
            return;
        };
        if self.epoch.is_some_and(|epoch| feedback.now.since(epoch.start) < SETTLE_TIME) {
            return;
        }
        let min_rtt = self.min_rtt.map_or(rtt, |min| min.min(rtt));
        self.min_rtt = Some(min_rtt);
        let slow_start = self.window.in_slow_start();
        let pace = self.window.pace().map_or(0, DataRate::bytes_per_sec);
        if let Some(hystart) = self.hystart.as_mut().filter(|_| slow_start) {
            let newest = feedback.largest_acked.unwrap_or(0);
            let (cwnd, next) = (self.window.cwnd, self.window.next);
            let ack = Ack { now: feedback.now, rtt, min_rtt, newest, next, cwnd, pace };
            if hystart.on_ack(&ack) {
                self.window.ssthresh = cwnd;
            }
        }
    }

    fn grow(&mut self, now: Time, acked: f64) {
        let slow_start = self.window.in_slow_start();
        let rest = if slow_start { self.window.slow_start(acked) } else { acked };
        if rest > 0.0 {
            let count = self.acks_for_one_more(now, rest);
            self.window.climb(rest, count);
        }
    }

    /// Number of acknowledged packets for which the window grows by one.
    fn acks_for_one_more(&mut self, now: Time, acked: f64) -> f64 {
        let cwnd = self.window.cwnd;
        let epoch = self.epoch.get_or_insert_with(|| Epoch {
            start: now,
            curve: Curve::new(cwnd, self.w_max.unwrap_or(0.0)),
            reno: cwnd,
            found: None,
        });
        let steep = self.exact && epoch.reno >= self.cwnd_prior;
        epoch.reno += acked / cwnd * if steep { 1.0 } else { ALPHA };
        if let Some((at, window, count)) = epoch.found.filter(|_| self.window.whole)
            && window == cwnd
            && now.since(at) < REUSE_INTERVAL
        {
            return count;
        }
        let ahead = self.min_rtt.unwrap_or(Duration::ZERO);
        let mut target = epoch.curve.at((now.since(epoch.start) + ahead).as_secs_f64());
        if self.window.whole {
            let (flat, rise) = (epoch.curve.w_max, target - epoch.curve.w_max);
            target = flat + rise.abs().floor().copysign(rise);
        }
        let mut count = if target > cwnd { cwnd / (target - cwnd) } else { 100.0 * cwnd };
        if self.w_max.is_none() {
            count = count.min(MAX_ACKS_PER_PACKET_BEFORE_LOSS);
        }
        let reno = self.window.unit(epoch.reno);
        if reno > cwnd {
            count = count.min(cwnd / (reno - cwnd));
        }
        let count = self.window.unit(count).max(MIN_ACKS_PER_PACKET);
        epoch.found = Some((now, cwnd, count));
        count
    }

    /// Keeps what a cut or collapse replaces.
    fn keep(&mut self) {
        let Self { w_max, cwnd_prior, epoch, .. } = *self;
        self.replaced = Some(Replaced { w_max, cwnd_prior, epoch });
    }

    fn restore(&mut self) {
        if let Some(Replaced { w_max, cwnd_prior, epoch }) = self.replaced.take() {
            (self.w_max, self.cwnd_prior, self.epoch) = (w_max, cwnd_prior, epoch);
        }
    }

    /// Records the window before a cut. Fast convergence lowers it when the window is smaller than
    /// at the last cut, to leave room for other flows (RFC 9438 section 4.7).
    fn record_window(&mut self) {
        let cwnd = self.window.cwnd;
        self.cwnd_prior = cwnd;
        let shrunk = self.w_max.is_some_and(|w_max| cwnd < w_max);
        self.w_max = Some(match shrunk {
            true => self.window.unit(cwnd * (1.0 + BETA) / 2.0),
            false => cwnd,
        });
        self.epoch = None;
    }

    /// Resets all state after a timeout (Linux; RFC 9438 section 4.8 also keeps only the
    /// threshold).
    fn reset(&mut self, now: Time) {
        self.w_max = None;
        self.cwnd_prior = 0.0;
        self.epoch = None;
        self.min_rtt = None;
        if let Some(hystart) = &mut self.hystart {
            hystart.restart(now, self.window.next);
        }
    }
}

impl CongestionController for Cubic {
    fn name(&self) -> &'static str {
        "cubic"
    }

    fn needs(&self) -> Signals {
        Signals::of(&[Signal::Rtt, Signal::Losses])
    }

    fn answers_marks(&self) -> bool {
        true
    }

    fn set_mtu(&mut self, mtu: ByteCount) {
        let factor = self.window.set_mtu(mtu);
        self.w_max = self.w_max.map(|packets| packets * factor);
        self.cwnd_prior *= factor;
        // The curve is one of packets: a new one starts at the window.
        self.epoch = self.epoch.filter(|_| factor == 1.0);
    }

    fn on_sent(&mut self, sent: &Sent) {
        self.window.on_sent(sent);
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.on_rtt(feedback);
        let since = feedback.now.since(std::mem::replace(&mut self.last, feedback.now));
        match self.window.on_feedback(feedback) {
            Action::Hold => {}
            // Time in which the flow could not use the window does not count (RFC 9438 section
            // 5.8).
            Action::Unused => {
                if let Some(epoch) = &mut self.epoch {
                    epoch.start += since;
                }
            }
            Action::Grow(acked) => self.grow(feedback.now, acked),
            Action::Cut => {
                self.keep();
                self.record_window();
                self.window.cut(BETA);
            }
            Action::Undo => self.restore(),
            Action::Collapse => {
                self.keep();
                self.window.collapse(BETA);
                self.reset(feedback.now);
            }
        }
    }

    fn cwnd(&self) -> ByteCount {
        self.window.bytes()
    }

    fn ssthresh(&self) -> Option<ByteCount> {
        self.window.ssthresh_bytes()
    }

    fn pacing_rate(&self) -> Option<DataRate> {
        self.window.pace()
    }

    fn send_quantum(&self) -> ByteCount {
        self.window.quantum()
    }

    fn state(&self) -> String {
        self.window.state()
    }
}

#[cfg(test)]
mod tests;

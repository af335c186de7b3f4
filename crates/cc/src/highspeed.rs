//! HighSpeed TCP: RFC 3649. Above 38 packets the window grows by `a(w)` packets per round trip and
//! a loss reduces it by the fraction `b(w)`, so that 10 Gbit/s needs no loss rate below one in ten
//! million.

// These give the same result on every machine; those of the C library do not.
use libm::{exp, log};
use packtrain_units::{ByteCount, DataRate};

use crate::config::{ControllerConfig, Start};
use crate::interface::{CongestionController, Feedback, Sent, Signal, Signals};
use crate::reno::HALF;
use crate::window::{Action, Window};

/// Up to this window it equals Reno (RFC 3649 section 5, `Low_Window`).
const LOW_WINDOW: f64 = 38.0;
/// The window at the loss rate `HIGH_P`.
const HIGH_WINDOW: f64 = 83_000.0;
/// Loss rates at the two windows.
const LOW_P: f64 = 1e-3;
const HIGH_P: f64 = 1e-7;
/// The decrease at the high window.
const HIGH_DECREASE: f64 = 0.1;
/// `a(w)` is recomputed when the window changed by this share.
const RECOMPUTE_SHARE: f64 = 0.005;

/// The decrease `b(w)` of a window of `w` packets (RFC 3649 section 5).
fn decrease(w: f64) -> f64 {
    if w <= LOW_WINDOW {
        return HALF;
    }
    let share = (log(w) - log(LOW_WINDOW)) / (log(HIGH_WINDOW) - log(LOW_WINDOW));
    ((HIGH_DECREASE - HALF) * share + HALF).max(HIGH_DECREASE)
}

/// The increase of a window of `w` packets per round trip: `w^2 p(w) 2 b(w) / (2 - b(w))`, where
/// `p(w)` is the straight line between the two points on logarithmic scales (section 5).
pub(crate) fn increase(w: f64) -> f64 {
    if w <= LOW_WINDOW {
        return 1.0;
    }
    let slope = (log(HIGH_P) - log(LOW_P)) / (log(HIGH_WINDOW) - log(LOW_WINDOW));
    let p = LOW_P * exp(slope * (log(w) - log(LOW_WINDOW)));
    let b = decrease(w);
    (w * w * p * 2.0 * b / (2.0 - b)).max(1.0)
}

/// The controller `highspeed`.
#[derive(Debug)]
pub struct HighSpeed {
    window: Window,
    /// A window and its `a`.
    known: (f64, f64),
}

impl HighSpeed {
    /// A controller in its first round.
    pub fn new(config: &ControllerConfig, start: &Start) -> Self {
        Self { window: Window::new(config, start), known: (LOW_WINDOW, 1.0) }
    }

    fn grow(&mut self, acked: f64) {
        let slow_start = self.window.in_slow_start();
        let rest = if slow_start { self.window.slow_start(acked) } else { acked };
        let w = self.window.cwnd;
        if (w - self.known.0).abs() > RECOMPUTE_SHARE * self.known.0 {
            self.known = (w, increase(w));
        }
        self.window.widen(rest * self.known.1 / w);
    }
}

impl CongestionController for HighSpeed {
    fn name(&self) -> &'static str {
        "highspeed"
    }

    fn needs(&self) -> Signals {
        Signals::of(&[Signal::Losses])
    }

    fn answers_marks(&self) -> bool {
        true
    }

    fn set_mtu(&mut self, mtu: ByteCount) {
        self.window.set_mtu(mtu);
    }

    fn on_sent(&mut self, sent: &Sent) {
        self.window.on_sent(sent);
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        let kept = |window: &Window| 1.0 - decrease(window.cwnd);
        match self.window.on_feedback(feedback) {
            Action::Hold | Action::Unused | Action::Undo => {}
            Action::Grow(acked) => self.grow(acked),
            Action::Cut => self.window.cut(kept(&self.window)),
            Action::Collapse => self.window.collapse(kept(&self.window)),
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

//! Reno: RFC 5681, counting bytes (RFC 3465).
//!
//! In slow start each acknowledged packet adds one, whatever number of acknowledgements covers it,
//! as in Linux; RFC 3465's limit of two per message would starve a feedback that reports many
//! packets at once. With one acknowledgement per packet this equals ns-2. `reno:acks` counts
//! acknowledgements instead, as TCP did earlier and as the law of Mathis et al. assumes.

use packtrain_units::{ByteCount, DataRate};

use crate::config::{ControllerConfig, Start};
use crate::interface::{CongestionController, Feedback, Sent, Signal, Signals};
use crate::window::{Action, Window};

/// The multiplicative decrease.
pub(crate) const HALF: f64 = 0.5;

/// The controller `reno`.
#[derive(Debug)]
pub struct Reno {
    window: Window,
    /// Whether an acknowledgement counts as one packet, however many it covers.
    by_acks: bool,
}

impl Reno {
    /// A controller in its first round.
    pub fn new(config: &ControllerConfig, start: &Start) -> Self {
        Self { window: Window::new(config, start), by_acks: false }
    }

    /// Counts acknowledgements, not bytes: for a feedback with a call for each.
    pub(crate) fn by_acks(config: &ControllerConfig, start: &Start) -> Self {
        Self { by_acks: true, ..Self::new(config, start) }
    }
}

/// Slow start, then one packet more for each acknowledged window (RFC 5681 equation 3).
pub(crate) fn grow(window: &mut Window, acked: f64) {
    let rest = if window.in_slow_start() { window.slow_start(acked) } else { acked };
    window.climb(rest, window.cwnd);
}

impl CongestionController for Reno {
    fn name(&self) -> &'static str {
        "reno"
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
        match self.window.on_feedback(feedback) {
            Action::Hold | Action::Unused | Action::Undo => {}
            Action::Grow(_) if self.by_acks => grow(&mut self.window, 1.0),
            Action::Grow(acked) => grow(&mut self.window, acked),
            Action::Cut => self.window.cut(HALF),
            Action::Collapse => self.window.collapse(HALF),
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

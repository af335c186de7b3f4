//! Scalable TCP: Kelly, "Scalable TCP: improving performance in highspeed wide area networks",
//! 2003. Each acknowledged packet adds a hundredth, a loss removes an eighth: the time between two
//! losses does not depend on the rate. Up to the legacy window it equals Reno.

use packtrain_units::{ByteCount, DataRate};

use crate::config::{ControllerConfig, Start};
use crate::interface::{CongestionController, Feedback, Sent, Signal, Signals};
use crate::reno::{self, HALF};
use crate::window::{Action, Window};

/// Increase per acknowledged packet.
const A: f64 = 0.01;
/// Decrease at a loss.
const B: f64 = 0.125;
/// Up to this window it equals Reno, in packets.
const LEGACY: f64 = 16.0;

/// The controller `scalable`.
#[derive(Debug)]
pub struct Scalable {
    window: Window,
}

impl Scalable {
    /// A controller in its first round.
    pub fn new(config: &ControllerConfig, start: &Start) -> Self {
        Self { window: Window::new(config, start) }
    }

    fn grow(&mut self, acked: f64) {
        if self.window.cwnd <= LEGACY {
            return reno::grow(&mut self.window, acked);
        }
        let slow_start = self.window.in_slow_start();
        let rest = if slow_start { self.window.slow_start(acked) } else { acked };
        self.window.widen(A * rest);
    }

    fn kept(&self) -> f64 {
        if self.window.cwnd <= LEGACY { HALF } else { 1.0 - B }
    }
}

impl CongestionController for Scalable {
    fn name(&self) -> &'static str {
        "scalable"
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
            Action::Grow(acked) => self.grow(acked),
            Action::Cut => self.window.cut(self.kept()),
            Action::Collapse => self.window.collapse(self.kept()),
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

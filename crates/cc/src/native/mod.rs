//! The controller `native`.

use packtrain_units::{ByteCount, DataRate};

use crate::interface::{CongestionController, Feedback, Sent};
use crate::registry::ControllerConfig;

/// The controller `native`.
#[derive(Debug)]
pub struct Native {
    mtu: ByteCount,
}

impl Native {
    /// A controller in its first round.
    pub fn new(config: &ControllerConfig) -> Self {
        Self { mtu: config.mtu }
    }
}

impl CongestionController for Native {
    fn name(&self) -> &'static str {
        "native"
    }
    fn on_sent(&mut self, _sent: &Sent) {}
    fn on_feedback(&mut self, _feedback: &Feedback<'_>) {}
    fn cwnd(&self) -> ByteCount {
        ByteCount(self.mtu.get() * 1000)
    }
    fn pacing_rate(&self) -> Option<DataRate> {
        None
    }
    fn send_quantum(&self) -> ByteCount {
        ByteCount(self.mtu.get() * 44)
    }
}

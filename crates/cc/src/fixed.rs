//! A fixed rate: for tests, and for paths with reserved capacity.

use packtrain_units::{ByteCount, DataRate, Duration};

use crate::interface::{CongestionController, Feedback, Sent};
use crate::pacing::quantum;

/// Sends at a given wire rate whatever the path does. Only the circuit breaker overrides it.
#[derive(Debug)]
pub struct Fixed {
    rate: DataRate,
    mtu: ByteCount,
    rtt: Duration,
}

impl Fixed {
    /// A controller that sends packets of `mtu` bytes at `rate`.
    pub fn new(rate: DataRate, mtu: ByteCount) -> Self {
        Self { rate, mtu, rtt: Duration::from_millis(100) }
    }
}

impl CongestionController for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn set_mtu(&mut self, mtu: ByteCount) {
        self.mtu = mtu;
    }

    fn on_sent(&mut self, _sent: &Sent) {}

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        if let Some(rtt) = feedback.rtt {
            self.rtt = rtt.smoothed;
        }
    }

    /// Wide enough never to limit while feedback arrives: three round trips and 200 ms.
    fn cwnd(&self) -> ByteCount {
        let span = self.rtt * 3 + Duration::from_millis(200);
        self.rate.bytes_in(span) + ByteCount(self.mtu.get() * 64)
    }

    fn paces_itself(&self) -> bool {
        true
    }

    fn pacing_rate(&self) -> Option<DataRate> {
        Some(self.rate)
    }

    fn send_quantum(&self) -> ByteCount {
        quantum(self.rate, self.mtu)
    }

    fn state(&self) -> String {
        format!("{}", self.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_never_binds_before_the_rate() {
        let fixed = Fixed::new(DataRate::from_mbps(800), ByteCount(1472));
        assert!(fixed.cwnd() > fixed.pacing_rate().unwrap().bytes_in(Duration::from_millis(100)));
        assert_eq!(fixed.send_quantum(), ByteCount(16 * 1472));
    }
}

//! Slow start (III.D): only at the beginning, no time between packets, and a window of what was
//! acknowledged so far beside the first one. It ends with the first loss report, delay warning or
//! timeout.

use super::variant::Variant;

/// The first window (III.D).
const FIRST_WINDOW: f64 = 2.0;
/// UDT4's.
const UDT4_FIRST_WINDOW: f64 = 16.0;

/// A flow that has not met its limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlowStart {
    variant: Variant,
    acked: u64,
}

impl SlowStart {
    pub(super) fn new(variant: Variant) -> Self {
        Self { variant, acked: 0 }
    }

    pub(super) fn on_acked(&mut self, packets: u64) {
        self.acked = self.acked.saturating_add(packets);
    }

    /// Packets.
    pub(super) fn window(&self) -> f64 {
        let first = match self.variant {
            Variant::Udt4 => UDT4_FIRST_WINDOW,
            _ => FIRST_WINDOW,
        };
        first + self.acked as f64
    }
}

/// The rate after it: that of arrival; where the receiver has not told one, the window in the
/// time that it takes to be acknowledged.
pub(super) fn exit_rate(arrival: Option<f64>, window: f64, wait: f64) -> f64 {
    arrival.filter(|rate| *rate > 0.0).unwrap_or(window / wait)
}

//! Slow start (III.D), at the beginning only: no time between packets, and a window of the packets
//! acknowledged so far plus the first one. It ends with the first loss report, delay warning or
//! timeout.

use super::variant::Variant;

/// The first window, in packets (III.D).
const FIRST_WINDOW: f64 = 2.0;
/// UDT4's.
const UDT4_FIRST_WINDOW: f64 = 16.0;
/// Four times what the median filter of the arrival rate needs (III.B, N0 = 16).
const FIRST_PACKETS: u64 = 64;

/// A flow in slow start.
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

    /// Whether a loss ends it. A loss among the very first packets, before the receiver can report
    /// an arrival rate, does not: the flow would continue with a few packets per round trip and an
    /// unknown capacity.
    pub(super) fn ends_by_loss(&self, arrival: Option<f64>) -> bool {
        arrival.is_some() || self.acked >= FIRST_PACKETS
    }

    /// The window in packets.
    pub(super) fn window(&self) -> f64 {
        let first = match self.variant {
            Variant::Udt4 => UDT4_FIRST_WINDOW,
            _ => FIRST_WINDOW,
        };
        first + self.acked as f64
    }
}

/// The rate after it: the arrival rate; without one, the window divided by the time that its
/// acknowledgement takes.
pub(super) fn exit_rate(arrival: Option<f64>, window: f64, wait: f64) -> f64 {
    arrival.filter(|rate| *rate > 0.0).unwrap_or(window / wait)
}

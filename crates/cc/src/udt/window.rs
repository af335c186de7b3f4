//! The window of unacknowledged packets: formula (1).

use super::SYN_SECONDS;
use super::average::{ALPHA, Average};
use super::variant::Variant;

/// Minimum window (the start in III.D): a flow of a few packets per second still needs a packet in
/// flight to get feedback.
const MIN_WINDOW: f64 = 2.0;
/// Packets that UDT4 adds to the product (draft-gg-udt-03 section 6).
const UDT4_EXTRA: f64 = 16.0;
/// The assumed round trip before a measurement: ten SYN (draft-gg-udt-03 section 3).
const FIRST_RTT: f64 = 10.0 * SYN_SECONDS;

/// W, in packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    variant: Variant,
    packets: f64,
    max: f64,
    /// UDT4 averages the arrival rate instead of the window.
    arrival: Average,
    /// Seconds, smoothed by the feedback.
    rtt: Option<f64>,
}

impl Window {
    /// Creates a window of at most `max` packets; `rtt` is a round trip known beforehand, in
    /// seconds.
    pub(super) fn new(variant: Variant, max: f64, rtt: Option<f64>) -> Self {
        Self { variant, packets: MIN_WINDOW, max, arrival: Average::default(), rtt }
    }

    pub(super) fn packets(&self) -> f64 {
        self.packets
    }

    /// Seconds until a packet is acknowledged.
    pub(super) fn wait(&self) -> f64 {
        self.rtt.unwrap_or(FIRST_RTT) + SYN_SECONDS
    }

    /// Seconds in which a whole window passes: the wait; but where the round trip is shorter than a
    /// SYN, the round trip, because then the timer and not the path makes the pause.
    pub(super) fn passage(&self) -> f64 {
        match self.rtt {
            Some(rtt) if rtt < SYN_SECONDS => rtt.max(1e-6),
            _ => self.wait(),
        }
    }

    pub(super) fn on_rtt(&mut self, seconds: f64) {
        self.rtt = Some(seconds);
    }

    /// Sets the window during or at the end of slow start.
    pub(super) fn set(&mut self, packets: f64) {
        self.packets = packets.clamp(MIN_WINDOW, self.max);
    }

    /// Applies (1) for an acknowledgement with an arrival rate above zero.
    pub(super) fn on_arrival(&mut self, rate: f64) {
        let packets = match self.variant {
            Variant::Udt4 => {
                self.arrival.add(rate);
                self.arrival.get().unwrap_or(rate) * self.wait() + UDT4_EXTRA
            }
            _ => self.packets * ALPHA + rate * self.wait() * (1.0 - ALPHA),
        };
        // The agent of 2003 kept whole packets, rounded up.
        self.set(if self.variant == Variant::Ns2 { packets.ceil() } else { packets });
    }
}

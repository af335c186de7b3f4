//! The window of packets that may be on their way unacknowledged: (1).

use super::SYN_SECONDS;
use super::average::{ALPHA, Average};
use super::variant::Variant;

/// The window never falls below this (III.D starts there): a flow of a few packets a second still
/// needs one to be told of.
const LEAST: f64 = 2.0;
/// Packets that UDT4 allows beyond the product (draft-gg-udt-03 section 6).
const UDT4_EXTRA: f64 = 16.0;
/// The round trip before one was measured: ten SYN (draft-gg-udt-03 section 3).
const FIRST_RTT: f64 = 10.0 * SYN_SECONDS;

/// W, in packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    variant: Variant,
    packets: f64,
    most: f64,
    /// UDT4 averages the arrival rate instead of the window.
    arrival: Average,
    /// Seconds, smoothed by the feedback.
    rtt: Option<f64>,
}

impl Window {
    /// At most `most` packets; a round trip known beforehand may be given.
    pub(super) fn new(variant: Variant, most: f64, rtt: Option<f64>) -> Self {
        Self { variant, packets: LEAST, most, arrival: Average::default(), rtt }
    }

    pub(super) fn packets(&self) -> f64 {
        self.packets
    }

    /// Seconds that a packet waits for its acknowledgement.
    pub(super) fn wait(&self) -> f64 {
        self.rtt.unwrap_or(FIRST_RTT) + SYN_SECONDS
    }

    /// Seconds in which a whole window passes: the wait, but where the round trip is shorter than
    /// a SYN, it is the timer that makes the pause and not the path.
    pub(super) fn passage(&self) -> f64 {
        match self.rtt {
            Some(rtt) if rtt < SYN_SECONDS => rtt.max(1e-6),
            _ => self.wait(),
        }
    }

    pub(super) fn on_rtt(&mut self, seconds: f64) {
        self.rtt = Some(seconds);
    }

    /// Slow start, or its end, says how wide it is.
    pub(super) fn set(&mut self, packets: f64) {
        self.packets = packets.clamp(LEAST, self.most);
    }

    /// (1), when an acknowledgement gives an arrival rate above zero.
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

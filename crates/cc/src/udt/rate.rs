//! The growth of the rate in a SYN: formulas (2) to (4), and (5), which applies them.
//!
//! Rates are packets per second. The paper's text gives the available bandwidth in bytes per
//! second; its jump in fairness at 100 Mbit/s (table I) requires bits, which the published programs
//! use.

use super::SYN_SECONDS;
use super::variant::Variant;

/// Beta of (3) and (4).
const BETA: f64 = 1.5e-6;
/// The value of the agent of 2003 where the bandwidth is B - C.
const BETA_NS2: f64 = 1.5e-5;
/// After a cut by a ninth, a ninth of the capacity is free: (3).
const SHARE: f64 = 1.0 / 9.0;
/// UDT4's minimum increase, in packets per SYN.
const MIN_INCREASE_UDT4: f64 = 0.01;

/// The increase in a SYN without much loss.
#[derive(Clone, Copy, Debug)]
pub(super) struct Increase {
    pub(super) variant: Variant,
    /// Bytes of a packet, with IP and UDP headers: the paper's MTU.
    pub(super) mtu: f64,
}

impl Increase {
    /// Packets per SYN, for the capacity B, the rate C, and the rate D before the last cut (zero if
    /// there was none). Zero is an unknown capacity: then (2) applies.
    pub(super) fn packets(&self, capacity: f64, rate: f64, before_cut: f64) -> f64 {
        let min = match self.variant {
            Variant::Udt4 => MIN_INCREASE_UDT4,
            _ => 1.0 / self.mtu,
        };
        let headroom = capacity - rate;
        let (free, beta) = match self.variant {
            Variant::Paper if headroom <= 0.0 => return min,
            Variant::Paper if rate < before_cut => (capacity * SHARE, BETA),
            Variant::Paper | Variant::Grid => (headroom, BETA),
            // The order of (2) and (3) is reversed.
            Variant::Ns2 if rate < before_cut => (capacity * SHARE, BETA),
            Variant::Ns2 => (headroom, BETA_NS2),
            Variant::Udt4 if rate < before_cut => (headroom.min(capacity * SHARE), BETA),
            Variant::Udt4 => (headroom, BETA),
        };
        if free <= 0.0 {
            return min;
        }
        let bits = free * self.mtu * 8.0;
        (10f64.powf(bits.log10().ceil()) * beta / self.mtu).max(min)
    }
}

/// (5) for the rate 1 / I: `packets` more in each SYN.
pub(super) fn raised(rate: f64, packets: f64) -> f64 {
    rate + packets / SYN_SECONDS
}

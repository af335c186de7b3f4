//! How much the rate grows in a SYN: formulas (2) to (4), and (5) that applies them.
//!
//! Rates are packets a second. The paper's text gives the available bandwidth in bytes a second;
//! its jump in fairness at 100 Mbit/s (table I) needs bits, which the published programs use.

use super::SYN_SECONDS;
use super::variant::Variant;

/// Beta of (3) and (4).
const BETA: f64 = 1.5e-6;
/// What the agent of 2003 had in its place where the bandwidth is B - C.
const BETA_NS2: f64 = 1.5e-5;
/// After a cut by a ninth, a ninth of the capacity is free: (3).
const SHARE: f64 = 1.0 / 9.0;
/// UDT4's least increase, in packets a SYN.
const LEAST_UDT4: f64 = 0.01;

/// What a SYN without much loss adds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Increase {
    pub(super) variant: Variant,
    /// Bytes of a packet, IP and UDP headers included: the paper's MTU.
    pub(super) mtu: f64,
}

impl Increase {
    /// Packets a SYN, for the capacity B, the rate C, and the rate D before the last cut (zero
    /// if there was none). Zero is a capacity that nothing is known of: then (2) holds.
    pub(super) fn packets(&self, capacity: f64, rate: f64, before_cut: f64) -> f64 {
        let least = match self.variant {
            Variant::Udt4 => LEAST_UDT4,
            _ => 1.0 / self.mtu,
        };
        let headroom = capacity - rate;
        let (free, beta) = match self.variant {
            Variant::Paper if headroom <= 0.0 => return least,
            Variant::Paper if rate < before_cut => (capacity * SHARE, BETA),
            Variant::Paper | Variant::Grid => (headroom, BETA),
            // The order of (2) and (3) is turned round.
            Variant::Ns2 if rate < before_cut => (capacity * SHARE, BETA),
            Variant::Ns2 => (headroom, BETA_NS2),
            Variant::Udt4 if rate < before_cut => (headroom.min(capacity * SHARE), BETA),
            Variant::Udt4 => (headroom, BETA),
        };
        if free <= 0.0 {
            return least;
        }
        let bits = free * self.mtu * 8.0;
        (10f64.powf(bits.log10().ceil()) * beta / self.mtu).max(least)
    }
}

/// (5) for the rate 1 / I: `packets` more in each SYN.
pub(super) fn raised(rate: f64, packets: f64) -> f64 {
    rate + packets / SYN_SECONDS
}

//! Kola and Vernon: derive the number of flows from the backlog at the bottleneck.

use packtrain_units::{DataRate, Duration};

use super::altman::streams_for_share;

/// Bits of a packet of the backlog: 1500 bytes. With C in bit per ms this is the paper's 12 (kbit).
const PACKET_BITS: f64 = 12_000.0;

/// Measurements at the bottleneck and at the sender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backlog {
    /// C: the bottleneck's capacity.
    pub capacity: DataRate,
    /// S: the sending rate of one flow.
    pub rate: DataRate,
    /// d: the mean round trip less the minimum.
    pub delay: Duration,
}

impl Backlog {
    /// b = S d, in packets (step 1).
    pub fn of_flow(&self) -> f64 {
        self.rate.as_bps() as f64 / PACKET_BITS * self.delay.as_secs_f64()
    }

    /// B = d C / 12, in packets (step 2). The paper prints d 12 / C, which falls as the capacity
    /// grows and is not a number of packets.
    pub fn total(&self) -> f64 {
        self.delay.as_secs_f64() * self.capacity.as_bps() as f64 / PACKET_BITS
    }

    /// U = 2 B / (2 B + 1) (equation 8).
    pub fn utilisation(&self) -> f64 {
        let twice = 2.0 * self.total();
        twice / (twice + 1.0)
    }

    /// n = C U / (12 S), the equivalent flows that share the bottleneck (equation 9, whose S is
    /// in packets while 12 turns C into packets). Infinite if the flow sends nothing.
    pub fn flows(&self) -> f64 {
        self.capacity.as_bps() as f64 * self.utilisation() / self.rate.as_bps() as f64
    }
}

/// n_add = n_opt - n: the number of streams to open beside `flows` others, for the share `u` of the
/// capacity by Altman's formula (equation 10). Never below zero.
pub fn streams_to_add(flows: f64, u: f64, beta: f64) -> f64 {
    (streams_for_share(u, beta) - flows).max(0.0)
}

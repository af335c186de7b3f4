//! What controllers are built with.

use packtrain_units::{ByteCount, DataRate, Duration, Time};

/// What every controller is given at construction.
#[derive(Clone, Copy, Debug)]
pub struct ControllerConfig {
    /// Wire bytes of a full datagram (UDP payload).
    pub mtu: ByteCount,
    /// Seed of its randomness.
    pub seed: u64,
    /// When it starts.
    pub now: Time,
    /// It must not exceed this rate, if one is given.
    pub ceiling: Option<DataRate>,
    /// The round trip known beforehand, from the control connection.
    pub rtt: Option<Duration>,
}

/// How a sender starts, where that is not the sender of the native transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The first window, in packets (RFC 6928: 10).
    pub initial_window: u32,
    /// Whether the sender spaces its packets at the controller's pace. The loss-based controllers
    /// do without, but read acknowledgements otherwise.
    pub paced: bool,
    /// Whether windows are counted in whole packets, as Linux does it: acknowledgements add up
    /// until they make a packet, and what they had added up to is forgotten at a cut. Half a
    /// packet a cut is 4 % of the throughput at a window of twelve.
    pub whole_packets: bool,
}

impl Default for Start {
    /// Ten packets, paced, and fractions count.
    fn default() -> Self {
        Self { initial_window: 10, paced: true, whole_packets: false }
    }
}

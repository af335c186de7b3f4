//! Configuration of controllers.

use packtrain_units::{ByteCount, DataRate, Duration, Time};

/// Arguments of every controller at construction.
#[derive(Clone, Copy, Debug)]
pub struct ControllerConfig {
    /// Wire bytes of a full datagram (UDP payload) at the start; see
    /// [`set_mtu`](crate::CongestionController::set_mtu).
    pub mtu: ByteCount,
    /// Seed of its randomness.
    pub seed: u64,
    /// Its start time.
    pub now: Time,
    /// The maximum rate.
    pub ceiling: Option<DataRate>,
    /// The round trip measured by the control connection.
    pub rtt: Option<Duration>,
}

/// The start of a sender other than the native transport's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The initial window, in packets (RFC 6928: 10).
    pub initial_window: u32,
    /// Whether the sender paces packets at the controller's pace. The loss-based controllers also
    /// work without pacing, but then interpret acknowledgements differently.
    pub paced: bool,
    /// Whether windows are counted in whole packets, as in Linux: acknowledgements add up until
    /// they make a packet, and the remainder is discarded at a cut. Half a packet per cut is 4 % of
    /// the throughput at a window of twelve.
    pub whole_packets: bool,
}

impl Default for Start {
    /// Ten packets, paced, with fractional windows.
    fn default() -> Self {
        Self { initial_window: 10, paced: true, whole_packets: false }
    }
}

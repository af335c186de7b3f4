//! Counters of a network thread, in addition to those of the engine.

use packtrain_proto::FlowStats;
use packtrain_units::{ByteCount, Duration, Time};

/// Counters of the sockets and the thread of one end of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IoStats {
    /// Successful send calls.
    pub sends: u64,
    /// Datagrams sent by these calls.
    pub datagrams_out: u64,
    /// How many times the send buffer was full.
    pub blocked: u64,
    /// Batches that the system refused: no route, a firewall rule, a full device queue.
    pub refused: u64,
    /// Datagrams larger than the MTU of the first link.
    pub too_big: u64,
    /// Size of the smallest of them.
    pub smallest_refused: Option<ByteCount>,
    /// Receive calls that returned data.
    pub receives: u64,
    /// Messages (coalesced batches) that they returned.
    pub batches_in: u64,
    /// Datagrams that they returned.
    pub datagrams_in: u64,
    /// Errors of receive calls; most are delayed errors of a send.
    pub receive_errors: u64,
    /// Datagrams that this host dropped before they were read. A dropped batch counts with the
    /// usual number of datagrams per batch.
    pub drops: u64,
    /// How many times the thread slept.
    pub sleeps: u64,
    /// Loss windows that were classified on a separate thread.
    pub judged: u64,
    /// Processor time of that thread, including its start.
    pub judge_cpu: Duration,
    /// Whether the kernel segments batches for every lane.
    pub segmentation: bool,
    /// Whether the kernel coalesces arrivals for every lane.
    pub coalescing: bool,
}

/// The state of one end of a flow at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowSnapshot {
    /// The time.
    pub at: Time,
    /// The engine's counters and gauges.
    pub flow: FlowStats,
    /// The counters of the sockets and the thread.
    pub io: IoStats,
    /// Processor time of the thread.
    pub cpu: Duration,
}

impl FlowSnapshot {
    pub(super) fn empty(at: Time) -> Self {
        Self { at, flow: FlowStats::default(), io: IoStats::default(), cpu: Duration::ZERO }
    }
}

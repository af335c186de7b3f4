//! What a network thread counts beside the engine.

use packtrain_proto::FlowStats;
use packtrain_units::{ByteCount, Duration, Time};

/// Counters of the sockets and the thread of one end of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IoStats {
    /// Send calls that the kernel took.
    pub sends: u64,
    /// Datagrams that left in them.
    pub datagrams_out: u64,
    /// Times the send buffer was full.
    pub blocked: u64,
    /// Batches that the system refused: no route, a firewall's rule, a full device queue.
    pub refused: u64,
    /// Datagrams larger than the first link.
    pub too_big: u64,
    /// The smallest of those.
    pub smallest_refused: Option<ByteCount>,
    /// Receive calls that brought something.
    pub receives: u64,
    /// Messages (coalesced batches) that came in them.
    pub batches_in: u64,
    /// Datagrams that came in them.
    pub datagrams_in: u64,
    /// Errors of receive calls, most of them late word of a send.
    pub receive_errors: u64,
    /// Datagrams that this host dropped before we read them, batches taken for their usual size.
    pub drops: u64,
    /// Times the thread slept.
    pub sleeps: u64,
    /// Windows of losses whose cause was named, on a thread beside this one.
    pub judged: u64,
    /// Processor time of that thread, its start with it.
    pub judge_cpu: Duration,
    /// Whether the kernel cuts batches into datagrams for every lane.
    pub segmentation: bool,
    /// Whether it coalesces arrivals for every lane.
    pub coalescing: bool,
}

/// The state of a flow's end at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowSnapshot {
    /// When.
    pub at: Time,
    /// The engine's counters and gauges.
    pub flow: FlowStats,
    /// The thread's.
    pub io: IoStats,
    /// Processor time that the thread has used.
    pub cpu: Duration,
}

impl FlowSnapshot {
    pub(super) fn empty(at: Time) -> Self {
        Self { at, flow: FlowStats::default(), io: IoStats::default(), cpu: Duration::ZERO }
    }
}

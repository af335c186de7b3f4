//! What a simulation found. All serialise to one JSON object a line.

use packtrain_units::{ByteCount, DataRate, Duration, Time};
use serde::Serialize;

/// Everything a run found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// Name of the scenario.
    pub scenario: String,
    /// The seed it ran with.
    pub seed: u64,
    /// A digest of everything that happened, the same for the same scenario and seed, whether by
    /// trains or by packets.
    pub trace_hash: String,
    /// Virtual time.
    pub duration: Duration,
    /// Packets offered to links, each hop counted.
    pub packet_hops: u64,
    /// Events taken from queues: what the run cost.
    pub events: u64,
    /// A row a flow, in the order of the scenario (short connections summed up in one row).
    pub flows: Vec<FlowOutcome>,
    /// A row a link, in the order of the scenario.
    pub links: Vec<LinkOutcome>,
    /// Whether flows go on in others, at depots.
    pub sessions: bool,
    /// Curves.
    pub samples: Vec<Sample>,
    /// How long the queues of the links were at the same instants.
    pub waits: Vec<Wait>,
    /// What happened at the recorded link.
    pub record: Vec<Recorded>,
}

/// What became of a flow, counted after the warm-up unless said otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FlowOutcome {
    /// Its name.
    pub name: String,
    /// Its controller, or the kind of cross traffic.
    pub cc: String,
    /// Useful bytes delivered, each once, by time.
    pub goodput: DataRate,
    /// Useful bytes delivered, each once.
    pub delivered: ByteCount,
    /// Packets sent, repeats included.
    pub sent_packets: u64,
    /// Of an engine: packets with payload that arrived, repeats included.
    pub received_packets: u64,
    /// Of an engine: those packets with all headers, by time, as if all were full.
    pub throughput: DataRate,
    /// Payload bytes sent again.
    pub retransmitted: ByteCount,
    /// Packets that the network dropped.
    pub dropped_packets: u64,
    /// Packets that the receiving host dropped.
    pub host_dropped_packets: u64,
    /// Rounds in which the controller was told of a loss.
    pub loss_events: u64,
    /// Timeouts of its sender.
    pub timeouts: u64,
    /// Mean time its packets waited in queues on the way out, over all links together.
    pub queueing_mean: Duration,
    /// 99th percentile of that time at the link where they waited longest on average.
    pub queueing_p99: Duration,
    /// Mean of the round trips measured.
    pub rtt_mean: Duration,
    /// Of an engine, at the end: the path's capacity as its feedback measured it.
    pub capacity: Option<DataRate>,
    /// Of an engine, at the end: the rate of arrival as its feedback measured it.
    pub arrival_rate: Option<DataRate>,
    /// When it had delivered all it had to, from its start; not for flows without end.
    pub completed_in: Option<Duration>,
    /// Short connections: how many completed, mean and 99th percentile of their times.
    pub completed: Option<(u64, Duration, Duration)>,
}

/// What a link did, over the whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LinkOutcome {
    /// Its name.
    pub name: String,
    /// Packets offered.
    pub offered: u64,
    /// Bytes transmitted until the end; what waits then is not counted.
    pub transmitted: ByteCount,
    /// Bytes transmitted after the warm-up, by what the link could have.
    pub utilisation: f64,
    /// Packets dropped, by cause: overflow, early, random, other.
    pub dropped: [u64; 4],
}

/// A point of a flow's curves.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// When.
    pub at: Time,
    /// Index of the flow.
    pub flow: usize,
    /// Congestion window.
    pub cwnd: ByteCount,
    /// Bytes in flight.
    pub in_flight: ByteCount,
    /// Payload bytes acknowledged in order, of a TCP: its sequence number over time.
    pub acked: Option<ByteCount>,
    /// Pacing rate, if it paces.
    pub pacing_rate: Option<DataRate>,
    /// Useful bytes delivered since the last sample, by time.
    pub goodput: DataRate,
    /// The newest round trip measured.
    pub rtt: Duration,
    /// UDT's receiver: tests of the trend of the delay so far, and those that found it rising.
    pub trend: [u64; 2],
}

/// How long a packet would have waited at a link.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Wait {
    /// When.
    pub at: Time,
    /// Index of the link.
    pub link: usize,
    /// Until it would have been transmitted.
    pub wait: Duration,
}

/// What happened to one packet at the recorded link.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Recorded {
    /// When it was offered.
    pub offered: Time,
    /// Its bytes.
    pub size: u32,
    /// Index of its flow.
    pub flow: usize,
    /// When it left the far end; none: dropped.
    pub left: Option<Time>,
}

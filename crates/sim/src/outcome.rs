//! Results of a simulation. All serialise to one JSON object per line.

use packtrain_units::{ByteCount, DataRate, Duration, Time};
use serde::Serialize;

/// All results of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// Name of the scenario.
    pub scenario: String,
    /// The seed it ran with.
    pub seed: u64,
    /// A digest of all events, the same for the same scenario and seed, whether simulated by trains
    /// or by packets.
    pub trace_hash: String,
    /// Virtual time.
    pub duration: Duration,
    /// Packets offered to links, counted at each hop.
    pub packet_hops: u64,
    /// Events processed: the cost of the run.
    pub events: u64,
    /// One row per flow, in the order of the scenario (short connections summed up in one row).
    pub flows: Vec<FlowOutcome>,
    /// One row per link, in the order of the scenario.
    pub links: Vec<LinkOutcome>,
    /// Whether flows continue in others, at depots.
    pub sessions: bool,
    /// Curves.
    pub samples: Vec<Sample>,
    /// Waiting times of the links at the same instants.
    pub waits: Vec<Wait>,
    /// The packets at the recorded link.
    pub record: Vec<Recorded>,
}

/// Results of a flow, counted after the warm-up unless noted otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FlowOutcome {
    /// Its name.
    pub name: String,
    /// Its controller, or the kind of cross traffic.
    pub cc: String,
    /// Useful bytes delivered, each once, per time.
    pub goodput: DataRate,
    /// Useful bytes delivered, each once.
    pub delivered: ByteCount,
    /// Packets sent, retransmissions included.
    pub sent_packets: u64,
    /// Engines: packets with payload that arrived, retransmissions included.
    pub received_packets: u64,
    /// Engines: those packets with all headers, per time, as if all were full.
    pub throughput: DataRate,
    /// Payload bytes retransmitted.
    pub retransmitted: ByteCount,
    /// Packets that the network dropped.
    pub dropped_packets: u64,
    /// Packets that the receiving host dropped.
    pub host_dropped_packets: u64,
    /// Rounds in which a loss was reported to the controller.
    pub loss_events: u64,
    /// Retransmission timeouts of its sender.
    pub timeouts: u64,
    /// Mean time of its packets in queues on the forward path, over all links together.
    pub queueing_mean: Duration,
    /// 99th percentile of that time at the link with the longest mean.
    pub queueing_p99: Duration,
    /// Mean of the round-trip samples.
    pub rtt_mean: Duration,
    /// Engines, at the end: the path's capacity as measured by the feedback.
    pub capacity: Option<DataRate>,
    /// Engines, at the end: the arrival rate as measured by the feedback.
    pub arrival_rate: Option<DataRate>,
    /// Time from its start until all data was delivered; not for endless flows.
    pub completed_in: Option<Duration>,
    /// Short connections: number completed, mean and 99th percentile of their times.
    pub completed: Option<(u64, Duration, Duration)>,
}

/// Results of a link, over the whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LinkOutcome {
    /// Its name.
    pub name: String,
    /// Packets offered.
    pub offered: u64,
    /// Bytes transmitted until the end, without those that still wait.
    pub transmitted: ByteCount,
    /// Bytes transmitted after the warm-up, divided by the link's capacity.
    pub utilisation: f64,
    /// Packets dropped, by cause: overflow, early, random, other.
    pub dropped: [u64; 4],
    /// Packets marked as having experienced congestion instead of being dropped early.
    pub marked: u64,
}

/// A sample of a flow's curves.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Time of the sample.
    pub at: Time,
    /// Index of the flow.
    pub flow: usize,
    /// Congestion window, of a flow that has one.
    pub cwnd: Option<ByteCount>,
    /// Bytes in flight.
    pub in_flight: ByteCount,
    /// TCP: payload bytes acknowledged in order, the sequence number over time.
    pub acked: Option<ByteCount>,
    /// Pacing rate, if it paces.
    pub pacing_rate: Option<DataRate>,
    /// Useful bytes delivered since the last sample, per time.
    pub goodput: DataRate,
    /// The newest round-trip sample, after the first.
    pub rtt: Option<Duration>,
    /// UDT's receiver: trend tests of the delay so far, and those that found it rising.
    pub trend: [u64; 2],
}

/// The waiting time of a packet at a link.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Wait {
    /// Time of the sample.
    pub at: Time,
    /// Index of the link.
    pub link: usize,
    /// Time until the packet would have been transmitted.
    pub wait: Duration,
}

/// One packet at the recorded link.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Recorded {
    /// When it was offered.
    pub offered: Time,
    /// Its bytes.
    pub size: u32,
    /// Index of its flow.
    pub flow: usize,
    /// When it left the other end; none if dropped.
    pub left: Option<Time>,
}

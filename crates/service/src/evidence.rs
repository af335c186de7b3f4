//! Measurements of a transfer, as plain values. They are stored in records and exchanged by the
//! ends.
//!
//! Sizes are in bytes, durations in nanoseconds, rates in bits per second, also in records. Every
//! field may be missing, so that different versions are compatible.

use packtrain_units::{ByteCount, DataRate, Duration};
use serde::{Deserialize, Serialize};

/// Maximum number of kept path intervals.
pub(super) const SAMPLES: usize = 160;
/// Maximum length of a text from the other end, in bytes.
const TEXT: usize = 120;

/// All measurements of one transfer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// Identifies the transfer.
    pub id: String,
    /// The process id of the command.
    pub pid: u32,
    /// Start of the transfer, since 1970.
    pub began: Duration,
    /// Time of this record, since 1970.
    pub written: Duration,
    /// The transfer has ended.
    pub over: bool,
    /// A short description of the request.
    pub what: String,
    /// The request compares and moves nothing (`verify`).
    pub compares: bool,
    /// The measurements.
    pub evidence: Evidence,
}

/// The measurements of both ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Evidence {
    /// Both ends are in one process, so no network is involved.
    pub local: bool,
    /// Time since the start of the command.
    pub elapsed: Duration,
    /// Bytes verified at the target.
    pub bytes: ByteCount,
    /// Number of finished entries.
    pub files: u64,
    /// The sending end.
    pub source: Option<End>,
    /// The receiving end.
    pub sink: Option<End>,
    /// The path between the ends.
    pub path: Option<PathPart>,
    /// Not a transfer, but short tests of each stage.
    pub probed: bool,
}

/// The end that a part describes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PartRole {
    /// The sending end.
    #[default]
    Source,
    /// The receiving end.
    Sink,
}

/// The measurements that one end sends to the other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Part {
    /// The end.
    pub role: PartRole,
    /// Its measurements.
    pub end: End,
    /// The path. Only the source measures it.
    pub path: Option<PathPart>,
}

/// One end of a transfer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct End {
    /// Time since its start.
    pub elapsed: Duration,
    /// Reads (source) or writes (sink) of data.
    pub data: Work,
    /// Hashing.
    pub hash: Work,
    /// Small files that are processed whole: created, written, renamed.
    pub small: Work,
    /// Operations on names: list, open, stat, create, rename.
    pub names: Work,
    /// Syncs.
    pub sync: Work,
    /// Number of threads that read or write.
    pub threads: u64,
    /// Use of the processors.
    pub cpu: Cpu,
    /// The network thread, if there is one.
    pub net: Option<Net>,
    /// Sealing rate of one thread of this machine, with the cipher suite in use.
    pub sealing: Option<DataRate>,
    /// The UDP receive buffers.
    pub buffers: Option<Buffers>,
    /// Sink: how many times its buffer memory was sampled, and how many samples found it full.
    pub looks: u64,
    /// See `looks`.
    pub full: u64,
    /// Sink: time since its last write. At the end of a transfer it is mostly spent on syncs and
    /// names.
    pub rest: Duration,
}

/// Operations of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Work {
    /// Number of operations.
    pub count: u64,
    /// Bytes of all operations.
    pub bytes: ByteCount,
    /// Their duration, summed over all threads.
    pub wall: Duration,
    /// Processor time of the operations.
    pub busy: Duration,
}

/// Use of the processors by one end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cpu {
    /// Number of cores that this process may use.
    pub cores: f64,
    /// Processor time of the process.
    pub used: Duration,
    /// The period of this measurement.
    pub elapsed: Duration,
    /// Quota of the cgroup in cores, if it is limited.
    pub quota: Option<f64>,
    /// Periods of the quota, and the number of periods in which the quota was used up.
    pub periods: u64,
    /// See `periods`.
    pub throttled_periods: u64,
    /// Time for which the process was throttled.
    pub throttled: Duration,
    /// Mean share of the machine's cores that were busy with any process.
    pub machine: f64,
    /// Mean share of the time in which the threads that read or write waited for a core.
    pub data_waited: Option<f64>,
    /// The thread with the highest demand for a processor.
    pub hungriest: Option<HungryThread>,
    /// The thread that sends or receives datagrams.
    pub network: Option<HungryThread>,
}

/// A thread and its demand for a processor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HungryThread {
    /// Its name.
    pub name: String,
    /// Share of the time in which it ran.
    pub ran: f64,
    /// Share of the time in which it was runnable but did not run.
    pub waited: f64,
}

/// A network thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Net {
    /// Its processor time.
    pub cpu: Duration,
    /// Payload that it sent or received.
    pub bytes: ByteCount,
    /// Its age.
    pub elapsed: Duration,
}

/// Receive buffers of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Buffers {
    /// Size of each.
    pub each: ByteCount,
    /// Number of sockets.
    pub sockets: u64,
    /// The system's limit (`net.core.rmem_max`).
    pub limit: Option<ByteCount>,
    /// How much time at the arrival rate the buffers can hold.
    pub covers: Option<Duration>,
    /// Datagrams that were dropped because a buffer was full.
    pub drops: u64,
}

/// The path between the ends, as the source measures it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PathPart {
    /// How the transports connected.
    pub race: Race,
    /// The current transport, or the one that moved most.
    pub transport: String,
    /// Payload moved by datagrams, TCP and the pipe.
    pub by_udp: ByteCount,
    /// See `by_udp`.
    pub by_tcp: ByteCount,
    /// See `by_udp`.
    pub by_pipe: ByteCount,
    /// The pipe uses ssh.
    pub ssh: bool,
    /// The requested rate limit.
    pub asked_rate: Option<DataRate>,
    /// The reasons for which the datagram sender waited, sampled twenty times per second.
    pub waits: Waits,
    /// The reasons for which TCP or the pipe waited.
    pub mover: Waits,
    /// Intervals of a tenth of a second or a round trip: the newest intervals in which the sender
    /// was busy.
    pub samples: Vec<Sample>,
    /// Datagrams with payload: sent; lost; of the lost ones, dropped by the receiving host, or
    /// refused by the receiver; marked by the network (ECN).
    pub sent_packets: u64,
    /// See `sent_packets`.
    pub lost_packets: u64,
    /// See `sent_packets`.
    pub host_drops: u64,
    /// See `sent_packets`.
    pub refused_packets: u64,
    /// See `sent_packets`.
    pub marked_packets: u64,
    /// Minimum round-trip time.
    pub min_rtt: Option<Duration>,
    /// Latest smoothed round-trip time.
    pub srtt: Option<Duration>,
    /// Capacity of the path, from the dispersion of packet trains.
    pub capacity: Option<DataRate>,
    /// Congestion window.
    pub cwnd: ByteCount,
    /// The state of the controller as text.
    pub controller: String,
    /// Current datagram size, and the largest size at the start of the flow.
    pub mtu: ByteCount,
    /// See `mtu`.
    pub mtu_begun: ByteCount,
    /// How many times the size was reduced.
    pub mtu_falls: u64,
    /// The verdict of the loss classifier, if there is one.
    pub loss: Option<LossVerdict>,
    /// Statistics of TCP.
    pub tcp: Option<TcpPart>,
    /// Batches of datagrams that this system refused to send.
    pub refused_sends: u64,
    /// Datagrams that this system refused as too large for the path, including probes.
    pub too_big: u64,
    /// The size of the smallest of them.
    pub smallest_refused: Option<ByteCount>,
    /// How many times the circuit breaker acted.
    pub braked: u64,
    /// The longest time without any arrival while the sender waited for the path, after a first
    /// arrival.
    pub outage: Duration,
}

/// How the transports connected; times are since the start of the race.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Race {
    /// Both ends had UDP sockets, so datagrams were tried.
    pub udp_tried: bool,
    /// TCP was tried.
    pub tcp_tried: bool,
    /// Duration of the race so far.
    pub on_for: Duration,
    /// When authentic datagrams had passed in both directions.
    pub udp_up: Option<Duration>,
    /// When the first TCP stream was connected.
    pub tcp_up: Option<Duration>,
    /// When data was first assigned to the pipe.
    pub piped: Option<Duration>,
}

/// How many samples found a sender waiting, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Waits {
    /// For work: the other end requests nothing, or entries arrive slowly.
    pub work: u64,
    /// For bytes from the disk.
    pub bytes: u64,
    /// For the congestion window or the transport's window.
    pub window: u64,
    /// For the pacer.
    pub pace: u64,
    /// For free buffer at the receiver.
    pub room: u64,
    /// For any message of the receiver.
    pub word: u64,
}

impl Waits {
    /// The sums of both.
    pub fn and(&self, other: &Self) -> Self {
        Self {
            work: self.work.saturating_add(other.work),
            bytes: self.bytes.saturating_add(other.bytes),
            window: self.window.saturating_add(other.window),
            pace: self.pace.saturating_add(other.pace),
            room: self.room.saturating_add(other.room),
            word: self.word.saturating_add(other.word),
        }
    }

    /// The number of samples.
    pub fn total(&self) -> u64 {
        // The values may come from the other end, so the sum saturates.
        [self.work, self.bytes, self.window, self.pace, self.room, self.word]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}

/// One interval of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// Its length.
    pub span: Duration,
    /// Payload sent.
    pub sent: ByteCount,
    /// Payload that arrived.
    pub arrived: ByteCount,
    /// Payload lost on the path, without that dropped by the receiving host.
    pub lost: ByteCount,
    /// Round-trip time above the minimum.
    pub queue: Duration,
}

/// The verdict of the loss classifier.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LossVerdict {
    /// `network`, `cpu`, `hybrid`, `link` or `inconclusive`.
    pub cause: String,
    /// Mean probability that the receiving host lost a packet.
    pub p_cpu: f64,
    /// Share of the classified losses with this cause.
    pub share: f64,
    /// Number of classified lost packets.
    pub lost: u64,
    /// Number of classified windows with losses.
    pub windows: u64,
}

/// Statistics of all TCP streams together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TcpPart {
    /// Number of streams.
    pub streams: u64,
    /// Time with data to send.
    pub busy: Duration,
    /// Time limited by the receiver's window.
    pub receiver_limited: Duration,
    /// Time limited by the send buffer.
    pub send_buffer_limited: Duration,
    /// Data in flight that the receivers' windows allowed at the last sample.
    pub receiver_window: Option<ByteCount>,
    /// Bytes retransmitted.
    pub retransmitted: ByteCount,
    /// Bytes sent.
    pub sent: ByteCount,
    /// The highest delivery rate of one stream.
    pub best_rate: Option<DataRate>,
    /// The congestion control in use.
    pub congestion: String,
}

impl Part {
    /// Truncates a part from the other end to its maximum size.
    pub fn bound(mut self) -> Self {
        let cut = |text: &mut String| {
            let end = text.char_indices().nth(TEXT).map_or(text.len(), |(at, _)| at);
            text.truncate(end);
            text.retain(|c| !c.is_control());
        };
        let cpu = &mut self.end.cpu;
        for thread in [&mut cpu.hungriest, &mut cpu.network].into_iter().flatten() {
            cut(&mut thread.name);
        }
        if let Some(path) = &mut self.path {
            path.samples.truncate(SAMPLES);
            cut(&mut path.transport);
            cut(&mut path.controller);
            if let Some(loss) = &mut path.loss {
                cut(&mut loss.cause);
            }
            if let Some(tcp) = &mut path.tcp {
                cut(&mut tcp.congestion);
            }
        }
        self
    }
}

impl Work {
    /// Time without processor use: time of the disk or the file server.
    pub fn idle(&self) -> Duration {
        self.wall - self.busy
    }

    /// Mean duration of one operation.
    pub fn each(&self) -> Duration {
        if self.count == 0 { Duration::ZERO } else { self.wall / self.count }
    }

    /// The share of the time `elapsed` of `threads` threads.
    pub fn share(of: Duration, elapsed: Duration, threads: u64) -> f64 {
        let all = elapsed.as_secs_f64() * threads.max(1) as f64;
        if all > 0.0 { of.as_secs_f64() / all } else { 0.0 }
    }
}

/// Maximum encoded size of a part, in bytes.
const MAX_PART_BYTES: usize = 64 << 10;

/// Encodes a part for the other end.
pub fn encode(part: &Part) -> Vec<u8> {
    serde_json::to_vec(part).unwrap_or_default()
}

/// Decodes a part of the other end; `None` if it is too long or malformed.
pub fn decode(bytes: &[u8]) -> Option<Part> {
    if bytes.len() > MAX_PART_BYTES {
        return None;
    }
    serde_json::from_slice::<Part>(bytes).ok().map(Part::bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_parts_are_bounded() {
        let mut part = Part { path: Some(Default::default()), ..Part::default() };
        let path = part.path.as_mut().expect("there");
        path.controller = "ä\u{1b}".repeat(500);
        path.samples = vec![Default::default(); 300];
        let heard = decode(&encode(&part)).expect("a part");
        let path = heard.path.expect("there");
        assert!(path.controller.chars().all(|c| c == 'ä') && path.samples.len() == 160);
        assert_eq!(decode(&vec![b' '; MAX_PART_BYTES + 1]), None);
        assert_eq!(decode(b"{}"), Some(Part::default()));
        assert_eq!(decode(b"[]x"), None);
    }
}

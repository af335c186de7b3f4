//! What is measured: plain values, as they stand in a record and go between the ends.
//!
//! Sizes are in bytes, spans in nanoseconds, rates in bits a second, in records too. Every field
//! may be missing, so that ends of different versions understand each other.

use packtrain_units::{ByteCount, DataRate, Duration};
use serde::{Deserialize, Serialize};

/// Intervals of a path that are kept.
pub(super) const SAMPLES: usize = 160;
/// The longest text in a record that came from the other end.
const TEXT: usize = 120;

/// All that is known of one transfer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// Names the transfer.
    pub id: String,
    /// The process that ran it.
    pub pid: u32,
    /// When it began, since 1970.
    pub began: Duration,
    /// When this was written, since 1970.
    pub written: Duration,
    /// It is over.
    pub over: bool,
    /// What was asked for, in a few words.
    pub what: String,
    /// The evidence.
    pub evidence: Evidence,
}

/// What both ends measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Evidence {
    /// Both ends are in one process: nothing goes over a network.
    pub local: bool,
    /// From the start of the command.
    pub elapsed: Duration,
    /// Bytes verified at the target.
    pub bytes: ByteCount,
    /// Entries that are done.
    pub files: u64,
    /// The sending end.
    pub source: Option<End>,
    /// The receiving end.
    pub sink: Option<End>,
    /// What is between them.
    pub path: Option<PathPart>,
    /// No transfer, but short tests of each stage: what would limit one.
    pub probed: bool,
}

/// Which end a part tells of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PartRole {
    /// The sending one.
    #[default]
    Source,
    /// The receiving one.
    Sink,
}

/// What one end tells.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Part {
    /// Which end.
    pub role: PartRole,
    /// Itself.
    pub end: End,
    /// The path, which the source sees.
    pub path: Option<PathPart>,
}

/// One end of a transfer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct End {
    /// How long it has run.
    pub elapsed: Duration,
    /// Reading (source) or writing (sink) of data.
    pub data: Work,
    /// Hashing.
    pub hash: Work,
    /// Whole small files: made, written, named.
    pub small: Work,
    /// Operations on names: listing, opening, looking, making, renaming.
    pub names: Work,
    /// Syncing.
    pub sync: Work,
    /// Threads that read or write.
    pub threads: u64,
    /// The processors.
    pub cpu: Cpu,
    /// The network thread, where there is one.
    pub net: Option<Net>,
    /// How fast one thread here seals, by the suite in use.
    pub sealing: Option<DataRate>,
    /// The UDP receive buffers.
    pub buffers: Option<Buffers>,
    /// Sink: how often its memory was looked at, and was full.
    pub looks: u64,
    /// See `looks`.
    pub full: u64,
    /// Sink: how long nothing had been written any more, at its end mostly syncs and names.
    pub rest: Duration,
}

/// Work of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Work {
    /// How often.
    pub count: u64,
    /// Of how much.
    pub bytes: ByteCount,
    /// How long it took, all threads together.
    pub wall: Duration,
    /// How much of that the processor worked.
    pub busy: Duration,
}

/// The processors as one end sees them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cpu {
    /// Cores that this process may use.
    pub cores: f64,
    /// Processor time of the process.
    pub used: Duration,
    /// Over how long.
    pub elapsed: Duration,
    /// Cores' worth of time that the cgroup is granted, if it is limited.
    pub quota: Option<f64>,
    /// Periods of the quota, and those in which it ran out.
    pub periods: u64,
    /// See `periods`.
    pub throttled_periods: u64,
    /// How long it stood still for want of quota.
    pub throttled: Duration,
    /// Mean share of the machine's cores that were busy, with anything.
    pub machine: f64,
    /// Share of the time in which the threads that read or write waited for a core, in their mean.
    pub data_waited: Option<f64>,
    /// The thread that wanted a processor most.
    pub hungriest: Option<HungryThread>,
    /// The thread that sends or receives datagrams.
    pub network: Option<HungryThread>,
}

/// A thread that wants a processor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HungryThread {
    /// Its name.
    pub name: String,
    /// Share of the time it ran.
    pub ran: f64,
    /// Share of the time it could have run and another did.
    pub waited: f64,
}

/// A network thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Net {
    /// Processor time it used.
    pub cpu: Duration,
    /// Payload it sent or received.
    pub bytes: ByteCount,
    /// How long it was up.
    pub elapsed: Duration,
}

/// Receive buffers of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Buffers {
    /// Memory of each.
    pub each: ByteCount,
    /// How many.
    pub sockets: u64,
    /// The system's limit (`net.core.rmem_max`).
    pub limit: Option<ByteCount>,
    /// How long of the rate that came they hold.
    pub covers: Option<Duration>,
    /// Datagrams that found them full.
    pub drops: u64,
}

/// The way between the ends, as the source sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PathPart {
    /// How the transports came up.
    pub race: Race,
    /// The transport in use, or the one most used.
    pub transport: String,
    /// Payload moved by datagrams, TCP and the pipe.
    pub by_udp: ByteCount,
    /// See `by_udp`.
    pub by_tcp: ByteCount,
    /// See `by_udp`.
    pub by_pipe: ByteCount,
    /// The pipe goes through ssh.
    pub ssh: bool,
    /// The ceiling somebody asked for.
    pub asked_rate: Option<DataRate>,
    /// What the datagram sender waited for, looked at twenty times a second.
    pub waits: Waits,
    /// What TCP or the pipe waited for.
    pub mover: Waits,
    /// Intervals of a tenth of a second or a round trip, the newest of the busy ones.
    pub samples: Vec<Sample>,
    /// Datagrams: sent with payload, lost, and of these dropped by the receiving host or refused
    /// by the receiver; marked by the network.
    pub sent_packets: u64,
    /// See `sent_packets`.
    pub lost_packets: u64,
    /// See `sent_packets`.
    pub host_drops: u64,
    /// See `sent_packets`.
    pub refused_packets: u64,
    /// See `sent_packets`.
    pub marked_packets: u64,
    /// Least round trip.
    pub min_rtt: Option<Duration>,
    /// Newest smoothed round trip.
    pub srtt: Option<Duration>,
    /// Capacity of the path by the dispersion of trains.
    pub capacity: Option<DataRate>,
    /// Congestion window.
    pub cwnd: ByteCount,
    /// The controller, in its own words.
    pub controller: String,
    /// Datagram size now, and the largest the flow began with.
    pub mtu: ByteCount,
    /// See `mtu`.
    pub mtu_begun: ByteCount,
    /// How often the size had to fall.
    pub mtu_falls: u64,
    /// What the loss classifier says, if it has said anything.
    pub loss: Option<LossWord>,
    /// TCP's own account.
    pub tcp: Option<TcpPart>,
    /// Datagram batches that this system refused to send.
    pub refused_sends: u64,
    /// Datagrams that this system knew to be too large for the way, probes among them.
    pub too_big: u64,
    /// The smallest of them.
    pub smallest_refused: Option<ByteCount>,
    /// Times the breaker acted.
    pub braked: u64,
    /// The longest time without an arrival while the sender waited for the path, after something had
    /// arrived.
    pub outage: Duration,
}

/// How transports came up, in time since the start of the race.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Race {
    /// Datagrams were tried: both ends had sockets.
    pub udp_tried: bool,
    /// TCP was tried.
    pub tcp_tried: bool,
    /// How long the race has been on.
    pub on_for: Duration,
    /// When authentic datagrams had passed both ways.
    pub udp_up: Option<Duration>,
    /// When a TCP stream was up.
    pub tcp_up: Option<Duration>,
    /// When data went to the pipe.
    pub piped: Option<Duration>,
}

/// How often a sender was found waiting for what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Waits {
    /// For something to do: the other end asks for nothing, or names come slowly.
    pub work: u64,
    /// For bytes from the disk.
    pub bytes: u64,
    /// For the window: congestion's or the transport's.
    pub window: u64,
    /// For its pace.
    pub pace: u64,
    /// For room at the receiver.
    pub room: u64,
    /// For any word of the receiver.
    pub word: u64,
}

impl Waits {
    /// These and those.
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

    /// All of them.
    pub fn total(&self) -> u64 {
        // They may come from elsewhere.
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
    /// Payload lost on the way: what the receiving host dropped apart.
    pub lost: ByteCount,
    /// Round trip beyond the least.
    pub queue: Duration,
}

/// What a loss classifier said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LossWord {
    /// `network`, `cpu`, `hybrid`, `link` or `inconclusive`.
    pub cause: String,
    /// Probability that the receiving host did it, in the mean of the packets lost.
    pub p_cpu: f64,
    /// The share of the judged losses that were given this cause.
    pub share: f64,
    /// Packets lost that were judged.
    pub lost: u64,
    /// Windows with losses that were judged.
    pub windows: u64,
}

/// TCP streams, all together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TcpPart {
    /// How many.
    pub streams: u64,
    /// Time with something to send.
    pub busy: Duration,
    /// Time held back by the receiver's window.
    pub receiver_limited: Duration,
    /// Time held back by the send buffer.
    pub send_buffer_limited: Duration,
    /// What the receivers' windows allowed to be under way, when last looked at.
    pub receiver_window: Option<ByteCount>,
    /// Sent again.
    pub retransmitted: ByteCount,
    /// Sent in all.
    pub sent: ByteCount,
    /// The largest rate the receiver got, of one stream.
    pub best_rate: Option<DataRate>,
    /// The congestion control in force.
    pub congestion: String,
}

impl Part {
    /// Cuts what came from elsewhere to the size it may have.
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
    /// Time in which the processor did nothing for it: the disk's or the file server's.
    pub fn idle(&self) -> Duration {
        self.wall - self.busy
    }

    /// The mean time of one.
    pub fn each(&self) -> Duration {
        if self.count == 0 { Duration::ZERO } else { self.wall / self.count }
    }

    /// The share of `threads` threads' time over `elapsed`.
    pub fn share(of: Duration, elapsed: Duration, threads: u64) -> f64 {
        let all = elapsed.as_secs_f64() * threads.max(1) as f64;
        if all > 0.0 { of.as_secs_f64() / all } else { 0.0 }
    }
}

/// The longest part that is taken from the other end.
const MAX_PART: usize = 64 << 10;

/// A part as it goes to the other end.
pub fn encode(part: &Part) -> Vec<u8> {
    serde_json::to_vec(part).unwrap_or_default()
}

/// Reads the other end's part; none if it is too long or unintelligible.
pub fn decode(bytes: &[u8]) -> Option<Part> {
    if bytes.len() > MAX_PART {
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
        assert_eq!(decode(&vec![b' '; MAX_PART + 1]), None);
        assert_eq!(decode(b"{}"), Some(Part::default()));
        assert_eq!(decode(b"[]x"), None);
    }
}

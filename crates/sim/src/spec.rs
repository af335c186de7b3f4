//! A scenario as values. `file` reads it from TOML; experiments build it.

use packtrain_cc::SavedPath;
use packtrain_link::LinkConfig;
use packtrain_units::{ByteCount, DataRate, Duration, Time};

use crate::trace::mix;

/// A scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Its name, of letters, digits and dashes.
    pub name: String,
    /// Its description in one sentence.
    pub title: String,
    /// Duration in virtual time.
    pub duration: Duration,
    /// Goodput, losses and delays are counted from this time on.
    pub warm_up: Duration,
    /// Seed of all random choices.
    pub seed: u64,
    /// Interval of samples of the curves; none: no curves.
    pub sample: Option<Duration>,
    /// Hosts and routers.
    pub nodes: Vec<NodeSpec>,
    /// Links, one direction each.
    pub links: Vec<LinkSpec>,
    /// The flows.
    pub flows: Vec<FlowSpec>,
    /// Maximum length of a train, in packets, at most 64; 1 simulates packet by packet, with the
    /// same result.
    pub train: u32,
    /// Index of a link at which the arrival, drop or departure of every packet is recorded: for
    /// small runs only.
    pub record: Option<usize>,
}

impl Scenario {
    /// The configuration of link `i` in a run, with a seed derived from the link and the scenario.
    /// An emulator that uses it loses the same packets, by number, as the simulator.
    ///
    /// # Panics
    /// If there is no link `i`.
    pub fn link_config(&self, i: usize) -> LinkConfig {
        let mut config = self.links[i].config.clone();
        config.seed = mix(config.seed ^ mix(self.seed ^ mix(i as u64)));
        config
    }
}

/// A host or a router.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSpec {
    /// Its name.
    pub name: String,
    /// The host model for datagrams of our engines; none: the node takes them at once.
    pub host: Option<packtrain_link::HostConfig>,
}

/// One direction of a link between two nodes. Routes are the shortest paths by delay, then by
/// number of hops, then by the order of the links.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSpec {
    /// Its name; the reverse direction of a duplex link has a `'` appended.
    pub name: String,
    /// Index of its source node.
    pub from: usize,
    /// Index of its destination node.
    pub to: usize,
    /// Its configuration.
    pub config: LinkConfig,
}

/// A flow, or several of the same kind.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowSpec {
    /// Its name, unique.
    pub name: String,
    /// Index of the sending node.
    pub from: usize,
    /// Index of the receiving node.
    pub to: usize,
    /// Its start.
    pub start: Time,
    /// When its sender stops; default: at the end of the simulation.
    pub stop: Option<Time>,
    /// Its kind.
    pub kind: FlowKind,
    /// Set if its source is a depot that relays another connection.
    pub from_depot: Option<DepotSpec>,
}

/// A depot between two TCP connections of a session, as in the paper: data of a connection waits in
/// its receive buffer, then in the process' buffer, then in the send buffer of the next connection
/// until it is acknowledged. When all are full the first connection's window closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DepotSpec {
    /// Index of the flow that ends here; it precedes this one.
    pub of: usize,
    /// The kernel's buffer of the incoming connection.
    pub receive: ByteCount,
    /// The process' buffer.
    pub user: ByteCount,
    /// The kernel's buffer of the outgoing connection.
    pub send: ByteCount,
}

impl DepotSpec {
    /// The LSL paper's (section 3): 8 MB in the kernel per direction, and as much again for both in
    /// the process.
    pub fn paper(of: usize) -> Self {
        let buffer = ByteCount(8_000_000);
        Self { of, receive: buffer, user: ByteCount(16_000_000), send: buffer }
    }
}

/// Kinds of flows.
#[derive(Clone, Debug, PartialEq)]
pub enum FlowKind {
    /// A TCP connection.
    Tcp(TcpSpec),
    /// An engine of `packtrain-proto`.
    Engine(EngineSpec),
    /// Packets without acknowledgements.
    Cross(packtrain_link::CrossConfig),
    /// Many short TCP connections, sequential or from a Poisson process.
    Short(ShortSpec),
}

/// A TCP connection.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpSpec {
    /// Name of a controller: `reno`, `cubic`, `highspeed`, `scalable`, `bbr`, or any other.
    pub cc: String,
    /// How losses are detected and repaired.
    pub recovery: Recovery,
    /// Bytes to send; none: endless.
    pub bytes: Option<ByteCount>,
    /// Payload bytes of a full segment.
    pub mss: ByteCount,
    /// Bytes of headers of each packet, with the network header; acknowledgements consist of these.
    pub header: ByteCount,
    /// Segments per acknowledgement (RFC 5681: 2; 1 acknowledges each).
    pub ack_every: u32,
    /// Maximum delay of an acknowledgement.
    pub ack_delay: Duration,
    /// Initial window in segments (RFC 6928: 10; ns-2: 2).
    pub initial_window: u32,
    /// The receiver's window; none: unlimited.
    pub window: Option<ByteCount>,
    /// Minimum retransmission timeout.
    pub min_rto: Duration,
    /// Whether the sender paces even where its controller gives no rate: at twice the window per
    /// round trip in slow start, 1.2 times afterwards (Linux with fq or its own pacing).
    pub paced: bool,
}

impl TcpSpec {
    /// The settings of Linux: SACK, RACK, PRR, delayed acknowledgements, an initial window of ten.
    pub fn linux(cc: &str) -> Self {
        Self {
            cc: cc.to_owned(),
            recovery: Recovery::Rack,
            bytes: None,
            mss: ByteCount(1_448),
            header: ByteCount(52),
            ack_every: 2,
            ack_delay: Duration::from_millis(40),
            initial_window: 10,
            window: None,
            min_rto: Duration::from_millis(200),
            paced: false,
        }
    }

    /// The settings of ns-2's Sack1 with its plain sink: packets of 1,000 bytes and 40 of header,
    /// an acknowledgement for each, an initial window of two.
    pub fn ns2(cc: &str) -> Self {
        Self {
            cc: cc.to_owned(),
            recovery: Recovery::Sack,
            bytes: None,
            mss: ByteCount(1_000),
            header: ByteCount(40),
            ack_every: 1,
            ack_delay: Duration::ZERO,
            initial_window: 2,
            window: None,
            min_rto: Duration::from_millis(200),
            paced: false,
        }
    }
}

/// How a TCP sender detects and repairs losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Partial acknowledgements, one loss a round trip (RFC 6582), no SACK.
    NewReno,
    /// SACK with a threshold of three (RFC 6675).
    Sack,
    /// SACK with RACK-TLP and proportional rate reduction (RFC 8985, RFC 6937), as in Linux.
    Rack,
}

/// An engine of `packtrain-proto`.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineSpec {
    /// Name of a controller: `native`, `fixed:100mbit`, `reno` and so on.
    pub cc: String,
    /// Bytes to send; none: endless.
    pub bytes: Option<ByteCount>,
    /// UDP payload bytes of a full datagram.
    pub mtu: ByteCount,
    /// Whether the codec seals and opens every packet, as in the product.
    pub codec: bool,
    /// The owner's ceiling on its rate.
    pub ceiling: Option<DataRate>,
    /// Whether the receiver reads the arrivals of 50 us as one batch, as a socket with offload
    /// delivers them; otherwise each packet as it arrives. A host model overrides this.
    pub coalesce: bool,
    /// UDT: maximum packets sent back to back; 1 is the paper's pacing.
    pub train: u32,
    /// UDT: whether the receiver sends delay warnings.
    pub warnings: bool,
    /// Native feedback: whether data packets are marked ECN-capable, as in the product.
    pub ecn: bool,
    /// The round trip of a control connection. If set, the sender validates the path with a train
    /// of pings, as in a fetch.
    pub probe_train: Option<Duration>,
    /// What an earlier flow measured of the path, as the history of the product keeps it.
    pub saved: Option<SavedPath>,
}

/// Many short connections.
#[derive(Clone, Debug, PartialEq)]
pub struct ShortSpec {
    /// The configuration of each; `bytes` is the size of each.
    pub tcp: TcpSpec,
    /// Total number.
    pub count: u32,
    /// When they start.
    pub arrivals: Arrivals,
}

/// When short connections start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// This many run at any time; the next starts when one ends.
    Concurrent(u32),
    /// From a Poisson process with this rate per second.
    Poisson(f64),
}

//! What is to be simulated, as values. `file` reads them from TOML; experiments build them.

use packtrain_link::LinkConfig;
use packtrain_units::{ByteCount, DataRate, Duration, Time};

use crate::trace::mix;

/// A whole experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Its name, of letters, digits and dashes.
    pub name: String,
    /// One sentence for people.
    pub title: String,
    /// How long it runs in virtual time.
    pub duration: Duration,
    /// Goodput, losses and delays are counted from here on.
    pub warm_up: Duration,
    /// Every random choice derives from it.
    pub seed: u64,
    /// Curves are sampled this often; none: no curves.
    pub sample: Option<Duration>,
    /// Hosts and routers.
    pub nodes: Vec<NodeSpec>,
    /// One direction each.
    pub links: Vec<LinkSpec>,
    /// Who sends what to whom.
    pub flows: Vec<FlowSpec>,
    /// The longest train, in packets, at most 64; 1 simulates packet by packet, with the same
    /// result.
    pub train: u32,
    /// Keep the arrivals, drops and departures of every packet at this link (its index): small
    /// runs only.
    pub record: Option<usize>,
}

impl Scenario {
    /// What link `i` is in a run: each link has its own luck, and another one for another seed of
    /// the scenario. An emulator that uses it loses the same packets, by number, as the simulator.
    ///
    /// # Panics
    /// When there is no link `i`.
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
    /// How its receiving side treats datagrams of our engines; none: it takes them at once.
    pub host: Option<packtrain_link::HostConfig>,
}

/// One direction of a link between two nodes. Routes are the shortest paths by delay, then by
/// number of hops, then by the order of the links.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSpec {
    /// Its name; the reverse direction of a duplex link has `'` behind it.
    pub name: String,
    /// Index of the node it starts at.
    pub from: usize,
    /// Index of the node it ends at.
    pub to: usize,
    /// What it is.
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
    /// When it starts.
    pub start: Time,
    /// When its sender stops; none: at the end of the simulation.
    pub stop: Option<Time>,
    /// What it is.
    pub kind: FlowKind,
    /// It goes on with what another connection brings to its first node; none: it is a source.
    pub from_depot: Option<DepotSpec>,
}

/// A depot between two TCP connections of a session, in the paper's measures: what a connection
/// brings waits in its receive buffer, then in the process', then in the send buffer of the next
/// until that is acknowledged. When all are full the first connection's window is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DepotSpec {
    /// Index of the flow that ends here; it comes before this one.
    pub of: usize,
    /// The kernel's buffer of the connection that comes.
    pub receive: ByteCount,
    /// The process' buffer.
    pub user: ByteCount,
    /// The kernel's buffer of the connection that goes.
    pub send: ByteCount,
}

impl DepotSpec {
    /// The LSL paper's (section 3): 8 MB each way in the kernel, and as much again for both in the
    /// process.
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
    /// Packets that nobody acknowledges.
    Cross(packtrain_link::CrossConfig),
    /// Many short TCP connections, one after the other or by a Poisson process.
    Short(ShortSpec),
}

/// A TCP connection.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpSpec {
    /// Name of a controller: `reno`, `cubic`, `highspeed`, `scalable`, `bbr`, or any other.
    pub cc: String,
    /// How losses are found and repaired.
    pub recovery: Recovery,
    /// What it sends; none: without end.
    pub bytes: Option<ByteCount>,
    /// Payload bytes of a full segment.
    pub mss: ByteCount,
    /// Bytes of headers of each packet, the network header included; acknowledgements have these
    /// alone.
    pub header: ByteCount,
    /// One acknowledgement for so many segments (RFC 5681: 2; 1 acknowledges each).
    pub ack_every: u32,
    /// Acknowledgements wait no longer than this.
    pub ack_delay: Duration,
    /// Initial window in segments (RFC 6928: 10; ns-2: 2).
    pub initial_window: u32,
    /// The receiver's window; none: never limits.
    pub window: Option<ByteCount>,
    /// The least retransmission timeout.
    pub min_rto: Duration,
    /// Whether the sender spaces its packets even where its controller gives no rate: at twice
    /// the window by the round trip in slow start, 1.2 times after (Linux with fq or its own
    /// pacing).
    pub paced: bool,
}

impl TcpSpec {
    /// What Linux does: SACK, RACK, PRR, delayed acknowledgements, a window of ten.
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

    /// What ns-2's Sack1 with its plain sink does: packets of 1,000 bytes and 40 of header, an
    /// acknowledgement for each, a window of two.
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

/// How a TCP sender finds and repairs losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Partial acknowledgements, one loss a round trip (RFC 6582), no SACK.
    NewReno,
    /// SACK with a threshold of three (RFC 6675).
    Sack,
    /// SACK with RACK-TLP and proportional rate reduction (RFC 8985, RFC 6937), as Linux does.
    Rack,
}

/// An engine of `packtrain-proto`.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineSpec {
    /// Name of a controller: `native`, `fixed:100mbit`, `reno` and so on.
    pub cc: String,
    /// What it sends; none: without end.
    pub bytes: Option<ByteCount>,
    /// UDP payload bytes of a full datagram.
    pub mtu: ByteCount,
    /// Whether every packet is sealed and opened by the codec, as in the product.
    pub codec: bool,
    /// The owner's ceiling on its rate.
    pub ceiling: Option<DataRate>,
    /// Whether the receiver reads what has come in 50 us as one batch, as a socket with offload
    /// gives it; else each packet as it comes. A model of its host overrules this.
    pub coalesce: bool,
    /// UDT: the most packets sent back to back; 1 is the paper's pacing.
    pub train: u32,
    /// UDT: whether the receiver warns of a rising delay.
    pub warnings: bool,
}

/// Many short connections.
#[derive(Clone, Debug, PartialEq)]
pub struct ShortSpec {
    /// What each is like; `bytes` is what each sends.
    pub tcp: TcpSpec,
    /// How many in all.
    pub count: u32,
    /// How they come.
    pub arrivals: Arrivals,
}

/// When short connections start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// This many run at any time; the next starts when one ends.
    Concurrent(u32),
    /// By a Poisson process of so many a second.
    Poisson(f64),
}

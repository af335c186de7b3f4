//! The configuration of a flow, and all its limits in one table.

use std::net::{IpAddr, SocketAddr};

use packtrain_cc::udt::Variant;
use packtrain_units::{ByteCount, DataRate, Duration};

use crate::seam::TRAIN_PACKETS;

/// All limits of the transport.
pub mod limits {
    use super::{ByteCount, Duration};

    /// Maximum lanes (sockets) of one flow: the lane takes four bits on the wire.
    pub const LANES: usize = 16;
    /// Maximum remote addresses tried for one lane.
    pub(crate) const CANDIDATES: usize = 8;
    /// Datagram size that every path is assumed to carry (RFC 8899 section 5.1.2, BASE_PLPMTU), in
    /// bytes.
    pub(crate) const BASE_MTU: u16 = 1_200;
    /// The largest datagram: a 9,000-byte jumbo frame less IPv4 and UDP headers, in bytes.
    pub(crate) const MAX_MTU: u16 = 8_972;
    /// Minimum interval between reports.
    pub(crate) const REPORT_MIN: Duration = Duration::from_micros(500);
    /// Maximum interval between reports while data arrives.
    pub const REPORT_MAX: Duration = Duration::from_millis(10);
    /// Interval of keepalive pings of an idle flow.
    pub const KEEPALIVE: Duration = Duration::from_secs(5);
    /// Time without an answer after which [`Event::Stalled`](crate::Event::Stalled) is raised.
    pub const STALL: Duration = Duration::from_secs(3);
    /// Time without a packet from the peer after which the flow closes.
    pub const SILENCE: Duration = Duration::from_secs(30);
    /// A flow that never receives a packet from its peer closes after this.
    pub(crate) const UNREACHABLE: Duration = Duration::from_secs(30);
    /// How many times a close frame is sent.
    pub(crate) const CLOSE_REPEATS: u32 = 3;
    /// Packets encrypted under one key: 2^22.
    pub(crate) const PHASE_BITS: u32 = 22;
    /// Packet numbers per lane for which a receiver keeps the arrival state.
    pub const WINDOW_PACKETS: u64 = 1 << 18;
    /// Maximum data units in flight, and maximum units accepted beyond the first missing one.
    pub(crate) const WINDOW_UNITS: u64 = 1 << 22;
    /// Default buffer of feedback `sabul`: bytes sent once before losses are retransmitted. It is
    /// the transfer size in the paper.
    pub const BUFFER: ByteCount = ByteCount(128 << 20);
    /// Maximum unfetched messages for the reliable channel; the flow closes above it.
    pub(crate) const MAX_RELIABLE_MESSAGES: usize = 4_096;
    /// Maximum unfetched log lines; the log drops further lines.
    pub(crate) const LOG_LINES: usize = 10_000;
}

/// Direction of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// This end sends data.
    Sender,
    /// This end receives data.
    Receiver,
}

/// How the receiver reports arrivals, and so how losses are detected and repaired. Both ends of a
/// flow must use the same kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FeedbackKind {
    /// Reports of packet numbers; any number of lanes.
    #[default]
    Native,
    /// UDT's: numbered data units, acknowledged by a timer; losses reported at once.
    Udt(Variant),
    /// FOBS's: numbered data units, acknowledged by bitmaps.
    Fobs,
    /// SABUL's: numbered data units; the receiver's state travels over a reliable channel
    /// ([`Flow::poll_reliable`](crate::Flow::poll_reliable)).
    Sabul,
}

impl FeedbackKind {
    /// Its name, without the variant.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Udt(_) => "udt",
            Self::Fobs => "fobs",
            Self::Sabul => "sabul",
        }
    }

    /// Its name with the variant, such as `udt:grid`. The two ends exchange it in their offers.
    pub fn label(self) -> String {
        match self {
            Self::Native | Self::Fobs | Self::Sabul => self.name().to_owned(),
            Self::Udt(variant) => format!("{}:{}", self.name(), variant.name()),
        }
    }

    /// The feedback with this label.
    pub fn labelled(label: &str) -> Option<Self> {
        match label.split_once(':') {
            None if label == "native" => Some(Self::Native),
            None if label == "fobs" => Some(Self::Fobs),
            None if label == "sabul" => Some(Self::Sabul),
            Some(("udt", variant)) => Variant::named(variant).map(Self::Udt),
            _ => None,
        }
    }
}

/// How packets are sealed. Every suite encrypts and authenticates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// AES-128 in Galois counter mode, where the processor has instructions for it.
    Aes128Gcm,
    /// ChaCha20-Poly1305 (RFC 8439).
    ChaCha20Poly1305,
}

/// The secret of one flow. The keys of both directions, all lanes and all phases derive from it, so
/// a secret must never serve two flows.
#[derive(Clone)]
pub struct FlowKeys {
    /// How packets are sealed.
    pub suite: Suite,
    /// 32 bytes of entropy that only the two ends know.
    pub secret: [u8; 32],
}

impl std::fmt::Debug for FlowKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlowKeys").field("suite", &self.suite).finish_non_exhaustive()
    }
}

/// The host to which trains of pings may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainTarget {
    /// Its address.
    pub host: IpAddr,
    /// The round trip to it, as another connection shows it: a train has 640 pings for each second
    /// of it.
    pub rtt: Duration,
}

/// The configuration of a flow.
#[derive(Clone, Debug)]
pub struct FlowConfig {
    /// Direction of the data.
    pub role: Role,
    /// The flow's secret.
    pub keys: FlowKeys,
    /// Identifies the flow on the wire, so that one socket can serve several.
    pub flow_id: u32,
    /// For each lane, the remote addresses to try; empty if the peer must send first.
    pub peers: Vec<Vec<SocketAddr>>,
    /// UDP payload bytes that the path is known to carry: 1200 (RFC 9000 section 14), unless the
    /// owner knows more. Data starts with this size, or with Ethernet's if the validation of the
    /// path shows that it carries that.
    pub mtu: ByteCount,
    /// The largest datagram to probe for, in UDP payload bytes: 1472 over IPv4 Ethernet, 1452 over
    /// IPv6; equal to `mtu` to disable probing above it. The feedbacks that count data units take
    /// it for the size of a full one.
    pub max_mtu: ByteCount,
    /// The owner's ceiling on the wire rate.
    pub rate_ceiling: Option<DataRate>,
    /// Receiver: room of its pool before the first call of `Placement::room`.
    pub room: ByteCount,
    /// Seed of all randomness that is not secret.
    pub seed: u64,
    /// Sender, feedback `native`: mark data packets ECN-capable, ECT(0), as long as the path carries
    /// the marks (RFC 9000 section 13.4.2) and if the controller answers them.
    pub ecn: bool,
    /// The round trip to `peers`, at most, if the owner has another connection to their hosts: the
    /// peer is known to be there. An authentic packet from one of `peers` then opens its lane, and
    /// data does not wait for the answer to a probe. None: a lane opens with that answer.
    pub known_rtt: Option<Duration>,
    /// Sender: the host to whose addresses in `peers` it may send 20 to 64 full datagrams before
    /// they have answered, because that host asked for the data. The answers show the capacity
    /// before the first data. At most two such trains leave, and none if the controller does not use
    /// the capacity or `rate_ceiling` is low.
    pub train_to: Option<TrainTarget>,
    /// How the receiver reports arrivals.
    pub feedback: FeedbackKind,
    /// Feedback `sabul`, sender: bytes sent once before lost ones among them are retransmitted.
    pub buffer: ByteCount,
    /// Feedback `udt`, for experiments: maximum packets back to back; 44 for no limit of its own.
    #[doc(hidden)]
    pub train: u32,
    /// Feedback `udt`, receiver, for experiments: send delay warnings.
    #[doc(hidden)]
    pub warnings: bool,
}

impl FlowConfig {
    /// A configuration with defaults for all other fields.
    pub fn new(role: Role, keys: FlowKeys, flow_id: u32, peers: Vec<Vec<SocketAddr>>) -> Self {
        Self {
            role,
            keys,
            flow_id,
            peers,
            mtu: ByteCount(u64::from(limits::BASE_MTU)),
            max_mtu: ByteCount(1_472),
            rate_ceiling: None,
            room: ByteCount(16 << 20),
            seed: u64::from(flow_id),
            ecn: false,
            known_rtt: None,
            train_to: None,
            feedback: FeedbackKind::Native,
            buffer: limits::BUFFER,
            train: TRAIN_PACKETS,
            warnings: true,
        }
    }

    /// The size of a full datagram for the controller at its construction. The native feedback
    /// calls [`set_mtu`](packtrain_cc::CongestionController::set_mtu) when it changes; the others
    /// count data units of one size.
    pub fn first_mtu(&self) -> ByteCount {
        if self.feedback == FeedbackKind::Native { self.mtu } else { self.max_mtu }
    }
}

/// What the core needs of the configuration: all but the keys and what only the codec uses.
#[derive(Clone, Debug)]
pub(crate) struct CoreConfig {
    pub(crate) role: Role,
    pub(crate) peers: Vec<Vec<SocketAddr>>,
    pub(crate) mtu: ByteCount,
    pub(crate) max_mtu: ByteCount,
    pub(crate) rate_ceiling: Option<DataRate>,
    pub(crate) room: ByteCount,
    pub(crate) seed: u64,
    pub(crate) ecn: bool,
    pub(crate) known_rtt: Option<Duration>,
    pub(crate) train_to: Option<TrainTarget>,
    pub(crate) feedback: FeedbackKind,
    /// Feedback `sabul`: bytes of a buffer.
    pub(crate) buffer: ByteCount,
    /// Feedback `udt`: maximum packets back to back.
    pub(crate) train: u32,
    /// Feedback `udt`, receiver: send delay warnings.
    pub(crate) warnings: bool,
}

impl From<&FlowConfig> for CoreConfig {
    fn from(config: &FlowConfig) -> Self {
        Self {
            role: config.role,
            peers: config.peers.clone(),
            mtu: config.mtu,
            max_mtu: config.max_mtu,
            rate_ceiling: config.rate_ceiling,
            room: config.room,
            seed: config.seed,
            ecn: config.ecn,
            known_rtt: config.known_rtt,
            train_to: config.train_to,
            feedback: config.feedback,
            buffer: config.buffer,
            train: config.train,
            warnings: config.warnings,
        }
    }
}

/// Why a flow could not be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlowError {
    /// No lane, or more than sixteen.
    #[error("a flow has 1 to 16 lanes, not {0}")]
    Lanes(usize),
    /// Datagrams too small or too large.
    #[error("a datagram has 1200 to 8972 bytes, not {0:?}")]
    Mtu(ByteCount),
    /// A sender without a controller.
    #[error("a sender needs a congestion controller")]
    NoController,
    /// The controller (first) needs a signal that the feedback (second) lacks.
    #[error("the controller `{0}` needs a signal that the feedback `{1}` does not provide")]
    Signals(&'static str, &'static str),
    /// The keys could not be derived.
    #[error("the keys of the flow could not be derived")]
    Keys,
}

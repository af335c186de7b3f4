//! What a flow is given at start, and the limits on everything, in one table.

use std::net::SocketAddr;

use packtrain_cc::udt::Variant;
use packtrain_units::{ByteCount, DataRate, Duration};

use crate::seam::TRAIN_PACKETS;

/// Every limit of the transport in one place.
pub mod limits {
    use super::{ByteCount, Duration};

    /// Most lanes (sockets) of one flow: the lane is four bits on the wire.
    pub const LANES: usize = 16;
    /// Most remote addresses tried for one lane.
    pub const CANDIDATES: usize = 8;
    /// The size every path is taken to carry (RFC 8899 section 5.1.2, BASE_PLPMTU), in bytes.
    pub const BASE_MTU: u16 = 1_200;
    /// The largest datagram: a 9,000-byte jumbo frame less IPv4 and UDP headers, in bytes.
    pub const MAX_MTU: u16 = 8_972;
    /// Reports leave no more often than this.
    pub const REPORT_MIN: Duration = Duration::from_micros(500);
    /// Reports leave no less often than this while data arrives.
    pub const REPORT_MAX: Duration = Duration::from_millis(10);
    /// An idle flow says so this often.
    pub const KEEPALIVE: Duration = Duration::from_secs(5);
    /// Silence after which [`Event::Stalled`](crate::Event::Stalled) is raised.
    pub const STALL: Duration = Duration::from_secs(3);
    /// Silence after which the flow is over.
    pub const SILENCE: Duration = Duration::from_secs(30);
    /// A flow that never heard its peer is over after this.
    pub const UNREACHABLE: Duration = Duration::from_secs(30);
    /// How often a close is repeated.
    pub const CLOSE_REPEATS: u32 = 3;
    /// Packets sent under one key: 2^22.
    pub const PHASE_BITS: u32 = 22;
    /// Packet numbers a receiver remembers, per lane.
    pub const WINDOW_PACKETS: u64 = 1 << 18;
    /// Data units under way at most, and accepted beyond the first that is missing.
    pub const WINDOW_UNITS: u64 = 1 << 22;
    /// What feedback `sabul` sends once before it repeats what was lost: the paper's transfer.
    pub const BUFFER: ByteCount = ByteCount(128 << 20);
    /// Messages for a channel that loses nothing, not yet fetched, after which the flow ends.
    pub const WORDS: usize = 4_096;
    /// Events not yet fetched by the owner, after which the log drops lines.
    pub const LOG_LINES: usize = 10_000;
}

/// Which way the data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// This end sends data.
    Sender,
    /// This end receives it.
    Receiver,
}

/// How the receiver tells what arrived, and so how losses are found and repaired: a closed set.
/// Both ends of a flow must mean the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FeedbackKind {
    /// Reports of packet numbers; any number of lanes.
    #[default]
    Native,
    /// UDT's: numbered data units, acknowledged by timer, losses reported at once.
    Udt(Variant),
    /// FOBS's: numbered data units, acknowledged by bitmaps.
    Fobs,
    /// SABUL's: numbered data units; what the receiver has to say of them goes by a channel that
    /// loses nothing ([`Flow::poll_reliable`](crate::Flow::poll_reliable)).
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

    /// Its name with the variant, such as `udt:grid`: how two ends tell each other what they mean.
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

/// The secret of one flow. Both directions, all lanes and all key phases derive from it, so a
/// secret must never serve two flows.
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

/// What a flow is given at start.
#[derive(Clone, Debug)]
pub struct FlowConfig {
    /// Which way the data goes.
    pub role: Role,
    /// The flow's secret.
    pub keys: FlowKeys,
    /// Names the flow on the wire, so that one socket may serve several.
    pub flow_id: u32,
    /// For each lane the remote addresses to try; empty where only the peer can speak first.
    pub peers: Vec<Vec<SocketAddr>>,
    /// UDP payload bytes of a datagram to start with: 1472 over IPv4 Ethernet, 1452 over IPv6.
    pub mtu: ByteCount,
    /// The largest datagram to probe for; equal to `mtu` for no probing above it.
    pub max_mtu: ByteCount,
    /// The owner's ceiling on the wire rate.
    pub rate_ceiling: Option<DataRate>,
    /// Receiver: room of its pool before the first `Placement::room` was asked.
    pub room: ByteCount,
    /// Seed of everything random in it that is not secret.
    pub seed: u64,
    /// Sender: mark packets ECN-capable, ECT(0).
    pub ecn: bool,
    /// How the receiver tells what arrived.
    pub feedback: FeedbackKind,
    /// Feedback `sabul`, sender: so many bytes are sent once before what was lost of them leaves
    /// again.
    pub buffer: ByteCount,
    /// Feedback `udt`, for experiments: most packets back to back, 44 for all that may.
    #[doc(hidden)]
    pub train: u32,
    /// Feedback `udt`, receiver, for experiments: warn of rising delay.
    #[doc(hidden)]
    pub warnings: bool,
}

impl FlowConfig {
    /// Defaults for everything but what must be said.
    pub fn new(role: Role, keys: FlowKeys, flow_id: u32, peers: Vec<Vec<SocketAddr>>) -> Self {
        Self {
            role,
            keys,
            flow_id,
            peers,
            mtu: ByteCount(1_472),
            max_mtu: ByteCount(1_472),
            rate_ceiling: None,
            room: ByteCount(16 << 20),
            seed: u64::from(flow_id),
            ecn: false,
            feedback: FeedbackKind::Native,
            buffer: limits::BUFFER,
            train: TRAIN_PACKETS,
            warnings: true,
        }
    }
}

/// What the core needs of it: everything but the keys and what the codec writes.
#[derive(Clone, Debug)]
pub(crate) struct CoreConfig {
    pub(crate) role: Role,
    pub(crate) peers: Vec<Vec<SocketAddr>>,
    pub(crate) mtu: ByteCount,
    pub(crate) max_mtu: ByteCount,
    pub(crate) rate_ceiling: Option<DataRate>,
    pub(crate) room: ByteCount,
    pub(crate) seed: u64,
    pub(crate) feedback: FeedbackKind,
    /// Feedback `sabul`: bytes of a buffer.
    pub(crate) buffer: ByteCount,
    /// Feedback `udt`: most packets back to back.
    pub(crate) train: u32,
    /// Feedback `udt`, receiver: warn of rising delay.
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
            feedback: config.feedback,
            buffer: config.buffer,
            train: config.train,
            warnings: config.warnings,
        }
    }
}

/// Why a flow could not be made.
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

//! The interface between a flow and its driver: source and sink of bytes, received batches, batches
//! to send, and events.

use std::net::SocketAddr;
use std::ops::Range;

use packtrain_units::{ByteCount, DataRate, Duration, Offset, Time};

/// Minimum size of the buffer passed to [`Flow::poll_transmit`](crate::Flow::poll_transmit): one
/// offload batch.
pub const BATCH_BYTES: usize = 65_536;

/// Maximum packets of one train, which is one offload batch.
pub const TRAIN_PACKETS: u32 = 44;

/// The sender's source of bytes.
pub trait Payload {
    /// Writes the object's bytes from `at` into all of `out`, or none. A retransmission asks for
    /// the same offset again.
    fn fill(&mut self, at: Offset, out: &mut [u8]) -> Fill;

    /// The receiver has placed these bytes; no retransmission will ask for them.
    fn release(&mut self, range: Range<Offset>);
}

/// Result of [`Payload::fill`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// All bytes were written.
    Ready,
    /// The bytes are not in memory yet; the flow asks again at the driver's next call.
    Pending,
    /// The bytes cannot be read; the flow drops the range with [`Event::Unreadable`].
    Failed,
}

/// The receiver's sink of bytes.
pub trait Placement {
    /// Places `bytes` at `at`. Must not block.
    fn place(&mut self, at: Offset, bytes: &[u8]) -> Placed;

    /// Bytes that it can take now; advertised to the sender.
    fn room(&self) -> ByteCount;
}

/// Result of [`Placement::place`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// The bytes were taken.
    New,
    /// The bytes were already there. They are acknowledged.
    Duplicate,
    /// There was no room. They are not acknowledged, and the sender retransmits them.
    NoRoom,
}

/// A batch of datagrams from one socket and one source address, equal in size except the last.
#[derive(Debug)]
pub struct Datagrams<'a> {
    /// The socket that received them.
    pub lane: u8,
    /// Source address.
    pub from: SocketAddr,
    /// The datagrams one after the other; they are decrypted in place.
    pub bytes: &'a mut [u8],
    /// Size of each but the last.
    pub stride: usize,
    /// The two ECN bits of the IP header, where the socket provides them.
    pub ecn: Option<u8>,
    /// When they were received, on the same clock as `now`.
    pub received_at: Time,
}

/// A batch to send: the first `len` bytes of the buffer, cut every `segment` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The socket to use.
    pub lane: u8,
    /// Destination.
    pub to: SocketAddr,
    /// Bytes of the batch.
    pub len: usize,
    /// Size of each datagram but the last; equals `len` for a single one.
    pub segment: usize,
    /// The two ECN bits to set.
    pub ecn: u8,
}

/// Events for the owner of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Data may be sent: the peer answered a probe, or sent an authentic packet from an address
    /// where it is known to be ([`FlowConfig::known_rtt`](crate::FlowConfig::known_rtt)).
    Established {
        /// The first round-trip sample, or what the owner knows.
        rtt: Duration,
    },
    /// Sender: the receiver has these bytes.
    Placed(Range<Offset>),
    /// Sender: bytes that the flow gave back after `revoke` or at its close. They may still arrive
    /// as a harmless duplicate.
    Returned(Range<Offset>),
    /// Sender: bytes that the payload could not read; the flow no longer carries them.
    Unreadable(Range<Offset>),
    /// Sender: all assigned bytes are acknowledged.
    Idle,
    /// The peer answered a challenge from a new address, and the lane now uses it.
    PathChanged {
        /// The lane.
        lane: u8,
        /// Its new remote address.
        to: SocketAddr,
    },
    /// Sender: the size of datagrams changed.
    MtuChanged {
        /// UDP payload bytes of a full datagram.
        mtu: ByteCount,
    },
    /// Sender: the receiving host limits the flow, by socket drops or by its drain rate.
    HostLimited {
        /// Datagrams dropped in the receiving host so far.
        drops: u64,
        /// The drain rate of its application, where reported.
        drain_rate: Option<DataRate>,
    },
    /// No packet came from the peer for three seconds although an answer was due.
    Stalled,
    /// The first packet after [`Event::Stalled`] arrived.
    Recovered,
    /// The circuit breaker (RFC 8084) lowered the rate of the flow.
    Braked {
        /// The new ceiling.
        to: DataRate,
    },
    /// The flow is closed and sends nothing more.
    Closed(CloseReason),
}

/// Why a flow ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// The owner finished.
    #[error("done")]
    Done,
    /// The owner switched to another transport or was interrupted.
    #[error("given up")]
    Abandoned,
    /// Nothing was received for the silence limit.
    #[error("nothing heard from the peer for {}", .0.to_readable())]
    Silent(Duration),
    /// No authenticated packet ever arrived.
    #[error("no packet of the peer ever came: the path may block UDP")]
    Unreachable,
    /// The peer acknowledged packets that were never sent.
    #[error("the peer acknowledged packets that were never sent")]
    OptimisticAck,
    /// The circuit breaker stopped the flow: persistent loss without progress.
    #[error("stopped by the circuit breaker: persistent loss without progress")]
    Breaker,
    /// Feedback `sabul`: the reliable feedback channel broke.
    #[error("the control connection beside the datagrams broke")]
    Channel,
    /// The peer sent an authentic but invalid message.
    #[error("the peer broke the protocol: {0}")]
    Protocol(&'static str),
}

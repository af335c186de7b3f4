//! The seams between a flow and whoever drives it: where bytes come from, where they go, what
//! comes in from the network, what is to be sent, and what the owner is told.

use std::net::SocketAddr;
use std::ops::Range;

use packtrain_units::{ByteCount, DataRate, Duration, Offset, Time};

/// The least size of the buffer that [`Flow::poll_transmit`](crate::Flow::poll_transmit) is
/// given: one offload batch.
pub const BATCH_BYTES: usize = 65_536;

/// The most packets of one train, which is one offload batch.
pub const TRAIN_PACKETS: u32 = 44;

/// The sender's source of bytes.
pub trait Payload {
    /// Writes the object's bytes from `at` into all of `out`, or nothing. Called again with the
    /// same offset for a retransmission.
    fn fill(&mut self, at: Offset, out: &mut [u8]) -> Fill;

    /// The receiver has placed these bytes: no retransmission will ask for them.
    fn release(&mut self, range: Range<Offset>);
}

/// What became of a request for bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// All of them were written.
    Ready,
    /// They are not in memory yet: ask again when the driver calls next.
    Pending,
    /// They cannot be read; the flow gives the range up with [`Event::Unreadable`].
    Failed,
}

/// The receiver's sink of bytes.
pub trait Placement {
    /// Puts `bytes` at `at`. Never blocks.
    fn place(&mut self, at: Offset, bytes: &[u8]) -> Placed;

    /// How much more it can take now, in bytes; advertised to the sender.
    fn room(&self) -> ByteCount;
}

/// What became of bytes that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// Taken.
    New,
    /// They were here before: acknowledged all the same.
    Duplicate,
    /// There was no room: not acknowledged, the sender repeats them.
    NoRoom,
}

/// A batch of datagrams from one socket and one source, equal in size except the last.
#[derive(Debug)]
pub struct Datagrams<'a> {
    /// The socket they came in by.
    pub lane: u8,
    /// Where they came from.
    pub from: SocketAddr,
    /// The datagrams one after the other; decrypted in place.
    pub bytes: &'a mut [u8],
    /// Size of each but the last.
    pub stride: usize,
    /// The two ECN bits of the IP header, where the socket tells them.
    pub ecn: Option<u8>,
    /// When they were received, on the same clock as `now`.
    pub received_at: Time,
}

/// A batch to send: the first `len` bytes of the buffer, cut every `segment` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The socket to use.
    pub lane: u8,
    /// Where to send it.
    pub to: SocketAddr,
    /// How many bytes of the buffer.
    pub len: usize,
    /// Size of each datagram but the last; equals `len` for a single one.
    pub segment: usize,
    /// The two ECN bits to set.
    pub ecn: u8,
}

/// What the owner of a flow is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Authenticated packets have passed both ways.
    Established {
        /// The first measurement of the round trip.
        rtt: Duration,
    },
    /// Sender: the receiver has these bytes.
    Placed(Range<Offset>),
    /// Sender: the flow gave these bytes back after `revoke` or at its close. They may still
    /// arrive: a harmless duplicate.
    Returned(Range<Offset>),
    /// Sender: the payload could not read these bytes; the flow no longer carries them.
    Unreadable(Range<Offset>),
    /// Sender: everything assigned is acknowledged.
    Idle,
    /// The peer answered a challenge from a new address and the lane moved there.
    PathChanged {
        /// Which lane.
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
        /// What its application drains, where it says so.
        drain_rate: Option<DataRate>,
    },
    /// Nothing came from the peer for three seconds although something should have.
    Stalled,
    /// The peer was heard again after [`Event::Stalled`].
    Recovered,
    /// The circuit breaker (RFC 8084) lowered the flow's rate.
    Braked {
        /// The ceiling it set.
        to: DataRate,
    },
    /// The flow is over; nothing more will be sent.
    Closed(CloseReason),
}

/// Why a flow ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// The owner was done.
    #[error("done")]
    Done,
    /// The owner gave it up in favour of another transport, or was interrupted.
    #[error("given up")]
    Abandoned,
    /// Nothing was heard for the idle limit.
    #[error("nothing heard from the peer for {0}")]
    Silent(Duration),
    /// No authenticated packet ever came.
    #[error("no packet of the peer ever came: the path may block UDP")]
    Unreachable,
    /// The peer acknowledged packets that were never sent.
    #[error("the peer acknowledged packets that were never sent")]
    OptimisticAck,
    /// The circuit breaker stopped it: persistent loss without progress.
    #[error("stopped by the circuit breaker: persistent loss without progress")]
    Breaker,
    /// Feedback `sabul`: the feedback channel, which loses nothing, broke.
    #[error("the control connection beside the datagrams broke")]
    Channel,
    /// The peer sent something authentic but senseless.
    #[error("the peer broke the protocol: {0}")]
    Protocol(&'static str),
}

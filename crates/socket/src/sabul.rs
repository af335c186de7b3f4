//! SABUL's library calls as in its paper: Open, Send, Recv and Close (Mazzucco et al., "Simple
//! Available Bandwidth Utilization Library for High-Speed Wide Area Networks", 2001, section 4).
//!
//! A connection has one direction. [`Sender::open`] and [`Receiver::open`] connect over TCP and
//! exchange their maximum buffer, first rate and datagram size; the smaller values apply. Then data
//! goes over UDP, and the receiver's state over that TCP connection.
//!
//! Unlike the rest of this crate it is encrypted and authenticated. The TCP connection is TLS 1.3
//! with raw keys, and each end decides which keys it trusts. The datagrams are the native wire of
//! `packtrain cp --transport sabul`, with a secret that the sender generates and sends over TLS. It
//! is not compatible with the library of 2001, whose wire was not published.
//!
//! ```no_run
//! use packtrain_socket::sabul::{Listener, Options, Receiver, Sender};
//! # let (mine, theirs) = (Options::trusting(todo!(), todo!()), Options::trusting(todo!(), todo!()));
//! // Where the data is to come:
//! let listener = Listener::bind("0.0.0.0:9000".parse()?, &mine)?;
//! let mut receiver = Receiver::open(&listener)?;
//! let mut bytes = vec![0; 1 << 20];
//! while let n @ 1.. = receiver.recv(&mut bytes)? { /* bytes[..n] */ }
//! // Where it is:
//! let mut sender = Sender::open("192.0.2.1:9000".parse()?, &theirs)?;
//! sender.send(b"all of it")?;
//! sender.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod open;
mod receive;
mod send;
mod span;

use std::io;
use std::sync::Arc;

use packtrain_cc::sabul::Variant;
use packtrain_net::flow::SpawnError;
use packtrain_net::tcp::{Identity, PublicKey};
use packtrain_net::udp::BindError;
use packtrain_proto::{CloseReason, FlowError};
use packtrain_units::{ByteCount, DataRate, Duration};

pub use open::Listener;
#[doc(hidden)]
pub use open::{a_good_open, fuzz_open};
pub use receive::Receiver;
pub use send::Sender;

/// Decides which keys of the other end are trusted.
pub type Trust = Arc<dyn Fn(&PublicKey) -> bool + Send + Sync>;

/// Allowed datagram sizes, in bytes of UDP payload.
pub const MTUS: std::ops::RangeInclusive<u64> = 1_200..=8_972;
/// Minimum buffer, some hundred datagrams.
pub const MIN_BUFFER: ByteCount = ByteCount(256 << 10);
/// Maximum buffer.
pub const MAX_BUFFER: ByteCount = ByteCount(4 << 30);

/// The options of an end.
#[derive(Clone)]
pub struct Options {
    /// Maximum buffer. The sender sends this much once before it retransmits lost parts of it. The
    /// receiver stores at most this much unread data.
    pub buffer: ByteCount,
    /// The first rate.
    pub rate: DataRate,
    /// Datagram size in bytes of UDP payload.
    pub mtu: ByteCount,
    /// Sender: how the rate decreases, and the reaction to silence. Its first rate is ignored.
    pub variant: Variant,
    /// Timeout of Open.
    pub open_timeout: Duration,
    identity: Arc<Identity>,
    trust: Trust,
}

impl Options {
    /// 128 MiB, 100 Mbit/s and 1,472 bytes, the values of the paper's transfer, whose buffer was
    /// the file. This end presents `identity` and accepts keys for which `trust` returns true.
    pub fn new(identity: Identity, trust: Trust) -> Self {
        Self {
            buffer: ByteCount(128 << 20),
            rate: DataRate::from_mbps(100),
            mtu: ByteCount(1_472),
            variant: Variant::default(),
            open_timeout: Duration::from_secs(10),
            identity: Arc::new(identity),
            trust,
        }
    }

    /// The same, with one trusted key.
    pub fn trusting(identity: Identity, peer: PublicKey) -> Self {
        Self::new(identity, Arc::new(move |shown| *shown == peer))
    }

    fn check(&self) -> Result<(), Error> {
        let buffer = (MIN_BUFFER..=MAX_BUFFER).contains(&self.buffer);
        if buffer && MTUS.contains(&self.mtu.get()) && self.rate > DataRate::ZERO {
            return Ok(());
        }
        Err(Error::Options)
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("buffer", &self.buffer)
            .field("rate", &self.rate)
            .field("mtu", &self.mtu)
            .field("variant", &self.variant)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// The values that both ends use: the smaller of both offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The buffer.
    pub buffer: ByteCount,
    /// The first rate.
    pub rate: DataRate,
    /// Datagram size in bytes.
    pub mtu: ByteCount,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Invalid options.
    #[error("a buffer of 256 KiB to 4 GiB, datagrams of 1200 to 8972 bytes and a rate are wanted")]
    Options,
    /// No connection was made.
    #[error("open: {0}")]
    Open(#[source] io::Error),
    /// The other end did not answer within the timeout.
    #[error("open: the other end does not answer")]
    Silent,
    /// TCP works between the two ends, but UDP does not.
    #[error("open: no datagram gets through")]
    Datagrams,
    /// The other end sent a malformed offer.
    #[error("open: the other end sent a malformed message")]
    Malformed,
    /// No UDP socket could be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The engine refuses the configuration.
    #[error(transparent)]
    Flow(#[from] FlowError),
    /// No thread could be started.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// The connection has ended; unacknowledged data may or may not have arrived.
    #[error("broken: {0}")]
    Broken(CloseReason),
}

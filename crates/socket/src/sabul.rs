//! SABUL's library as its paper has it: Open, Send, Recv and Close (Mazzucco et al., "Simple
//! Available Bandwidth Utilization Library for High-Speed Wide Area Networks", 2001, section 4).
//!
//! One direction. [`Sender::open`] and [`Receiver::open`] meet over TCP and tell each other their
//! largest buffer, first rate and size of datagrams, of which the smaller ones hold. Then data goes by UDP
//! and the receiver's state by that TCP connection.
//!
//! Unlike the rest of this crate it is encrypted and authenticated: the TCP connection is TLS 1.3
//! with raw keys, each end deciding which it trusts, and the datagrams are the native wire of
//! `packtrain cp --transport sabul`, under a secret that the sender makes and tells over TLS. It
//! does not talk to the library of 2001, whose wire nobody wrote down.
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

/// Says which keys of the other end are trusted.
pub type Trust = Arc<dyn Fn(&PublicKey) -> bool + Send + Sync>;

/// The sizes of datagrams that may be offered, in bytes of UDP payload.
pub const MTUS: std::ops::RangeInclusive<u64> = 1_200..=8_972;
/// The least buffer: some hundred datagrams.
pub const MIN_BUFFER: ByteCount = ByteCount(256 << 10);
/// The largest.
pub const MAX_BUFFER: ByteCount = ByteCount(4 << 30);

/// What an end offers.
#[derive(Clone)]
pub struct Options {
    /// The largest buffer: the sender sends so much once before it repeats what was lost of it, and
    /// the receiver keeps no more that nobody took.
    pub buffer: ByteCount,
    /// The first rate.
    pub rate: DataRate,
    /// Bytes of a datagram, UDP payload.
    pub mtu: ByteCount,
    /// Sender: how the rate falls, and what silence does. Its first rate does not count.
    pub variant: Variant,
    /// How long Open may take.
    pub patience: Duration,
    identity: Arc<Identity>,
    trust: Trust,
}

impl Options {
    /// 128 MiB, 100 Mbit/s and 1,472 bytes, the paper's transfer, its buffer being the file; this
    /// end shows `identity` and talks to those that `trust` says yes to.
    pub fn new(identity: Identity, trust: Trust) -> Self {
        Self {
            buffer: ByteCount(128 << 20),
            rate: DataRate::from_mbps(100),
            mtu: ByteCount(1_472),
            variant: Variant::default(),
            patience: Duration::from_secs(10),
            identity: Arc::new(identity),
            trust,
        }
    }

    /// The same for one end whose key is known.
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

/// What the two ends agreed on: the smaller of both offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The buffer.
    pub buffer: ByteCount,
    /// The first rate.
    pub rate: DataRate,
    /// Bytes of a datagram.
    pub mtu: ByteCount,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Options that cannot be had.
    #[error("a buffer of 256 KiB to 4 GiB, datagrams of 1200 to 8972 bytes and a rate are wanted")]
    Options,
    /// The two ends did not meet.
    #[error("open: {0}")]
    Open(#[source] io::Error),
    /// The other end took too long.
    #[error("open: the other end does not answer")]
    Silent,
    /// UDP does not get through between the two ends, though TCP does.
    #[error("open: no datagram gets through")]
    Datagrams,
    /// The other end offers something that makes no sense.
    #[error("open: the other end speaks something else")]
    Senseless,
    /// No UDP socket.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The engine does not take it.
    #[error(transparent)]
    Flow(#[from] FlowError),
    /// No thread.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// The connection is over; what was not acknowledged may or may not have arrived.
    #[error("broken: {0}")]
    Broken(CloseReason),
}

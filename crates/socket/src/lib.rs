//! Sockets that speak the wire of the stock UDT library, version 4: what programs built on UDT,
//! SRT or TCP expect of a socket.
//!
//! A [`Listener`] accepts and [`Socket::connect`] calls; a [`Socket`] carries a stream of bytes
//! ([`Read`](std::io::Read), [`Write`](std::io::Write)) or messages ([`Kind::Datagram`]), blocks or does not, tells its
//! [statistics](Socket::stats), and closes with a linger. Several sockets may share one UDP port,
//! a [`Port`]. For programs that wait for many sockets there are a [`Poller`] and `poll_...`
//! functions for tasks of any runtime; the feature `tokio` adds `AsyncRead` and `AsyncWrite`.
//!
//! ```no_run
//! use packtrain_socket::{Options, Socket};
//!
//! let socket = Socket::connect("192.0.2.1:9000".parse()?, &Options::default())?;
//! socket.send_all(b"all of it")?;
//! socket.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Each port has one thread that owns the UDP socket and sleeps in `ppoll`; the engine is
//! `packtrain_udt4`, under a lock that is not held during system calls. Callers copy their
//! bytes to and from the engine's buffers themselves.
//!
//! **Nothing here is encrypted or authenticated**: that is the stock wire. The module [`sabul`] is:
//! another library's four calls, on our own wire.

mod bell;
mod driver;
mod error;
mod handle;
mod listener;
mod poller;
mod port;
pub mod sabul;
mod shared;
mod socket;
mod tasks;

#[cfg(feature = "tokio")]
mod tokio;

pub use error::Error;
pub use listener::Listener;
pub use packtrain_udt4::{ConnectError, EndReason, Kind, OpenError, Options, Perf, limits};
pub use poller::{Interest, Poller, Ready};
pub use port::Port;
pub use socket::Socket;

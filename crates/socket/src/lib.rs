//! Sockets on the wire of the stock UDT library, version 4, with the functions that users of UDT,
//! SRT or TCP sockets expect.
//!
//! A [`Listener`] accepts connections and [`Socket::connect`] makes them. A [`Socket`] carries a
//! stream of bytes ([`Read`](std::io::Read), [`Write`](std::io::Write)) or messages
//! ([`Kind::Datagram`]), in blocking or non-blocking mode. It has [statistics](Socket::stats), and
//! closes with a linger time. Several sockets may share one UDP port, a [`Port`]. Programs that
//! wait for several sockets can use a [`Poller`], or `poll_...` functions for tasks of any runtime.
//! The feature `tokio` adds `AsyncRead` and `AsyncWrite`.
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
//! Each port has a thread that owns the UDP socket and sleeps in `ppoll`. The engine is
//! `packtrain_udt4`, behind a lock that is not held during system calls. Callers copy their bytes
//! to and from the engine's buffers themselves.
//!
//! **The connections are neither encrypted nor authenticated**, since the stock wire is not. The
//! module [`sabul`] is: it has the four calls of another library, on packtrain's own wire.

mod driver;
mod error;
mod handle;
mod listener;
mod poller;
mod port;
pub mod sabul;
mod shared;
mod signal;
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

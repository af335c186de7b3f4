//! The wire of the stock library UDT4, as client, server and rendezvous, for byte streams and
//! for messages.
//!
//! An [`Endpoint`] is one UDP socket: connections by socket id, and an optional listener. Like a
//! [`Flow`](packtrain_proto::Flow) it reads no clock, opens no socket and starts no thread. Its
//! driver passes received datagrams to [`Endpoint::handle`], sends what [`Endpoint::poll_transmit`]
//! returns, calls back at [`Endpoint::poll_timeout`], and reads events from
//! [`Endpoint::poll_event`]. A [`Connection`] sends and receives.
//!
//! Loss recovery and rates are those of the feedback `udt`; this crate has the codec, the
//! handshake, the buffers and the life cycle of connections. **The stock wire neither encrypts nor
//! authenticates.** `docs/adr/0016-stock-udt-has-a-wire-of-its-own.md` describes which properties
//! of the stock library are kept, repaired or left weak.

mod buffers;
mod connection;
mod cookie;
mod ended;
mod endpoint;
mod error;
mod event;
mod handshake;
mod options;
mod perf;
pub mod wire;

pub use connection::{Connection, Status};
pub use endpoint::{Endpoint, Secret, SocketId};
pub use error::{ConnectError, EndReason, OpenError, SocketError};
pub use event::Event;
pub use options::{Kind, Options, limits};
pub use perf::Perf;

#[cfg(test)]
mod tests;

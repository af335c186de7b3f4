//! The wire of the stock library UDT4, as client, server and rendezvous, for byte streams and
//! for messages.
//!
//! An [`Endpoint`] is one UDP socket: connections by socket id, and a listener if asked for. Like
//! a [`Flow`](packtrain_proto::Flow) it reads no clock, opens no socket and starts no thread: its driver
//! hands it what arrived ([`Endpoint::handle`]), asks what to send ([`Endpoint::poll_transmit`])
//! and when to come back ([`Endpoint::poll_timeout`]); what happened comes by
//! [`Endpoint::poll_event`]. A [`Connection`] of it sends and receives.
//!
//! Loss recovery and rates are those of the feedback `udt`; this crate is the codec, the
//! handshake, the buffers and the life of a connection. **Everything is in clear, and nothing is
//! authenticated**: that is the stock wire. What is kept of it, repaired and left weak is told in
//! `docs/adr/0016-stock-udt-has-a-wire-of-its-own.md`.

mod buffers;
mod connection;
mod cookie;
mod endpoint;
mod error;
mod event;
mod handshake;
mod options;
mod perf;
mod tombs;
pub mod wire;

pub use connection::{Connection, Status};
pub use endpoint::{Endpoint, Secret, SocketId};
pub use error::{ConnectError, EndReason, OpenError, SocketError};
pub use event::Event;
pub use options::{Kind, Options, limits};
pub use perf::Perf;

#[cfg(test)]
mod tests;

//! Reports of a server.

use std::net::SocketAddr;

use super::report::Notice;
use super::request::Outcome;

/// A transfer in which a server was the called end.
#[derive(Clone, Copy, Debug)]
pub struct ServedTransfer<'a> {
    /// The client's address, and its key's fingerprint if it has one.
    pub peer: &'a str,
    /// The path that the client named, escaped; of several paths the first, and the number of the
    /// others.
    pub path: &'a str,
    /// Direction of the bytes, as seen from the server.
    pub direction: Direction,
    /// The outcome.
    pub outcome: &'a Outcome,
}

/// Direction of the bytes of a transfer, as seen from one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To this end.
    In,
    /// From this end.
    Out,
}

impl Direction {
    /// The value in events.
    pub const fn word(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
        }
    }
}

/// Receives the events of a server. Calls come from several threads.
pub trait ServeReporter: Send + Sync {
    /// The server listens at this address; `fingerprint` is that of its host key, if it has one.
    fn listening(&self, address: SocketAddr, fingerprint: Option<&str>);
    /// A transfer has ended, successfully or not.
    fn finished(&self, transfer: &ServedTransfer<'_>);
    /// A message for the administrator: a refused key, a failed client.
    fn notice(&self, notice: &Notice);
}

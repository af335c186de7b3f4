//! What a server tells.

use std::net::SocketAddr;

use super::report::Notice;
use super::request::Outcome;

/// A transfer in which a server was the called end.
#[derive(Clone, Copy, Debug)]
pub struct ServedTransfer<'a> {
    /// The client's address, and its key's fingerprint if it has one.
    pub peer: &'a str,
    /// The path that the client named; of several the first, and how many more. Escaped for people.
    pub path: &'a str,
    /// Where the bytes went, as seen from the server.
    pub direction: Direction,
    /// What came of it.
    pub outcome: &'a Outcome,
}

/// Where the bytes of a transfer go, as seen from one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To this end.
    In,
    /// From this end.
    Out,
}

impl Direction {
    /// Its word in events.
    pub const fn word(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
        }
    }
}

/// Hears what a server does. Calls come from several threads.
pub trait ServeReporter: Send + Sync {
    /// It listens there; `fingerprint` is that of its host key, if it has one.
    fn listening(&self, address: SocketAddr, fingerprint: Option<&str>);
    /// A transfer is over, well or not.
    fn finished(&self, transfer: &ServedTransfer<'_>);
    /// Something to say: a refused key, a broken client.
    fn notice(&self, notice: &Notice);
}

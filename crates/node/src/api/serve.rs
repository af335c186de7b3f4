//! `serve` and `key`.

use std::net::SocketAddr;
use std::path::PathBuf;

use packtrain_units::{DataRate, Duration};

use super::cp::{Outcome, PortRange};
use super::report::Notice;
use super::stop::StopHandle;
use crate::address_policy::AllowRule;
use crate::history::Keep;

pub use crate::serve::ClientLimits;

/// `serve --listen`.
#[derive(Clone, Debug)]
pub struct ServeRequest {
    /// Where to listen, `ADDR:PORT`.
    pub listen: String,
    /// Everything a client sees lies below; a key may have a root of its own below it.
    pub root: PathBuf,
    /// Whose keys may use it; the user's own file if none.
    pub authorized_keys: Option<PathBuf>,
    /// Where to write a one-time ticket.
    pub ticket_file: Option<PathBuf>,
    /// How long the ticket opens the server.
    pub ticket_lifetime: Duration,
    /// Ports for data; any if none.
    pub ports: Option<PortRange>,
    /// Nobody writes.
    pub read_only: bool,
    /// Clients may set owners, and set-user-id and set-group-id bits, of what they write.
    pub allow_owner: bool,
    /// Ceiling of any transfer's sending rate (site policy).
    pub rate: Option<DataRate>,
    /// How many clients there may be.
    pub limits: ClientLimits,
    /// How long transfers under way have to end once the server was asked to stop.
    pub drain: Duration,
    /// Where data connections may go besides to the client itself, if it names another end.
    pub dial_to: Vec<AllowRule>,
    /// Where rows of transfers go.
    pub history: Keep,
    /// Asks for an orderly end.
    pub stop: StopHandle,
}

/// `serve --udt4`.
#[derive(Clone, Debug)]
pub struct Udt4ServeRequest {
    /// Where to listen, `ADDR:PORT`.
    pub listen: String,
    /// Everything below it may be read by whoever comes.
    pub root: PathBuf,
    /// The congestion controller; the stock library's if none.
    pub cc: Option<String>,
    /// Ceiling of the sending rate to one client.
    pub rate: Option<DataRate>,
    /// Where rows of transfers go.
    pub history: Keep,
    /// Asks for an orderly end.
    pub stop: StopHandle,
}

/// A key, as `key show` prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyInfo {
    /// Where it is kept.
    pub path: PathBuf,
    /// The line for another's `authorized_keys`.
    pub public: String,
    /// Its fingerprint, as errors and `known_hosts` messages show it.
    pub fingerprint: String,
}

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

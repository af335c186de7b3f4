//! What `depot` is asked and what it tells.

use std::net::SocketAddr;
use std::path::PathBuf;

use packtrain_units::{ByteCount, Duration};

use super::{DepotLimits, DepotSpool, DepotStats};
use packtrain_service::address_policy::AllowRule;
use packtrain_service::{Notice, Place, PortRange, StopHandle};

/// `depot`.
#[derive(Clone, Debug)]
pub struct DepotRequest {
    /// Where to listen, `ADDR:PORT`.
    pub listen: String,
    /// Whose sessions are relayed; the user's own file if none.
    pub authorized_keys: Option<PathBuf>,
    /// Where sessions may go: nowhere else.
    pub allow: Vec<AllowRule>,
    /// What it takes on.
    pub limits: DepotLimits,
    /// The most depots on a route.
    pub hop_limit: u8,
    /// A session in which nothing moves for so long is over.
    pub idle: Duration,
    /// How long sessions under way have when it is asked to end.
    pub drain: Duration,
    /// TCP's buffers on both sides, instead of the kernel's autotuning.
    pub buffers: Option<ByteCount>,
    /// The kernel's congestion control towards the next hop.
    pub tcp_cc: Option<String>,
    /// Local ports of datagrams; any if none.
    pub ports: Option<PortRange>,
    /// Flows of datagrams at a time, each with a thread.
    pub flows: u32,
    /// Bytes go through memory even where the kernel could pass them on.
    pub copy: bool,
    /// Where figures may be read, on this machine.
    pub metrics: Option<String>,
    /// How often figures are told.
    pub interval: Duration,
    /// Where sessions are kept whose receivers come later; none are if none.
    pub spool: Option<DepotSpool>,
    /// The depots that it measures the paths to, in turns with them.
    pub clique: Option<DepotClique>,
    /// Asks for an orderly end.
    pub stop: StopHandle,
}

/// Depots that probe the paths between them, one at a time.
#[derive(Clone, Debug)]
pub struct DepotClique {
    /// What the others call this one.
    pub name: Place,
    /// The others.
    pub peers: Vec<Place>,
    /// The most bytes that probes move in an hour, sent and taken.
    pub budget: ByteCount,
}

/// A session that is over, or was never let in.
#[derive(Clone, Debug, PartialEq)]
pub struct DepotSession {
    /// Its number, if it said one.
    pub id: Option<String>,
    /// Where it came from, and the sender's key.
    pub peer: String,
    /// Where it was passed on to.
    pub to: String,
    /// How long it took.
    pub elapsed: Duration,
    /// Bytes there and back.
    pub bytes: (ByteCount, ByteCount),
    /// How this depot was reached, and how it reaches the next.
    pub by: (&'static str, &'static str),
    /// Whether datagrams carried something on those hops.
    pub carried: (bool, bool),
    /// Whether no datagram got through on those hops, so that TCP carried them.
    pub fell_back: (bool, bool),
    /// Why it was refused: the reason's word.
    pub refused: Option<&'static str>,
    /// What ended it, if it did not end by itself.
    pub failure: Option<String>,
}

/// Something became of a session that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DepotKept {
    /// What: `kept` (all of it is safe here), `forwarded`, `claimed`, `released`, `expired` or
    /// `dropped`.
    pub what: &'static str,
    /// Its number.
    pub session: String,
    /// The fingerprint of its sender's key.
    pub key: String,
    /// The bytes that are here.
    pub bytes: ByteCount,
    /// The depot behind that it is about, if it is about one.
    pub place: String,
}

/// Hears what a depot does. Calls come from several threads and must not block for long.
pub trait DepotReporter: Send + Sync {
    /// It listens there; `metrics` is where its figures are.
    fn listening(&self, address: SocketAddr, metrics: Option<SocketAddr>);
    /// A session is over, or was refused.
    fn session(&self, session: &DepotSession);
    /// Figures, at each interval and at the end.
    fn stats(&self, stats: &DepotStats);
    /// Something became of a session that is kept.
    fn kept(&self, _kept: &DepotKept) {}
    /// Something to say.
    fn notice(&self, notice: &Notice);
}

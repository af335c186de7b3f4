//! What `depot` is asked and what it tells.

use std::net::SocketAddr;
use std::path::PathBuf;

use packtrain_units::{ByteCount, Duration};

use super::admission::DepotLimits;
use super::events::{DepotClique, DepotKept, DepotSession};
use super::metrics::DepotStats;
use super::spool::DepotSpool;
use packtrain_service::address_policy::AllowRule;
use packtrain_service::{Notice, PortRange, StopHandle};

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

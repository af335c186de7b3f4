//! The request and the reports of `depot`.

use std::net::SocketAddr;
use std::path::PathBuf;

use packtrain_units::{ByteCount, Duration};

use super::admission::DepotLimits;
use super::events::{DepotClique, DepotSession, DepotSpoolEvent};
use super::metrics::DepotStats;
use super::routes::RouteTable;
use super::spool::DepotSpool;
use packtrain_service::address_policy::AllowRule;
use packtrain_service::{Notice, PortRange, StopHandle};

/// `depot`.
#[derive(Clone, Debug)]
pub struct DepotRequest {
    /// The address to listen at, `ADDR:PORT`.
    pub listen: String,
    /// The file of the admitted keys; the user's own file if `None`.
    pub authorized_keys: Option<PathBuf>,
    /// The allowed destinations.
    pub allow: Vec<AllowRule>,
    /// The next depots of sessions that are forwarded by destination.
    pub routes: RouteTable,
    /// The limits of admission.
    pub limits: DepotLimits,
    /// Maximum number of depots on a route.
    pub hop_limit: u8,
    /// A session in which no byte moves for this long is ended.
    pub idle: Duration,
    /// How long running sessions may continue after a request to stop.
    pub drain: Duration,
    /// Size of TCP's buffers on both sides; `None` leaves them to the kernel.
    pub buffers: Option<ByteCount>,
    /// The kernel's congestion control towards both sides.
    pub tcp_cc: Option<String>,
    /// Local UDP ports; any if `None`.
    pub ports: Option<PortRange>,
    /// Maximum concurrent flows of datagrams; each has a thread.
    pub flows: u32,
    /// Relay bytes through memory even if the kernel could relay them.
    pub copy: bool,
    /// Local address of the Prometheus endpoint.
    pub metrics: Option<String>,
    /// How often counters are reported.
    pub interval: Duration,
    /// Where sessions are kept for later receivers; `None` keeps no sessions.
    pub spool: Option<DepotSpool>,
    /// The depots with which it takes turns to probe the paths between them.
    pub clique: Option<DepotClique>,
    /// Requests an orderly end.
    pub stop: StopHandle,
}

/// Receives the events of a depot. Calls come from several threads and must not block for long.
pub trait DepotReporter: Send + Sync {
    /// The depot listens at this address; `metrics` is the address of its Prometheus endpoint.
    fn listening(&self, address: SocketAddr, metrics: Option<SocketAddr>);
    /// A session has ended, or was refused.
    fn session(&self, session: &DepotSession);
    /// The counters, at each interval and at the end.
    fn stats(&self, stats: &DepotStats);
    /// An event of a kept session.
    fn kept(&self, _kept: &DepotSpoolEvent) {}
    /// A message for the administrator.
    fn notice(&self, notice: &Notice);
}

//! The request of `serve`.

use std::path::PathBuf;

use packtrain_units::{DataRate, Duration};

use super::ClientLimits;
use packtrain_service::address_policy::AllowRule;
use packtrain_service::{HistoryConfig, PortRange, StopHandle};

/// `serve --listen`.
#[derive(Clone, Debug)]
pub struct ServeRequest {
    /// The address to listen at, `ADDR:PORT`.
    pub listen: String,
    /// The directory that clients see; a key may have a directory of its own below it.
    pub root: PathBuf,
    /// The file of the admitted keys; the user's own file if `None`.
    pub authorized_keys: Option<PathBuf>,
    /// The file for a one-time ticket.
    pub ticket_file: Option<PathBuf>,
    /// How long the ticket is valid.
    pub ticket_lifetime: Duration,
    /// Ports for data; any if `None`.
    pub ports: Option<PortRange>,
    /// Refuse all writes.
    pub read_only: bool,
    /// Clients may set owners, and set-user-id and set-group-id bits, of the files that they write.
    pub allow_owner: bool,
    /// Limit of the rate of each transfer.
    pub rate: Option<DataRate>,
    /// Limits of concurrent clients.
    pub limits: ClientLimits,
    /// How long running transfers may continue after the request to stop.
    pub drain: Duration,
    /// Further addresses that data connections may go to, if the client names another end.
    pub dial_to: Vec<AllowRule>,
    /// Where rows of transfers are stored.
    pub history: HistoryConfig,
    /// Requests an orderly end.
    pub stop: StopHandle,
}

//! What `serve` is asked.

use std::path::PathBuf;

use packtrain_units::{DataRate, Duration};

use super::ClientLimits;
use packtrain_service::address_policy::AllowRule;
use packtrain_service::{HistoryConfig, PortRange, StopHandle};

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
    pub history: HistoryConfig,
    /// Asks for an orderly end.
    pub stop: StopHandle,
}

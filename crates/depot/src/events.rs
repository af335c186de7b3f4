//! Events about sessions, and the settings of a clique.

use packtrain_service::Place;
use packtrain_units::{ByteCount, Duration};

/// Depots that probe the paths between them, one at a time.
#[derive(Clone, Debug)]
pub struct DepotClique {
    /// The name of this depot at the others.
    pub name: Place,
    /// The others.
    pub peers: Vec<Place>,
    /// Maximum bytes that probes send and receive in an hour.
    pub budget: ByteCount,
}

/// A session that has ended, or that was refused.
#[derive(Clone, Debug, PartialEq)]
pub struct DepotSession {
    /// Its id, if the header was read.
    pub id: Option<String>,
    /// The caller's address, and the fingerprint of the sender's key.
    pub peer: String,
    /// The next hop.
    pub to: String,
    /// Its duration.
    pub elapsed: Duration,
    /// Bytes towards the destination, and back.
    pub bytes: (ByteCount, ByteCount),
    /// The transport of the hop to this depot, and of the hop to the next.
    pub by: (&'static str, &'static str),
    /// Whether datagrams carried data on these hops.
    pub carried: (bool, bool),
    /// Whether no datagram arrived on these hops, so that TCP was used.
    pub fell_back: (bool, bool),
    /// The reason of a refusal.
    pub refused: Option<&'static str>,
    /// The error that ended it, if any.
    pub failure: Option<String>,
}

/// An event of a kept session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DepotSpoolEvent {
    /// The event: `kept` (everything is durable here), `forwarded`, `claimed`, `released`,
    /// `expired` or `dropped`.
    pub what: &'static str,
    /// The id of the session.
    pub session: String,
    /// The fingerprint of its sender's key.
    pub key: String,
    /// The bytes of the session on this depot.
    pub bytes: ByteCount,
    /// The next depot that the event concerns, if any.
    pub place: String,
}

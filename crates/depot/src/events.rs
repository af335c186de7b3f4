//! What a depot tells of sessions, and the depots that it takes turns with.

use packtrain_service::Place;
use packtrain_units::{ByteCount, Duration};

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

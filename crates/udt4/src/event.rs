//! What an endpoint tells its owner of a connection.

use super::error::EndReason;

/// What the owner is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A connection that was asked for stands.
    Connected,
    /// A connection came in; [`Endpoint::accept`](crate::Endpoint::accept) has it.
    Incoming,
    /// There is something to read, where there was nothing.
    Readable,
    /// There is room again, where a send did not take all.
    Writable,
    /// It is over. What arrived can be read until it is closed; one that was closed is gone with
    /// this event.
    Ended(EndReason),
}

//! Events of a connection for its owner.

use super::error::EndReason;

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A requested connection is open.
    Connected,
    /// A connection arrived; [`Endpoint::accept`](crate::Endpoint::accept) returns it.
    Incoming,
    /// There is data to read where there was none.
    Readable,
    /// There is room again after a send that did not take all bytes.
    Writable,
    /// The connection has ended. Received data can be read until it is closed; one that was closed
    /// is removed with this event.
    Ended(EndReason),
}

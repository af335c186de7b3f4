//! The purpose of a database connection, and its timeout.

use std::time::Duration;

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Read,
    Write,
}

/// Timeout for connecting to the database, for locks of other clients, and for an answer.
pub(crate) const DATABASE_TIMEOUT: Duration = Duration::from_secs(3);

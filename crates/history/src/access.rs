//! How a database is used, and how long it may take.

use std::time::Duration;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    Write,
}

/// How long a database may take to connect, to let others finish, to answer.
pub(crate) const DATABASE_TIMEOUT: Duration = Duration::from_secs(3);

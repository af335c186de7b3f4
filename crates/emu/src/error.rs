//! Errors before and during an emulation.

use std::io;

/// Why an emulation failed.
#[derive(Debug, thiserror::Error)]
pub enum EmuError {
    /// The system does not let this user create network namespaces.
    #[error(
        "this system does not let this user make network namespaces ({0}): run as root, or allow \
         unprivileged user namespaces (sysctl user.max_user_namespaces, \
         kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)"
    )]
    Forbidden(String),
    /// The values do not describe a valid network.
    #[error("{0}")]
    Topology(String),
    /// No emulation runs, none matches, or several do.
    #[error("{0}")]
    NotFound(String),
    /// A program could not be started.
    #[error("{program}: {source}")]
    Start {
        /// Its name.
        program: String,
        /// The cause.
        source: io::Error,
    },
    /// The emulator's process ended without a message.
    #[error("the emulation ended without a report: {0}")]
    Died(String),
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// What was attempted.
        what: String,
        /// The cause.
        source: io::Error,
    },
}

/// Adds what was attempted to an error.
pub(crate) trait Tried<T> {
    /// The same result with `what` in its error.
    fn tried(self, what: impl Into<String>) -> Result<T, EmuError>;
}

impl<T, E: Into<io::Error>> Tried<T> for Result<T, E> {
    fn tried(self, what: impl Into<String>) -> Result<T, EmuError> {
        self.map_err(|error| EmuError::System { what: what.into(), source: error.into() })
    }
}

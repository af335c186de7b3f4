//! What can go wrong before and while an emulation runs.

use std::io;

/// Why there is no emulation.
#[derive(Debug, thiserror::Error)]
pub enum EmuError {
    /// The system does not let this user make network namespaces.
    #[error(
        "this system does not let this user make network namespaces ({0}): run as root, or allow \
         unprivileged user namespaces (sysctl user.max_user_namespaces, \
         kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)"
    )]
    Forbidden(String),
    /// The values make no network.
    #[error("{0}")]
    Topology(String),
    /// No running emulation, or none that fits, or several.
    #[error("{0}")]
    NotFound(String),
    /// A program that was to run could not be started.
    #[error("{program}: {source}")]
    Start {
        /// Its name.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// The emulation's own process ended without a word.
    #[error("the emulation ended without a report: {0}")]
    Died(String),
    /// Something else that the system refused.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// Why not.
        source: io::Error,
    },
}

/// Names what was tried.
pub(crate) trait Tried<T> {
    /// The same result, with what was tried in its error.
    fn tried(self, what: impl Into<String>) -> Result<T, EmuError>;
}

impl<T, E: Into<io::Error>> Tried<T> for Result<T, E> {
    fn tried(self, what: impl Into<String>) -> Result<T, EmuError> {
        self.map_err(|error| EmuError::System { what: what.into(), source: error.into() })
    }
}

//! Errors in a scenario.

/// Why a scenario was not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimError {
    /// An invalid value.
    #[error("{path}: {what}")]
    Invalid {
        /// Its path, as in `flows[2].cc` or `links[0].queue`: the fields of [`crate::spec`],
        /// indices from zero.
        path: String,
        /// The error and its correction.
        what: String,
    },
}

impl SimError {
    /// An invalid value.
    pub(crate) fn invalid(path: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Invalid { path: path.into(), what: what.into() }
    }
}

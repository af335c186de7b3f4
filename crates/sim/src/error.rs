//! What can be wrong with a scenario.

/// Why a scenario was not played.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimError {
    /// A value that cannot be.
    #[error("{path}: {what}")]
    Invalid {
        /// Where, as in `flows[2].cc` or `links[0].queue`: the fields of [`crate::spec`], indices
        /// from zero.
        path: String,
        /// What is wrong and what would be right.
        what: String,
    },
}

impl SimError {
    /// A value that cannot be.
    pub(crate) fn invalid(path: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Invalid { path: path.into(), what: what.into() }
    }
}

//! Errors of the history.

/// Why an operation on the history failed. Such an error never fails a transfer.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// A newer version of packtrain created it.
    #[error(
        "the history at {place} has schema {found}, this version knows {known}: use the newer \
         packtrain, or another place"
    )]
    Newer {
        /// Its place.
        place: String,
        /// Its schema.
        found: i64,
        /// The newest schema that this version supports.
        known: i64,
    },
    /// The file is not a database, or damaged.
    #[error("the history at {place} is damaged ({text}): move the file away, a new one is made")]
    Damaged {
        /// Its place.
        place: String,
        /// The message of the database.
        text: String,
    },
    /// The history does not exist yet.
    #[error("there is no history at {place} yet")]
    Absent {
        /// Its place.
        place: String,
    },
    /// Any other error: no space, no permission, no answer.
    #[error("the history at {place}: {text}")]
    Other {
        /// Its place.
        place: String,
        /// The message of the system or the database.
        text: String,
    },
}

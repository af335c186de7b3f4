//! What keeps rows from being kept or found.

/// Why the history did not do what was asked. A transfer never fails of it.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// A version of the program that came later made it.
    #[error(
        "the history at {place} has schema {found}, this version knows {known}: use the newer \
         packtrain, or another place"
    )]
    Newer {
        /// Where it is.
        place: String,
        /// The schema there.
        found: i64,
        /// The newest known here.
        known: i64,
    },
    /// The file is no database, or a broken one.
    #[error("the history at {place} is damaged ({text}): move the file away, a new one is made")]
    Damaged {
        /// Where it is.
        place: String,
        /// In the database's words.
        text: String,
    },
    /// There is no history yet.
    #[error("there is no history at {place} yet")]
    Absent {
        /// Where it would be.
        place: String,
    },
    /// Anything else: no room, no right to write, no answer.
    #[error("the history at {place}: {text}")]
    Other {
        /// Where it is.
        place: String,
        /// In the system's or the database's words.
        text: String,
    },
}

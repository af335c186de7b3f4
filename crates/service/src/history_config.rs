//! Whether and where rows of the history are kept.

use std::path::PathBuf;

use packtrain_history::{Place, Retention};
use packtrain_identity::config::Dirs;

/// Whether, where and how long rows are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryConfig {
    /// The place.
    pub place: HistoryPlace,
    /// The limits of number and age.
    pub retention: Retention,
}

/// Where rows are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HistoryPlace {
    /// `history.db` in the state directory.
    #[default]
    State,
    /// No database. Only `diagnose` finds the last transfers.
    Nowhere,
    /// This place.
    At(Place),
}

impl HistoryConfig {
    /// The place of the database; `None` without a database or a home directory.
    pub fn place(&self) -> Option<Place> {
        match &self.place {
            HistoryPlace::State => state().map(|dir| Place::File(dir.join("history.db"))),
            HistoryPlace::Nowhere => None,
            HistoryPlace::At(place) => Some(place.clone()),
        }
    }
}

/// The state directory.
pub(crate) fn state() -> Option<PathBuf> {
    Dirs::from_env().ok().map(|dirs| dirs.state)
}

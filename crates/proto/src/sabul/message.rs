//! What the two ends tell each other over the channel that loses nothing.

use packtrain_units::{DataRate, Duration};

/// A message of either end. Unit numbers are dense and never wrap here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// Receiver: communication state information (section 3).
    State(State),
    /// Sender: there are no units beyond these for now.
    Buffer {
        /// Behind the last of them.
        end: u64,
    },
    /// Sender: these units will not come (again).
    Drop {
        /// The first of them.
        first: u64,
        /// Behind the last of them.
        end: u64,
    },
}

/// The state of the receiver (section 4).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Missing units: half-open ranges, ascending and apart, none empty. Those just found missing,
    /// or with `whole` all of them.
    pub(crate) lost: Vec<(u64, u64)>,
    /// `lost` lists all that is missing below this unit.
    pub(crate) whole: Option<u64>,
    /// How many units are missing.
    pub(crate) missing: u64,
    /// How many have come, each counted once.
    pub(crate) received: u64,
    /// All below have come, or were dropped.
    pub(crate) next: u64,
    /// The highest that came, and how long ago.
    pub(crate) top: Option<(u64, Duration)>,
    /// How many units from `next` on it has room for: its available buffer.
    pub(crate) room: u64,
    /// The rate that it asks for, if it asks for one.
    pub(crate) requested: Option<DataRate>,
    /// END: all that the sender said there is has come.
    pub(crate) end: bool,
}

//! Messages of both ends on the reliable channel.

use packtrain_units::{DataRate, Duration};

/// A message of either end. Unit numbers are dense and never wrap here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// Receiver: communication state information (section 3).
    State(State),
    /// Sender: there are no units beyond these for now.
    Buffer {
        /// One past the last of them.
        end: u64,
    },
    /// Sender: these units will not be sent (again).
    Drop {
        /// The first of them.
        first: u64,
        /// One past the last of them.
        end: u64,
    },
}

/// The state of the receiver (section 4).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Missing units: half-open ranges, ascending and not adjacent, none empty. Only those newly
    /// found missing, or with `whole` all of them.
    pub(crate) lost: Vec<(u64, u64)>,
    /// `lost` lists all missing units below this one.
    pub(crate) whole: Option<u64>,
    /// Number of missing units.
    pub(crate) missing: u64,
    /// Number of units that arrived, each counted once.
    pub(crate) received: u64,
    /// All units below have arrived or were dropped.
    pub(crate) next: u64,
    /// The highest unit that arrived, and its age.
    pub(crate) top: Option<(u64, Duration)>,
    /// Number of units from `next` on that it has room for: its available buffer.
    pub(crate) room: u64,
    /// The requested rate, if any.
    pub(crate) requested: Option<DataRate>,
    /// END: all units that the sender announced have arrived.
    pub(crate) end: bool,
}

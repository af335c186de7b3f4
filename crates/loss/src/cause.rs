//! The causes a loss can have.

use serde::{Deserialize, Serialize};

/// Why packets of a window were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// A queue on the path had no room: slow down.
    Network,
    /// The receiving host did not take packets from its own buffers: the path is not full.
    Cpu,
    /// Both of these.
    Hybrid,
    /// The link damaged or dropped packets whatever the load.
    Link,
    /// The signature does not tell. To be treated like [`Cause::Network`].
    Inconclusive,
}

impl Cause {
    /// The causes that a signature can have in truth.
    pub const TRUE: [Self; 4] = [Self::Network, Self::Cpu, Self::Hybrid, Self::Link];

    /// Its word in JSON and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Cpu => "cpu",
            Self::Hybrid => "hybrid",
            Self::Link => "link",
            Self::Inconclusive => "inconclusive",
        }
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

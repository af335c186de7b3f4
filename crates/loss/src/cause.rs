//! The causes a loss can have.

use serde::{Deserialize, Serialize};

/// Why packets of a window were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// A queue on the path overflowed: slow down.
    Network,
    /// The receiving host did not read packets from its own buffers: the path is not full.
    Cpu,
    /// Both of these.
    Hybrid,
    /// The link damaged or dropped packets independently of the load.
    Link,
    /// The signature does not determine the cause. Treat it like [`Cause::Network`].
    Inconclusive,
}

impl Cause {
    /// The possible true causes.
    pub const TRUE: [Self; 4] = [Self::Network, Self::Cpu, Self::Hybrid, Self::Link];

    /// Its name in JSON and in tables.
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

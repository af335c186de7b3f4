//! Cross traffic: packets that nobody acknowledges.

use packtrain_units::{ByteCount, DataRate, Duration, Time};

/// Packets that come whether or not the network bears them.
#[derive(Clone, Debug, PartialEq)]
pub struct CrossConfig {
    /// Bytes of each packet from the network header on.
    pub packet: ByteCount,
    /// How they come.
    pub kind: CrossKind,
}

/// How cross traffic comes.
#[derive(Clone, Debug, PartialEq)]
pub enum CrossKind {
    /// Evenly, at a rate that changes at given times after the start; rate zero is silence.
    Cbr(Vec<(Time, DataRate)>),
    /// With exponential gaps, at this mean rate.
    Poisson(DataRate),
    /// Bursts at this rate while on, silence while off; both lengths Pareto with this shape.
    ParetoOnOff {
        /// While on.
        rate: DataRate,
        /// Mean length of a burst.
        on: Duration,
        /// Mean length of a silence.
        off: Duration,
        /// Between one and two for long-range dependence.
        shape: f64,
    },
    /// So many packets back to back at this rate of the sending interface, with exponential gaps,
    /// at this mean rate: what segmentation offload makes of a sender.
    Bursts {
        /// Packets of a burst.
        packets: u32,
        /// Rate within a burst.
        line: DataRate,
        /// Mean rate.
        mean: DataRate,
    },
}

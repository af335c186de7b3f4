//! The signals and the overhead of each feedback kind.

use packtrain_cc::{Signal, Signals};

use crate::codec::header::{DATA_OVERHEAD, UNIT_OVERHEAD};
use crate::config::FeedbackKind;
use crate::{fobs, sabul, udt};

impl FeedbackKind {
    /// The signals that it provides. A flow refuses a controller that needs others.
    pub fn provides(self) -> Signals {
        match self {
            Self::Native => native_signals(),
            Self::Udt(variant) => udt::signals(variant),
            Self::Fobs => fobs::signals(),
            Self::Sabul => sabul::signals(),
        }
    }

    /// Bytes of a data packet beside its payload.
    pub(crate) fn overhead(self) -> usize {
        match self {
            Self::Native => DATA_OVERHEAD,
            Self::Udt(_) | Self::Fobs | Self::Sabul => UNIT_OVERHEAD,
        }
    }
}

/// The signals that the native feedback provides.
fn native_signals() -> Signals {
    Signals::of(&[
        Signal::Rtt,
        Signal::QueueingDelay,
        Signal::DeliveryRate,
        Signal::ArrivalRate,
        Signal::Capacity,
        Signal::Losses,
        Signal::HostDrops,
        Signal::Ecn,
        Signal::DelayTrend,
    ])
}

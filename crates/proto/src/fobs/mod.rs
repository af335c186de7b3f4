//! FOBS's feedback (Dickens, "A Lightweight, High Performance Communication Protocol for Grid
//! Computing"): every packet has a number, and the receiver answers with bitmaps of which came.
//! No I/O, no codec.
//!
//! The paper's receiver answers at the end of a window of 100 MB. Here a bitmap comes every few
//! milliseconds, of what came since the third last one, and all of it when the sender asks: room,
//! repairs and the circuit breaker cannot wait for 100 MB. The *signature* is still that of a whole
//! window, and it is the controller that collects it (`packtrain_cc::Collector`).
//!
//! What leaves when, and again, is the business of UDT's sender, which knows nothing of ACK
//! timers: the [`Reader`] makes acknowledgements and losses of bitmaps for it.
//!
//! | file | what |
//! |---|---|
//! | `receiver` | what came, and when to tell it |
//! | `reader` | what a bitmap means to the sender: what is acknowledged, what is lost, the round trip |

mod reader;
mod receiver;

use packtrain_cc::{Signal, Signals};
use packtrain_units::Duration;

pub(crate) use self::reader::Reader;
pub(crate) use self::receiver::Receiver;

/// Most units of one bitmap: what a datagram of the least size holds.
pub(crate) const PIECE: u64 = 7_680;

/// The signals that this feedback provides.
pub(crate) fn signals() -> Signals {
    Signals::of(&[Signal::Rtt, Signal::DeliveryRate, Signal::Losses, Signal::HostDrops])
}

/// One acknowledgement, or a piece of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bitmap {
    /// Counts acknowledgements; pieces of one have the same number.
    pub(crate) number: u64,
    /// The first unit that has not come: all below have.
    pub(crate) next: u64,
    /// Behind the highest unit that came.
    pub(crate) top: u64,
    /// How many units beyond `next` came.
    pub(crate) held: u64,
    /// How many units from `next` on the receiver has room for.
    pub(crate) room: u64,
    /// The unit that came last of those that raised `top`, and how long ago it came; none before
    /// the first. It measures the round trip.
    pub(crate) newest: Option<(u64, Duration)>,
    /// What the bitmap is of.
    pub(crate) start: u64,
    /// Behind the last unit that it is of.
    pub(crate) end: u64,
    /// Units of it that came, as ascending, disjoint, non-adjacent ranges.
    pub(crate) runs: Vec<(u64, u64)>,
}

impl Bitmap {
    /// The units of it that have not come.
    pub(crate) fn missing(&self) -> impl Iterator<Item = (u64, u64)> {
        let ends = self.runs.iter().map(|run| run.1);
        let starts = self.runs.iter().map(|run| run.0).chain([self.end]);
        std::iter::once(self.start).chain(ends).zip(starts).filter(|(a, b)| a < b)
    }
}

#[cfg(test)]
mod tests;

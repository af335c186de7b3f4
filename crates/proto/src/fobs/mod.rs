//! FOBS's feedback (Dickens, "A Lightweight, High Performance Communication Protocol for Grid
//! Computing"): every packet has a number, and the receiver answers with bitmaps of the packets
//! that arrived. No I/O, no codec.
//!
//! The paper's receiver answers at the end of a window of 100 MB. Here a bitmap is sent every few
//! milliseconds for the packets since the third last bitmap, and for all packets when the sender
//! requests it, because room, repairs and the circuit breaker cannot wait for 100 MB. The
//! *signature* still covers a whole window; the controller collects it (`packtrain_cc::Collector`).
//!
//! UDT's sender decides when units are sent and retransmitted. It has no ACK timers: the
//! [`Reader`] converts bitmaps to acknowledgements and losses for it.
//!
//! | file | contents |
//! |---|---|
//! | `receiver` | the received units, and the times of bitmaps |
//! | `reader` | from a bitmap to acknowledgements, losses and the round trip |

mod reader;
mod receiver;

use packtrain_cc::{Signal, Signals};
use packtrain_units::Duration;

pub(crate) use self::reader::Reader;
pub(crate) use self::receiver::Receiver;

/// Maximum units of one bitmap: what a datagram of the minimum size holds.
pub(crate) const PIECE: u64 = 7_680;

/// The signals that this feedback provides.
pub(crate) fn signals() -> Signals {
    Signals::of(&[Signal::Rtt, Signal::DeliveryRate, Signal::Losses, Signal::HostDrops])
}

/// An acknowledgement, or a piece of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bitmap {
    /// Number of the acknowledgement; its pieces have the same number.
    pub(crate) number: u64,
    /// The first unit that has not arrived.
    pub(crate) next: u64,
    /// One past the highest unit that arrived.
    pub(crate) top: u64,
    /// Number of units beyond `next` that arrived.
    pub(crate) held: u64,
    /// How many units from `next` on the receiver has room for.
    pub(crate) room: u64,
    /// The newest unit that raised `top`, and its age; none before the first unit. It measures the
    /// round trip.
    pub(crate) newest: Option<(u64, Duration)>,
    /// The first unit of the bitmap.
    pub(crate) start: u64,
    /// One past the last unit of the bitmap.
    pub(crate) end: u64,
    /// The units in it that arrived, as ascending, disjoint, non-adjacent ranges.
    pub(crate) runs: Vec<(u64, u64)>,
}

impl Bitmap {
    /// The units in it that have not arrived.
    pub(crate) fn missing(&self) -> impl Iterator<Item = (u64, u64)> {
        let ends = self.runs.iter().map(|run| run.1);
        let starts = self.runs.iter().map(|run| run.0).chain([self.end]);
        std::iter::once(self.start).chain(ends).zip(starts).filter(|(a, b)| a < b)
    }
}

#[cfg(test)]
mod tests;

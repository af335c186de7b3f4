//! What there is room for at a bare receiver, and which bytes it has.

use std::ops::Range;

use packtrain_units::{ByteCount, DataRate, Offset, Time};

use crate::core::ledger::Train;
use crate::core::ranges::Ranges;
use crate::seam::{Fill, Payload, Placed, Placement};

/// Room told by a pool that never fills.
const ENDLESS: ByteCount = ByteCount(1 << 40);
/// Below this share of it the pool counts as low; room above it is told at once.
const LOW_ROOM: u64 = 4;

/// What a receiver has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Everything.
    Endless,
    /// So many bytes, emptied at this rate.
    Limited {
        /// Bytes of an empty pool.
        size: ByteCount,
        /// How fast the application takes them.
        drain: DataRate,
    },
}

/// A receiver's pool of which only the filling is known. As a [`Placement`] it serves a
/// [`Flow`](crate::Flow) as it serves a [`BareFlow`](super::BareFlow).
#[derive(Debug)]
pub struct Pool {
    room: Room,
    have: Ranges,
    used: u64,
    drained_to: Time,
}

impl Pool {
    /// An empty pool.
    pub fn new(room: Room, now: Time) -> Self {
        Self { room, have: Ranges::default(), used: 0, drained_to: now }
    }

    /// Bytes that came, each counted once.
    pub fn delivered(&self) -> ByteCount {
        ByteCount(self.have.total())
    }

    /// Time passes: the application takes what it can.
    pub fn advance(&mut self, now: Time) {
        let Room::Limited { drain, .. } = self.room else { return };
        let gone = drain.bytes_in(now.since(self.drained_to)).get();
        if gone >= self.used {
            self.used = 0;
            self.drained_to = now;
        } else if gone > 0 {
            self.used -= gone;
            self.drained_to += drain.time_for(ByteCount(gone));
        }
    }

    /// When a pool that is low has room again worth telling.
    pub fn poll_timeout(&self) -> Option<Time> {
        let Room::Limited { size, drain } = self.room else { return None };
        let above = self.used.checked_sub(size.get() - size.get() / LOW_ROOM)?;
        (above > 0 && drain > DataRate::ZERO)
            .then(|| self.drained_to + drain.time_for(ByteCount(above)))
    }

    /// Room as of the last `advance`.
    pub fn room_now(&self) -> ByteCount {
        match self.room {
            Room::Endless => ENDLESS,
            Room::Limited { size, .. } => ByteCount(size.get().saturating_sub(self.used)),
        }
    }

    /// Puts the bytes `a..b`.
    pub(super) fn put(&mut self, a: u64, b: u64) -> Placed {
        if b - a > self.room_now().get() {
            return Placed::NoRoom;
        }
        let before = self.have.total();
        self.have.insert(a, b);
        let new = self.have.total() - before;
        self.used += new;
        if new == 0 { Placed::Duplicate } else { Placed::New }
    }

    /// Puts a whole train if all of it is new or all of it is here: how many packets were.
    pub(super) fn put_train(&mut self, train: &Train) -> Option<u32> {
        let (a, b) = train.span(0, train.count);
        if b - a > self.room_now().get() {
            return None;
        }
        if self.have.end_of(a).is_some_and(|end| end >= b) {
            return Some(train.count);
        }
        if self.have.touches(a, b) {
            return None;
        }
        self.have.insert(a, b);
        self.used += b - a;
        Some(0)
    }
}

impl Placement for Pool {
    fn place(&mut self, at: Offset, bytes: &[u8]) -> Placed {
        self.put(at.get(), at.get() + bytes.len() as u64)
    }

    fn room(&self) -> ByteCount {
        self.room_now()
    }
}

/// A payload of nothing: whatever is asked for is there and left as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nothing;

impl Payload for Nothing {
    fn fill(&mut self, _: Offset, _: &mut [u8]) -> Fill {
        Fill::Ready
    }

    fn release(&mut self, _: Range<Offset>) {}
}

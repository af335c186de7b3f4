//! The room of a bare receiver, and the bytes that it has.

use std::ops::Range;

use packtrain_units::{ByteCount, DataRate, Offset, RangeSet, Time};

use crate::core::ledger::Train;
use crate::seam::{Fill, Payload, Placed, Placement};

/// Room advertised by a pool that never fills.
const ENDLESS_ROOM: ByteCount = ByteCount(1 << 40);
/// A pool whose room is below this fraction is low; room above it is advertised at once.
const LOW_ROOM: u64 = 4;

/// The room of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Unlimited.
    Endless,
    /// A limited pool, drained at a constant rate.
    Limited {
        /// Bytes of an empty pool.
        size: ByteCount,
        /// Rate at which the application drains it.
        drain: DataRate,
    },
}

/// A receiver's pool that models only its fill level. As a [`Placement`] it serves a
/// [`Flow`](crate::Flow) as it serves a [`BareFlow`](super::BareFlow).
#[derive(Debug)]
pub struct Pool {
    room: Room,
    have: RangeSet<u64>,
    used: u64,
    drained_to: Time,
}

impl Pool {
    /// An empty pool.
    pub fn new(room: Room, now: Time) -> Self {
        Self { room, have: RangeSet::new(), used: 0, drained_to: now }
    }

    /// Bytes received, each counted once.
    pub fn delivered(&self) -> ByteCount {
        ByteCount(self.have.count())
    }

    /// Drains the pool up to `now`.
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

    /// When a low pool has enough room to advertise again.
    pub fn poll_timeout(&self) -> Option<Time> {
        let Room::Limited { size, drain } = self.room else { return None };
        let above = self.used.checked_sub(size.get() - size.get() / LOW_ROOM)?;
        (above > 0 && drain > DataRate::ZERO)
            .then(|| self.drained_to + drain.time_for(ByteCount(above)))
    }

    /// Room at the last `advance`.
    pub fn room_now(&self) -> ByteCount {
        match self.room {
            Room::Endless => ENDLESS_ROOM,
            Room::Limited { size, .. } => ByteCount(size.get().saturating_sub(self.used)),
        }
    }

    /// Places the bytes `a..b`.
    pub(super) fn put(&mut self, a: u64, b: u64) -> Placed {
        if b - a > self.room_now().get() {
            return Placed::NoRoom;
        }
        let new = self.have.insert(a..b);
        self.used += new;
        if new == 0 { Placed::Duplicate } else { Placed::New }
    }

    /// Places a whole train if all of it is new or all of it is already there; returns how many
    /// packets were duplicates.
    pub(super) fn put_train(&mut self, train: &Train) -> Option<u32> {
        let (a, b) = train.span(0, train.count);
        if b - a > self.room_now().get() {
            return None;
        }
        if self.have.contains_range(&(a..b)) {
            return Some(train.count);
        }
        if self.have.overlaps(&(a..b)) {
            return None;
        }
        self.have.insert(a..b);
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

/// A payload without contents: always ready, and leaves the buffer unchanged.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullPayload;

impl Payload for NullPayload {
    fn fill(&mut self, _: Offset, _: &mut [u8]) -> Fill {
        Fill::Ready
    }

    fn release(&mut self, _: Range<Offset>) {}
}

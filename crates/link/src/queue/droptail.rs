//! First come, first served, until the queue is full.

use packtrain_units::ByteCount;

use super::{Arriving, Backlog, Discipline, Verdict};
use crate::config::Limit;
use crate::element::DropCause;

/// A queue that accepts every packet that fits.
///
/// The packet in transmission takes no room, and a packet that finds the transmitter idle needs
/// none. ns-2's DropTail compares `length + 1 >= limit`: its limit L is `Limit::Packets(L - 1)`
/// here.
#[derive(Clone, Copy, Debug)]
pub struct DropTail {
    limit: Limit,
}

impl DropTail {
    /// Room for `limit`.
    pub fn new(limit: Limit) -> Self {
        Self { limit }
    }
}

impl Discipline for DropTail {
    fn admit(&mut self, arriving: Arriving, backlog: &mut Backlog) -> Verdict {
        if room_at_least(self.limit, backlog, arriving.size) >= u64::from(arriving.count) {
            return Verdict::Take(arriving.count);
        }
        let now = arriving.pace.first;
        backlog.packets(now);
        let room = room_at_least(self.limit, backlog, arriving.size);
        if room > 0 {
            return Verdict::Take(u32::try_from(room).unwrap_or(u32::MAX));
        }
        if backlog.idle_since(now).is_some() {
            return Verdict::Take(1);
        }
        // All that arrive before the next packet leaves find the queue equally full.
        Verdict::Drop(arriving.before(backlog.next_change(now)), DropCause::Overflow)
    }
}

/// A lower bound of the packets of `size` that fit, without accounting for packets that left
/// meanwhile.
pub(super) fn room_at_least(limit: Limit, backlog: &Backlog, size: u32) -> u64 {
    match limit {
        Limit::Packets(max) => max.saturating_sub(backlog.packets_at_most()),
        Limit::Bytes(max) => {
            let room = max - backlog.bytes_at_most();
            room.get().checked_div(u64::from(size)).unwrap_or(u64::MAX)
        }
    }
}

/// Whether one more packet of `size` fits, when `backlog` is exact.
pub(super) fn fits(limit: Limit, backlog: &Backlog, size: u32) -> bool {
    match limit {
        Limit::Packets(max) => backlog.packets_at_most() < max,
        Limit::Bytes(max) => backlog.bytes_at_most() + ByteCount(u64::from(size)) <= max,
    }
}

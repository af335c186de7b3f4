//! How fast a receiver's application takes what is placed.

use packtrain_units::{ByteCount, DataRate, Duration, Time};

/// The drain rate is measured over at least this.
const DRAIN_SPAN: Duration = Duration::from_millis(10);

/// How fast the pool empties: what was placed less what the pool's room lost.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    /// Bytes a second that leave the pool.
    pub(crate) rate: DataRate,
    /// The most room ever seen.
    pub(crate) most: ByteCount,
    /// Bytes placed since the last measurement.
    pub(crate) placed: u64,
    since: Time,
    room: ByteCount,
}

impl Drain {
    /// A pool with so much room.
    pub(crate) fn new(now: Time, room: ByteCount) -> Self {
        Self { since: now, room, most: room, ..Self::default() }
    }

    /// The pool has this much room now.
    pub(crate) fn update(&mut self, now: Time, room: ByteCount) {
        self.most = self.most.max(room);
        let span = now.since(self.since);
        if span < DRAIN_SPAN {
            return;
        }
        let drained = (self.placed + room.get()).saturating_sub(self.room.get());
        // An empty pool that nothing enters says nothing of how fast it could drain.
        if drained > 0 || room.get() < self.most.get() / 2 {
            let rate = DataRate::from_bytes_over(ByteCount(drained), span);
            self.rate = if rate > self.rate { rate } else { mean(self.rate, rate) };
        }
        (self.since, self.placed, self.room) = (now, 0, room);
    }
}

fn mean(old: DataRate, new: DataRate) -> DataRate {
    DataRate::from_bps(old.as_bps() / 4 * 3 + new.as_bps() / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drain_rate_is_what_left_the_pool() {
        let mut drain = Drain { room: ByteCount(1_000_000), ..Drain::default() };
        drain.placed = 500_000;
        drain.update(Time::ZERO + DRAIN_SPAN, ByteCount(600_000));
        assert_eq!(drain.rate, DataRate::from_bps(100_000 * 800));
        drain.update(Time::ZERO + DRAIN_SPAN * 2, ByteCount(1_000_000));
        assert_eq!(drain.rate, DataRate::from_bps(400_000 * 800), "a faster drain counts at once");
    }
}

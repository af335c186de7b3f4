//! The rate at which a receiver's application takes placed bytes.

use packtrain_units::{ByteCount, DataRate, Duration, Time};

/// Minimum span of a measurement.
const DRAIN_SPAN: Duration = Duration::from_millis(10);

/// The rate at which the pool empties: bytes placed less the decrease of room.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    /// Bytes per second that leave the pool.
    pub(crate) rate: DataRate,
    /// The most room ever seen.
    pub(crate) max_room: ByteCount,
    /// Bytes placed since the last measurement.
    pub(crate) placed: u64,
    since: Time,
    room: ByteCount,
}

impl Drain {
    /// A pool with this much room.
    pub(crate) fn new(now: Time, room: ByteCount) -> Self {
        Self { since: now, room, max_room: room, ..Self::default() }
    }

    /// Takes the current room of the pool.
    pub(crate) fn update(&mut self, now: Time, room: ByteCount) {
        self.max_room = self.max_room.max(room);
        let span = now.since(self.since);
        if span < DRAIN_SPAN {
            return;
        }
        let drained = (self.placed + room.get()).saturating_sub(self.room.get());
        // An empty pool that nothing enters gives no information about its drain rate.
        if drained > 0 || room.get() < self.max_room.get() / 2 {
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

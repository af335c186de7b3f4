//! Rate credit: bounds memory at any bandwidth-delay product.

use packtrain_units::{ByteCount, DataRate, Duration};

/// Jitter of reports and threads that the credit covers.
const SLACK: Duration = Duration::from_millis(20);

/// The room and the drain rate that the receiver advertised.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Credit {
    pub(crate) room: ByteCount,
    pub(crate) drain: DataRate,
}

impl Credit {
    /// Before the first report: a fixed room and no drain rate.
    pub(crate) fn new() -> Self {
        Self { room: ByteCount(1 << 20), drain: DataRate::ZERO }
    }

    /// in_flight <= drain_rate x (rtt + 20 ms) + room. The first term shrinks when the room falls
    /// below 20 ms of draining; otherwise a full pool would overflow by those 20 ms each round
    /// trip.
    pub(crate) fn limit(&self, rtt: Duration) -> ByteCount {
        let ahead = self.drain.bytes_in(rtt + SLACK);
        let slack = self.drain.bytes_in(SLACK);
        if self.room >= slack {
            return ahead + self.room;
        }
        let share = self.room.get() as f64 / slack.get() as f64;
        ByteCount((ahead.get() as f64 * share) as u64) + self.room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_pool_stops_the_sender_and_an_empty_one_does_not() {
        let rtt = Duration::from_millis(100);
        let drain = DataRate::from_mbps(800);
        let limit = |room| Credit { room: ByteCount(room), drain }.limit(rtt).get();
        assert_eq!(limit(0), 0);
        assert_eq!(limit(2_000_000), 12_000_000 + 2_000_000);
        assert_eq!(limit(1_000_000), 6_000_000 + 1_000_000);
    }
}

//! Rate credit: memory stays bounded at any bandwidth-delay product.

use packtrain_units::{ByteCount, DataRate, Duration};

/// Jitter of reports and threads that the credit covers.
const SLACK: Duration = Duration::from_millis(20);

/// What the receiver has said it can take.
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

    /// in_flight <= drain_rate x (rtt + 20 ms) + room.
    pub(crate) fn limit(&self, rtt: Duration) -> ByteCount {
        self.drain.bytes_in(rtt + SLACK) + self.room
    }
}

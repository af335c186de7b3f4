//! A rate limit that several transports share, on the clock of this machine.

use std::sync::Arc;

use packtrain_os::clock;
use packtrain_units::{ByteCount, DataRate, Duration, Time, TokenBucket};
use parking_lot::Mutex;

/// Maximum duration of a piece at the limited rate, unless it has the minimum size.
const QUANTUM: Duration = Duration::from_millis(250);
/// Minimum size of a piece, in bytes.
const MIN_QUANTUM: ByteCount = ByteCount(4 << 10);

/// A limit on the sum of all senders that share it; clones are the same limit.
///
/// The guarantee is that of [`TokenBucket`].
#[derive(Clone, Debug)]
pub struct RateLimiter(Arc<Mutex<TokenBucket>>);

impl RateLimiter {
    /// A limit that allows a burst of `burst` at its rate after a pause.
    pub fn new(rate: DataRate, burst: Duration) -> Self {
        Self(Arc::new(Mutex::new(TokenBucket::new(rate, burst))))
    }

    /// Its rate.
    pub fn rate(&self) -> DataRate {
        self.0.lock().rate()
    }

    /// The size of a piece, at most `max`. The bucket passes the first piece after a pause at once,
    /// whatever its size, so pieces must be small at a low rate.
    pub fn quantum(&self, max: ByteCount) -> ByteCount {
        self.rate().bytes_in(QUANTUM).max(MIN_QUANTUM).min(max)
    }

    /// When the next bytes may be sent.
    pub fn due(&self) -> Time {
        self.0.lock().due()
    }

    /// Charges sent bytes; returns when the next may be sent.
    pub fn charge(&self, bytes: ByteCount) -> Time {
        let now = clock::now();
        let mut bucket = self.0.lock();
        bucket.charge(now, bytes);
        bucket.due()
    }

    /// Charges bytes, and returns how long they must wait before they are sent.
    pub fn reserve(&self, bytes: ByteCount) -> Duration {
        let now = clock::now();
        self.0.lock().reserve(now, bytes).since(now)
    }

    /// Charges bytes if they may be sent now.
    pub fn try_take(&self, bytes: ByteCount) -> bool {
        self.0.lock().try_take(clock::now(), bytes)
    }

    /// The share, 0 to 1, of the time with traffic in which the limit was used up.
    pub fn limited(&self) -> f64 {
        self.0.lock().limited(clock::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_small_where_the_rate_is_low() {
        let quantum = |bps: u64, max: u64| {
            let limit = RateLimiter::new(DataRate::from_bps(bps), Duration::from_millis(20));
            limit.quantum(ByteCount(max)).get()
        };
        assert_eq!(quantum(1_000_000_000, 256 << 10), 256 << 10);
        assert_eq!(quantum(800_000, 256 << 10), 25_000);
        assert_eq!(quantum(20_000, 256 << 10), 4 << 10, "the least");
        assert_eq!(quantum(20_000, 100), 100, "no more than there is");
    }
}

//! A rate limit that several transports share, on the clock of this machine.

use std::sync::Arc;

use packtrain_units::{ByteCount, DataRate, Duration, Time, TokenBucket};
use parking_lot::Mutex;

use crate::clock;

/// A limit on what all that share it move together; clones are the same limit.
///
/// The guarantee is that of [`TokenBucket`].
#[derive(Clone, Debug)]
pub struct RateLimiter(Arc<Mutex<TokenBucket>>);

impl RateLimiter {
    /// A limit that gives up to `burst` of its rate at once after a pause.
    pub fn new(rate: DataRate, burst: Duration) -> Self {
        Self(Arc::new(Mutex::new(TokenBucket::new(rate, burst))))
    }

    /// Its rate.
    pub fn rate(&self) -> DataRate {
        self.0.lock().rate()
    }

    /// When the next bytes may go.
    pub fn due(&self) -> Time {
        self.0.lock().due()
    }

    /// Takes bytes that went; gives when the next may go.
    pub fn charge(&self, bytes: ByteCount) -> Time {
        let now = clock::now();
        let mut bucket = self.0.lock();
        bucket.charge(now, bytes);
        bucket.due()
    }

    /// Takes bytes, and tells how long they have to wait before they go.
    pub fn reserve(&self, bytes: ByteCount) -> Duration {
        let now = clock::now();
        self.0.lock().reserve(now, bytes).since(now)
    }

    /// Takes bytes if they may go now.
    pub fn try_take(&self, bytes: ByteCount) -> bool {
        self.0.lock().try_take(clock::now(), bytes)
    }

    /// The share, 0 to 1, of the time with traffic in which this limit was used up.
    pub fn limited(&self) -> f64 {
        self.0.lock().limited(clock::now())
    }
}

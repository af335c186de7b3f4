//! Clocks: monotonic time for the engines, wall time for files and logs.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use packtrain_units::{Duration, Time};

/// Monotonic time since the first call in this process.
#[allow(clippy::disallowed_methods)]
pub fn now() -> Time {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    let epoch = *EPOCH.get_or_init(Instant::now);
    // Starts at one second, so that a time shortly before the first call is representable.
    Time::ZERO + Duration::from_secs(1) + Duration::from(epoch.elapsed())
}

/// Seconds and nanoseconds since 1970, for messages and files.
#[allow(clippy::disallowed_methods)]
pub fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(Duration::ZERO, Duration::from)
}

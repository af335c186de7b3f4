//! The clock: monotonic time for the engines, wall time for files and logs.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use packtrain_units::{Duration, Time};

/// Monotonic time since this process first asked.
#[allow(clippy::disallowed_methods)]
pub fn now() -> Time {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    let epoch = *EPOCH.get_or_init(Instant::now);
    // One second in, so that a little before the first call is still a time.
    Time::ZERO + Duration::from_secs(1) + Duration::from(epoch.elapsed())
}

/// Seconds and nanoseconds since 1970, for people and files.
#[allow(clippy::disallowed_methods)]
pub fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(Duration::ZERO, Duration::from)
}

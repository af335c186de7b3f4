//! Clocks: monotonic time for the engines, wall time for files and logs.

#[allow(unsafe_code)]
mod sys;

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use packtrain_units::{Duration, Time};

/// The monotonic time of a process starts with the wall time modulo this.
const PERIOD: Duration = Duration::from_secs(160);

/// Monotonic time. It starts with the wall time modulo 160 s, so that processes whose hosts agree on
/// the time do periodic work together: flows of `native` that compete with each other leave the
/// competition at the same time.
#[allow(clippy::disallowed_methods)]
pub fn now() -> Time {
    static EPOCH: OnceLock<(Instant, Duration)> = OnceLock::new();
    let (epoch, start) = *EPOCH.get_or_init(|| {
        let start = Duration::from_nanos(wall().as_nanos() % PERIOD.as_nanos());
        // At least a period, so that a time shortly before the first call is representable.
        (Instant::now(), PERIOD + start)
    });
    Time::ZERO + start + Duration::from(epoch.elapsed())
}

/// Whether a time service keeps the wall clock right, as the kernel sees it; `None` if it does not
/// tell.
pub fn is_kept() -> Option<bool> {
    sys::is_kept()
}

/// Seconds and nanoseconds since 1970, for messages and files.
#[allow(clippy::disallowed_methods)]
pub fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(Duration::ZERO, Duration::from)
}

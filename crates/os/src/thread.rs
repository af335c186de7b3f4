//! Parts of a network thread that drives an engine over sockets. [`ThreadSleep`] sleeps until an
//! event, precisely. [`Waker`] ends that sleep from other threads; without a sleep it makes no
//! system call.
//!
//! The flows of `packtrain-net` and the ports of `packtrain-socket` use them.

mod sleep;
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
mod sys;
mod wake;

use packtrain_units::Duration;

pub use sleep::{BATCH_PAUSE, SOCKETS, ThreadSleep};
pub use wake::{WakeReceiver, Waker, pair};

/// Processor time used by the calling thread.
pub fn cpu() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::from_secs(used.tv_sec as u64) + Duration::from_nanos(used.tv_nsec as u64)
}

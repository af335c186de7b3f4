//! The parts of a network thread, for whoever drives an engine over sockets: [`Bed`] sleeps
//! precisely until something happens, [`Waker`] ends that sleep from other threads at no cost
//! when there is none.
//!
//! The flows of `packtrain-net` are built of them, and so are the ports of `packtrain-socket`.

mod sleep;
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
mod sys;
mod wake;

use packtrain_units::Duration;

pub use sleep::{Bed, SOCKETS};
pub use wake::{Sleeper, Waker, pair};

/// Processor time used by the calling thread.
pub fn cpu() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::from_secs(used.tv_sec as u64) + Duration::from_nanos(used.tv_nsec as u64)
}

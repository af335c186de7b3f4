//! The parts of a network thread, for whoever drives an engine over UDP sockets: [`Bed`] sleeps
//! precisely until something happens, [`Waker`] ends that sleep from other threads at no cost
//! when there is none, [`Lane`] keeps a socket with what the kernel dropped at it.
//!
//! [`flow`](crate::flow) is built of them, and so is the crate `packtrain-socket`.

mod lane;
mod sleep;
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
mod sys;
mod wake;

use packtrain_units::Duration;

pub use lane::{Lane, Unsent};
pub use sleep::Bed;
pub use wake::{Sleeper, Waker, pair};

/// Processor time used by the calling thread.
pub fn cpu() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::from_secs(used.tv_sec as u64) + Duration::from_nanos(used.tv_nsec as u64)
}

//! Sleeping until a packet comes or one is due.

use std::os::fd::{AsFd, OwnedFd};

use packtrain_io::clock;
use packtrain_units::{Duration, Time};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::device::Device;
use crate::sys;

/// Time slices of the emulator's thread: what is late is late for everybody.
const SLICE: Duration = Duration::from_micros(100);
/// The last of a wait, which is spun away where there is another core.
const SPIN: Duration = Duration::from_micros(5);
/// The longest sleep: nothing depends on it.
const LONGEST: Duration = Duration::from_secs(1);

/// Sleeps for the calling thread.
pub(crate) struct Bed {
    spin: Duration,
}

impl Bed {
    /// For the calling thread.
    pub(crate) fn new() -> Self {
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        sys::hurry(SLICE);
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
        Self { spin: if cores > 1 { SPIN } else { Duration::ZERO } }
    }

    /// Sleeps until `until`, or until a device or `wake` is readable.
    pub(crate) fn sleep<'a>(
        &self,
        devices: impl Iterator<Item = &'a Device>,
        wake: &OwnedFd,
        until: Option<Time>,
    ) {
        let wait = until.map_or(LONGEST, |until| until.since(clock::now()).min(LONGEST));
        if wait <= self.spin {
            // Short enough to look again at once, devices included.
            return std::hint::spin_loop();
        }
        let wait = wait - self.spin;
        let mut fds: Vec<PollFd<'_>> =
            devices.map(|device| PollFd::from_borrowed_fd(device.as_fd(), PollFlags::IN)).collect();
        fds.push(PollFd::new(wake, PollFlags::IN));
        let (seconds, nanos) = (wait.as_nanos() / 1_000_000_000, wait.as_nanos() % 1_000_000_000);
        let limit = Timespec { tv_sec: seconds as _, tv_nsec: nanos as _ };
        // A signal ends it early, which is harmless.
        let _ = poll(&mut fds, Some(&limit));
    }
}

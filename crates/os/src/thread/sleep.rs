//! Sleeping until something happens: precise to some microseconds, and not longer than asked.

use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use packtrain_units::{Duration, Time};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::wake::Sleeper;
use crate::clock;

/// The most sockets that one thread sleeps for.
pub const SOCKETS: usize = 16;

/// Time slices of a network thread: the least that the kernel grants. What waits for it is a
/// receive buffer that overflows within milliseconds, or a batch that is due.
#[cfg(target_os = "linux")]
const SLICE: Duration = Duration::from_micros(100);
/// How much of a wait is spun away where a core is spare: about what a wake-up takes.
const SPIN: Duration = Duration::from_micros(20);
/// A sleep that data ends within this time hardly was one.
const BRIEF: Duration = Duration::from_micros(60);
/// So many of them in a row mean a stream of batches.
const STREAM: u32 = 8;
/// Then a nap that no data disturbs lets several batches gather, so that they cost one wake-up
/// instead of one each, here and in the sender's kernel. Short beside what a default receive
/// buffer holds even at 10 Gbit/s (0.3 ms a socket).
const NAP: Duration = Duration::from_micros(50);

/// Network threads of this process.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Sleeps for one network thread.
pub struct Bed {
    cores: usize,
    /// Brief sleeps in a row.
    brief: u32,
    /// Sockets that have something to read, after a sleep.
    readable: Vec<usize>,
}

impl Bed {
    /// For the calling thread.
    pub fn new() -> Self {
        THREADS.fetch_add(1, Ordering::Relaxed);
        // The kernel may otherwise delay a wake-up by 50 us to join it with others.
        #[cfg(target_os = "linux")]
        {
            let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
            super::sys::ask_for_slices_of(SLICE);
        }
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self { cores, brief: 0, readable: Vec::new() }
    }

    /// Sleeps until `until`, or until one of at most [`SOCKETS`] sockets is readable, or that with
    /// the index `blocked` is writable, or a call comes; `until` in the past only looks.
    pub fn sleep(
        &mut self,
        sockets: &[impl AsFd],
        blocked: Option<u8>,
        sleeper: &Sleeper,
        until: Time,
    ) {
        let start = clock::now();
        let wait = self.spin(until.since(start), until);
        let mut fds: [PollFd<'_>; SOCKETS + 1] =
            std::array::from_fn(|_| PollFd::new(sleeper, PollFlags::IN));
        for (i, (fd, socket)) in fds.iter_mut().zip(sockets).enumerate() {
            let write = blocked.is_some_and(|b| usize::from(b) == i);
            let flags = if write { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            *fd = PollFd::new(socket, flags);
        }
        let fds = &mut fds[..=sockets.len()];
        let lies = wait > Duration::ZERO && sleeper.lie_down();
        if lies && self.brief >= STREAM && wait > NAP && blocked.is_none() {
            wait_for(&mut fds[sockets.len()..], NAP);
            wait_for(fds, Duration::ZERO);
        } else {
            wait_for(fds, if lies { wait } else { Duration::ZERO });
        }
        if lies {
            sleeper.get_up();
        }
        let ready = PollFlags::IN | PollFlags::ERR;
        let sockets = fds.iter().take(sockets.len()).enumerate();
        self.readable.clear();
        self.readable
            .extend(sockets.filter(|(_, f)| f.revents().intersects(ready)).map(|(i, _)| i));
        if self.readable.is_empty() {
            self.brief = 0;
        } else if lies && clock::now().since(start) < BRIEF {
            self.brief = self.brief.saturating_add(1);
        }
    }

    /// Indices of the sockets that have something to read, after a sleep.
    pub fn readable(&self) -> &[usize] {
        &self.readable
    }

    /// Spins the last of a wait away where that is welcome; gives what is left to sleep.
    fn spin(&self, wait: Duration, until: Time) -> Duration {
        if !self.may_spin() {
            return wait;
        }
        if wait > SPIN {
            return wait - SPIN;
        }
        while clock::now() < until {
            std::hint::spin_loop();
        }
        Duration::ZERO
    }

    /// Whether a core is spare: both ends of every flow may be here, and others want to run.
    fn may_spin(&self) -> bool {
        self.cores >= 2 * THREADS.load(Ordering::Relaxed) + 2
    }
}

impl Default for Bed {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits until one of `fds` is ready, at most for `limit`. A signal ends it early, which is
/// harmless.
fn wait_for(fds: &mut [PollFd<'_>], limit: Duration) {
    let (seconds, nanos) = (limit.as_nanos() / 1_000_000_000, limit.as_nanos() % 1_000_000_000);
    let limit = Timespec { tv_sec: seconds as _, tv_nsec: nanos as _ };
    let _ = poll(fds, Some(&limit));
}

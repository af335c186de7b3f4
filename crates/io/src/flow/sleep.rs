//! Sleeping until something happens: precise to some microseconds, and not longer than asked.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};

use packtrain_units::{Duration, Time};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::lane::Lane;
use super::wake::Sleeper;
use crate::clock;

/// How much of a wait is spun away where a core is spare: about what a wake-up takes.
const SPIN: Duration = Duration::from_micros(20);

/// A sleep that data ends within this time hardly was one.
const BRIEF: Duration = Duration::from_micros(60);
/// So many of them in a row mean a stream of batches.
const STREAM: u32 = 8;
/// Then a nap that no data disturbs lets several batches gather, so that they cost one wake-up
/// instead of one each, here and in the sender's kernel. Short beside what a default receive
/// buffer holds even at 10 Gbit/s (0.3 ms a socket).
const NAP: Duration = Duration::from_micros(100);

/// Network threads of this process.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Sleeps for one network thread.
pub(super) struct Bed {
    cores: usize,
    /// Brief sleeps in a row.
    brief: u32,
    /// Lanes that have something to read, after a sleep.
    pub(super) readable: Vec<usize>,
}

impl Bed {
    /// For the calling thread.
    pub(super) fn new() -> Self {
        THREADS.fetch_add(1, Ordering::Relaxed);
        // The kernel may otherwise delay a wake-up by 50 us to join it with others.
        #[cfg(target_os = "linux")]
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self { cores, brief: 0, readable: Vec::new() }
    }

    /// Sleeps until `until`, or until a lane is readable, or `blocked` is writable, or a call
    /// comes; `until` in the past only looks.
    pub(super) fn sleep(
        &mut self,
        lanes: &[Lane],
        blocked: Option<u8>,
        sleeper: &Sleeper,
        until: Time,
    ) {
        self.readable.clear();
        let start = clock::now();
        let mut wait = until.since(start);
        let spins = self.may_spin();
        if spins && wait > Duration::ZERO && wait <= SPIN {
            while clock::now() < until {
                std::hint::spin_loop();
            }
            wait = Duration::ZERO;
        } else if spins {
            wait = wait.saturating_sub(SPIN);
        }
        let lies = wait > Duration::ZERO && sleeper.lie_down();
        let timeout = if lies { timespec(wait) } else { timespec(Duration::ZERO) };
        let mut fds: [PollFd<'_>; packtrain_proto::limits::LANES + 1] =
            std::array::from_fn(|_| PollFd::new(sleeper, PollFlags::IN));
        for (i, (fd, lane)) in fds.iter_mut().zip(lanes).enumerate() {
            let write = blocked.is_some_and(|b| usize::from(b) == i);
            let flags = if write { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            *fd = PollFd::new(&lane.socket, flags);
        }
        let fds = &mut fds[..=lanes.len()];
        // A signal ends the sleep early, which is harmless.
        if lies && self.brief >= STREAM && wait > NAP && blocked.is_none() {
            let bell = &mut fds[lanes.len()..];
            let _ = poll(bell, Some(&timespec(NAP)));
            let _ = poll(fds, Some(&timespec(Duration::ZERO)));
            if fds.iter().all(|f| f.revents().is_empty()) {
                self.brief = 0;
            }
        } else if poll(fds, Some(&timeout)).is_ok() && lies {
            let slept = clock::now().since(start);
            self.brief = if slept < BRIEF { self.brief.saturating_add(1) } else { 0 };
        }
        if lies {
            sleeper.get_up();
        }
        let ready = PollFlags::IN | PollFlags::ERR;
        let lanes = fds.iter().take(lanes.len()).enumerate();
        self.readable.extend(lanes.filter(|(_, f)| f.revents().intersects(ready)).map(|(i, _)| i));
    }

    /// Whether a core is spare: both ends of every flow may be here, and others want to run.
    fn may_spin(&self) -> bool {
        self.cores >= 2 * THREADS.load(Ordering::Relaxed) + 2
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Ordering::Relaxed);
    }
}

fn timespec(d: Duration) -> Timespec {
    Timespec {
        tv_sec: (d.as_nanos() / 1_000_000_000) as _,
        tv_nsec: (d.as_nanos() % 1_000_000_000) as _,
    }
}

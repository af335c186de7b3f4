//! Sleeps until an event, with a precision of some microseconds.

use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use packtrain_units::{Duration, Time};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::wake::WakeReceiver;
use crate::clock;

/// Maximum number of sockets that one thread waits for.
pub const SOCKETS: usize = 16;

/// Time slice of a network thread: the minimum that the kernel grants. A thread that waits longer
/// lets a receive buffer overflow within milliseconds, or delays a batch.
#[cfg(target_os = "linux")]
const SLICE: Duration = Duration::from_micros(100);
/// The part of a wait that is spent spinning if a core is idle: about the duration of a wake-up.
const SPIN: Duration = Duration::from_micros(20);
/// A sleep that data ends within this time counts as brief.
const BRIEF_SLEEP: Duration = Duration::from_micros(60);
/// This many brief sleeps in a row indicate a stream of batches.
const STREAM_BRIEF_SLEEPS: u32 = 8;
/// A pause that data does not end, by default. Several batches arrive during it, and cost one wake-up instead
/// of one each, at this host and in the sender's kernel. It is short compared with the time in
/// which a default receive buffer fills at 10 Gbit/s (0.3 ms per socket).
pub const BATCH_PAUSE: Duration = Duration::from_micros(50);

/// Number of network threads of this process.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// The sleep of one network thread.
pub struct ThreadSleep {
    cores: usize,
    /// Brief sleeps in a row.
    brief: u32,
    /// Length of the pause within a stream of batches.
    batch_pause: Duration,
    /// The readable sockets after a sleep.
    readable: Vec<usize>,
}

impl ThreadSleep {
    /// For the calling thread.
    pub fn new() -> Self {
        THREADS.fetch_add(1, Ordering::Relaxed);
        // Otherwise the kernel may delay a wake-up by 50 us to combine it with others.
        #[cfg(target_os = "linux")]
        {
            let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
            super::sys::ask_for_slices_of(SLICE);
        }
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self { cores, brief: 0, batch_pause: BATCH_PAUSE, readable: Vec::new() }
    }

    /// Sets the pause within a stream of batches, [`BATCH_PAUSE`] by default. The receive buffers must hold
    /// what arrives during it.
    pub fn set_batch_pause(&mut self, pause: Duration) {
        self.batch_pause = pause;
    }

    /// Sleeps until `until` or a wake call, but not for the sockets, and then polls them.
    pub fn pause(&mut self, sockets: &[impl AsFd], sleeper: &WakeReceiver, until: Time) {
        let wait = until.since(clock::now());
        if wait > Duration::ZERO && sleeper.prepare_sleep() {
            wait_for(&mut [PollFd::new(sleeper, PollFlags::IN)], wait);
            sleeper.end_sleep();
        }
        self.sleep(sockets, None, sleeper, Time::ZERO);
    }

    /// Sleeps until `until`, until one of at most [`SOCKETS`] sockets is readable, until the socket
    /// with index `blocked` is writable, or until a wake call. With `until` in the past it only
    /// polls.
    pub fn sleep(
        &mut self,
        sockets: &[impl AsFd],
        blocked: Option<u8>,
        sleeper: &WakeReceiver,
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
        let lies = wait > Duration::ZERO && sleeper.prepare_sleep();
        if lies && self.brief >= STREAM_BRIEF_SLEEPS && wait > self.batch_pause && blocked.is_none()
        {
            wait_for(&mut fds[sockets.len()..], self.batch_pause);
            wait_for(fds, Duration::ZERO);
        } else {
            wait_for(fds, if lies { wait } else { Duration::ZERO });
        }
        if lies {
            sleeper.end_sleep();
        }
        let ready = PollFlags::IN | PollFlags::ERR;
        let sockets = fds.iter().take(sockets.len()).enumerate();
        self.readable.clear();
        self.readable
            .extend(sockets.filter(|(_, f)| f.revents().intersects(ready)).map(|(i, _)| i));
        if self.readable.is_empty() {
            self.brief = 0;
        } else if lies && clock::now().since(start) < BRIEF_SLEEP {
            self.brief = self.brief.saturating_add(1);
        }
    }

    /// Indices of the readable sockets after a sleep.
    pub fn readable(&self) -> &[usize] {
        &self.readable
    }

    /// Spins for the last part of a wait if that is allowed; returns the time left to sleep.
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

    /// Whether a core is idle. Both ends of every flow may be on this machine, and other threads
    /// need cores too.
    fn may_spin(&self) -> bool {
        self.cores >= 2 * THREADS.load(Ordering::Relaxed) + 2
    }
}

impl Default for ThreadSleep {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for ThreadSleep {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits until one of `fds` is ready, at most for `limit`. A signal may end it early, which is
/// harmless.
fn wait_for(fds: &mut [PollFd<'_>], limit: Duration) {
    let (seconds, nanos) = (limit.as_nanos() / 1_000_000_000, limit.as_nanos() % 1_000_000_000);
    let limit = Timespec { tv_sec: seconds as _, tv_nsec: nanos as _ };
    let _ = poll(fds, Some(&limit));
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;
    use crate::thread::pair;

    #[test]
    fn a_pause_ends_with_a_wake_call_and_reports_the_sockets_then() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (waker, sleeper) = pair().unwrap();
        let mut bed = ThreadSleep::new();
        let hour = Duration::from_secs(3_600);
        for pending in [false, true] {
            if pending {
                socket.send_to(&[1], socket.local_addr().unwrap()).unwrap();
            }
            let caller = {
                let waker = waker.clone();
                std::thread::spawn(move || waker.wake())
            };
            // The test would last an hour if the call were lost.
            bed.pause(&[&socket], &sleeper, clock::now() + hour);
            caller.join().unwrap();
            sleeper.take_wakes();
            assert_eq!(bed.readable(), if pending { &[0][..] } else { &[] });
        }
    }
}

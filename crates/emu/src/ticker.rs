//! Sleeping until a packet comes or one is due, but not too often.
//!
//! A wake-up costs more than a packet. So where many would be needed, each waits until a tick has
//! passed since the one before, and finds more to do, as a network card does that coalesces its
//! interrupts. Where there are few, what comes or is due is met at once.

use std::os::fd::{AsFd, OwnedFd};

use packtrain_os::clock;
use packtrain_units::{Duration, Time};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::device::Device;
use crate::sys;

/// Time slices of the emulator's thread: what is late is late for everybody.
const SLICE: Duration = Duration::from_micros(100);
/// Packets read and written in a tick from which on wake-ups are that far apart.
const CROWD: u64 = 8;
/// Units of a packet in the sum.
const SCALE: u64 = 64;
/// The longest sleep: nothing depends on it.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// Sleeps for the calling thread.
pub(crate) struct Ticker {
    tick: Duration,
    /// When the thread woke last.
    woke: Time,
    /// Sums that forget an eighth with each wake-up: packets, and nanoseconds between wake-ups.
    done: u64,
    apart: u64,
}

impl Ticker {
    /// For the calling thread. Where there is much to do, wake-ups are one `tick` apart.
    pub(crate) fn new(tick: Duration) -> Self {
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        sys::hurry(SLICE);
        Self { tick, woke: clock::now(), done: 0, apart: 0 }
    }

    /// Sleeps until `until`, or until a device or `wake` is readable. `done` packets were read or
    /// written since the last time.
    pub(crate) fn sleep<'a>(
        &mut self,
        devices: impl Iterator<Item = &'a Device>,
        wake: &OwnedFd,
        until: Option<Time>,
        done: u64,
    ) {
        let tick = self.tick.as_nanos();
        // Fractions of a packet do not get lost.
        self.done = self.done - self.done / 8 + done * SCALE;
        let now = clock::now();
        if done > 0 && tick > 0 && self.done * tick >= self.apart * (CROWD * SCALE) {
            let rest = self.tick.saturating_sub(now.since(self.woke));
            if !rest.is_zero() {
                let _ = rustix::thread::nanosleep(&timespec(rest));
            }
        } else {
            let wait = until.map_or(MAX_SLEEP, |until| until.since(now).min(MAX_SLEEP));
            let mut fds: Vec<PollFd<'_>> = devices
                .map(|device| PollFd::from_borrowed_fd(device.as_fd(), PollFlags::IN))
                .collect();
            fds.push(PollFd::new(wake, PollFlags::IN));
            // A signal ends it early, which is harmless.
            let _ = poll(&mut fds, Some(&timespec(wait)));
        }
        let woke = clock::now();
        let apart = woke.since(self.woke).as_nanos();
        // After a pause a few wake-ups tell enough.
        self.apart = self.apart - self.apart / 8 + apart.min(4 * tick);
        self.woke = woke;
    }
}

fn timespec(span: Duration) -> Timespec {
    let (seconds, nanos) = (span.as_nanos() / 1_000_000_000, span.as_nanos() % 1_000_000_000);
    Timespec { tv_sec: seconds as _, tv_nsec: nanos as _ }
}

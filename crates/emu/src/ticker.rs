//! Sleeps until a packet arrives or is due, with a limit on the number of wake-ups.
//!
//! A wake-up costs more than a packet. Under load each wake-up therefore waits until a tick has
//! passed since the one before, and finds more packets, as a network card does that coalesces its
//! interrupts. Otherwise packets are served at once.

use std::os::fd::{AsFd, OwnedFd};

use packtrain_os::clock;
use packtrain_units::{Duration, Time};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::device::Device;
use crate::sys;

/// Time slice of the emulator's thread. Its delay is a delay of every packet.
const SLICE: Duration = Duration::from_micros(100);
/// Packets read and written per tick from which on wake-ups are one tick apart.
const MIN_PACKETS_PER_TICK: u64 = 8;
/// Units per packet in the sum.
const SCALE: u64 = 64;
/// Maximum sleep; nothing depends on it.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// Sleep of the calling thread.
pub(crate) struct Ticker {
    tick: Duration,
    /// Time of the last wake-up.
    woke: Time,
    /// Decaying sums that lose an eighth with each wake-up: packets, and nanoseconds between
    /// wake-ups.
    done: u64,
    apart: u64,
}

impl Ticker {
    /// For the calling thread. Under load, wake-ups are one `tick` apart.
    pub(crate) fn new(tick: Duration) -> Self {
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        sys::raise_priority(SLICE);
        Self { tick, woke: clock::now(), done: 0, apart: 0 }
    }

    /// Sleeps until `until`, or until a device or `wake` is readable. `done` is the number of
    /// packets read or written since the last call.
    pub(crate) fn sleep<'a>(
        &mut self,
        devices: impl Iterator<Item = &'a Device>,
        wake: &OwnedFd,
        until: Option<Time>,
        done: u64,
    ) {
        let tick = self.tick.as_nanos();
        // The scale keeps fractions of a packet.
        self.done = self.done - self.done / 8 + done * SCALE;
        let now = clock::now();
        if done > 0 && tick > 0 && self.done * tick >= self.apart * (MIN_PACKETS_PER_TICK * SCALE) {
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
            // A signal ends the wait early, which is harmless.
            let _ = poll(&mut fds, Some(&timespec(wait)));
        }
        let woke = clock::now();
        let apart = woke.since(self.woke).as_nanos();
        // The limit makes a long pause weigh no more than four ticks.
        self.apart = self.apart - self.apart / 8 + apart.min(4 * tick);
        self.woke = woke;
    }
}

fn timespec(span: Duration) -> Timespec {
    let (seconds, nanos) = (span.as_nanos() / 1_000_000_000, span.as_nanos() % 1_000_000_000);
    Timespec { tv_sec: seconds as _, tv_nsec: nanos as _ }
}

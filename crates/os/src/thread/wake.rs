//! Wakes the network thread from its sleep; cheap if it does not sleep.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Wakes one network thread. Threads call it after they provided bytes that a payload reported as
/// pending, or freed space that a placement lacked. It makes a system call only if the thread
/// sleeps.
#[derive(Clone, Debug)]
pub struct Waker {
    shared: Arc<Shared>,
}

/// The receiving side, in the network thread.
pub struct WakeReceiver {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Set by a wake call; cleared by the thread.
    called: AtomicBool,
    /// The thread sleeps or is about to sleep.
    asleep: AtomicBool,
    bell: WakeEvent,
}

/// A waker and its receiver.
///
/// # Errors
/// The system has no file descriptor left.
pub fn pair() -> io::Result<(Waker, WakeReceiver)> {
    let shared = Arc::new(Shared {
        called: AtomicBool::new(false),
        asleep: AtomicBool::new(false),
        bell: WakeEvent::new()?,
    });
    Ok((Waker { shared: Arc::clone(&shared) }, WakeReceiver { shared }))
}

impl Waker {
    /// Makes the thread check its commands, its payload and its placement again.
    pub fn wake(&self) {
        // The order matters, here and in `WakeReceiver`: each side writes its own flag before it
        // reads the other's, so at least one of them sees both.
        self.shared.called.store(true, Ordering::SeqCst);
        if self.shared.asleep.swap(false, Ordering::SeqCst) {
            self.shared.bell.signal();
        }
    }
}

impl WakeReceiver {
    /// Announces a sleep; false if a wake call came meanwhile, so that the thread must not sleep.
    pub(crate) fn prepare_sleep(&self) -> bool {
        self.shared.asleep.store(true, Ordering::SeqCst);
        if self.shared.called.load(Ordering::SeqCst) {
            self.end_sleep();
            return false;
        }
        true
    }

    /// Ends the sleep; resets the event if it was signalled.
    pub(crate) fn end_sleep(&self) {
        if !self.shared.asleep.swap(false, Ordering::SeqCst) {
            self.shared.bell.reset();
        }
    }

    /// Clears the wake flag and returns it; the caller then checks what the wake calls announced.
    pub fn take_wakes(&self) -> bool {
        self.shared.called.swap(false, Ordering::SeqCst)
    }
}

impl AsFd for WakeReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.bell.as_fd()
    }
}

/// A file descriptor that becomes readable when it is signalled.
#[derive(Debug)]
struct WakeEvent {
    #[cfg(target_os = "linux")]
    event: OwnedFd,
    #[cfg(not(target_os = "linux"))]
    pipe: (OwnedFd, OwnedFd),
}

#[cfg(target_os = "linux")]
impl WakeEvent {
    fn new() -> io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};
        Ok(Self { event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    fn signal(&self) {
        // A write fails only at 2^64 - 1 pending signals, and then the descriptor is readable
        // already.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    fn reset(&self) {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(not(target_os = "linux"))]
impl WakeEvent {
    fn new() -> io::Result<Self> {
        let (near, far) = std::os::unix::net::UnixStream::pair()?;
        near.set_nonblocking(true)?;
        far.set_nonblocking(true)?;
        Ok(Self { pipe: (near.into(), far.into()) })
    }

    fn signal(&self) {
        let _ = rustix::io::write(&self.pipe.1, &[1]);
    }

    fn reset(&self) {
        let _ = rustix::io::read(&self.pipe.0, &mut [0; 64]);
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn is_signalled(sleeper: &WakeReceiver) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(sleeper, PollFlags::IN)], Some(&now)).unwrap() == 1
    }

    #[test]
    fn a_call_before_sleep_prevents_it() {
        let (waker, sleeper) = pair().unwrap();
        waker.wake();
        assert!(!is_signalled(&sleeper), "no system call while nobody sleeps");
        assert!(!sleeper.prepare_sleep());
        assert!(sleeper.take_wakes());
        assert!(sleeper.prepare_sleep());
        sleeper.end_sleep();
    }

    #[test]
    fn a_call_during_sleep_rings_once() {
        let (waker, sleeper) = pair().unwrap();
        assert!(sleeper.prepare_sleep());
        waker.wake();
        waker.clone().wake();
        assert!(is_signalled(&sleeper));
        sleeper.end_sleep();
        assert!(!is_signalled(&sleeper));
        assert!(sleeper.take_wakes());
        assert!(!sleeper.take_wakes());
    }

    #[test]
    fn no_call_is_lost() {
        let (waker, sleeper) = pair().unwrap();
        let turns = 20_000;
        let counter = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let theirs = Arc::clone(&counter);
        let caller = std::thread::spawn(move || {
            for _ in 0..turns {
                theirs.fetch_add(1, Ordering::SeqCst);
                waker.wake();
            }
        });
        // The thread would sleep forever here if a wake call were lost.
        while counter.load(Ordering::SeqCst) < turns || !caller.is_finished() {
            if caller.is_finished() {
                break;
            }
            if sleeper.prepare_sleep() {
                let limit = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
                let _ = poll(&mut [PollFd::new(&sleeper, PollFlags::IN)], Some(&limit));
                sleeper.end_sleep();
            }
            sleeper.take_wakes();
        }
        caller.join().unwrap();
        assert_eq!(counter.load(Ordering::SeqCst), turns);
    }
}

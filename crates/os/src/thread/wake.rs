//! Waking the network thread from its sleep, cheaply when it does not sleep.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Wakes one network thread: for those who bring bytes that a payload said were pending, or
/// free room that a placement lacked. Costs a system call only when the thread sleeps.
#[derive(Clone, Debug)]
pub struct Waker {
    shared: Arc<Shared>,
}

/// The thread's end of it.
pub struct Sleeper {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Somebody called since the thread last looked.
    called: AtomicBool,
    /// The thread is going to sleep or sleeping.
    asleep: AtomicBool,
    bell: Bell,
}

/// A waker and the sleeper that it wakes.
///
/// # Errors
/// What the system says when it has no descriptor left.
pub fn pair() -> io::Result<(Waker, Sleeper)> {
    let shared = Arc::new(Shared {
        called: AtomicBool::new(false),
        asleep: AtomicBool::new(false),
        bell: Bell::new()?,
    });
    Ok((Waker { shared: Arc::clone(&shared) }, Sleeper { shared }))
}

impl Waker {
    /// Makes the thread look at its commands, its payload and its placement again.
    pub fn wake(&self) {
        // Order matters, here and in `Sleeper`: each side writes its own flag before it reads
        // the other's, so at least one of them sees both.
        self.shared.called.store(true, Ordering::SeqCst);
        if self.shared.asleep.swap(false, Ordering::SeqCst) {
            self.shared.bell.ring();
        }
    }
}

impl Sleeper {
    /// Announces sleep; false when somebody called meanwhile, so that it must not happen.
    pub fn lie_down(&self) -> bool {
        self.shared.asleep.store(true, Ordering::SeqCst);
        if self.shared.called.load(Ordering::SeqCst) {
            self.get_up();
            return false;
        }
        true
    }

    /// The sleep is over; the bell is silenced if it rang.
    pub fn get_up(&self) {
        if !self.shared.asleep.swap(false, Ordering::SeqCst) {
            self.shared.bell.silence();
        }
    }

    /// Forgets the calls so far; what they announced is looked at after this.
    pub fn take_calls(&self) -> bool {
        self.shared.called.swap(false, Ordering::SeqCst)
    }
}

impl AsFd for Sleeper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.bell.as_fd()
    }
}

/// A file descriptor that becomes readable when rung.
#[derive(Debug)]
struct Bell {
    #[cfg(target_os = "linux")]
    event: OwnedFd,
    #[cfg(not(target_os = "linux"))]
    pipe: (OwnedFd, OwnedFd),
}

#[cfg(target_os = "linux")]
impl Bell {
    fn new() -> io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};
        Ok(Self { event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    fn ring(&self) {
        // It can only fail when 2^64 - 1 rings wait, and then it rings already.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    fn silence(&self) {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(not(target_os = "linux"))]
impl Bell {
    fn new() -> io::Result<Self> {
        let (near, far) = std::os::unix::net::UnixStream::pair()?;
        near.set_nonblocking(true)?;
        far.set_nonblocking(true)?;
        Ok(Self { pipe: (near.into(), far.into()) })
    }

    fn ring(&self) {
        let _ = rustix::io::write(&self.pipe.1, &[1]);
    }

    fn silence(&self) {
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

    fn rings(sleeper: &Sleeper) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(sleeper, PollFlags::IN)], Some(&now)).unwrap() == 1
    }

    #[test]
    fn a_call_before_sleep_prevents_it() {
        let (waker, sleeper) = pair().unwrap();
        waker.wake();
        assert!(!rings(&sleeper), "no system call while nobody sleeps");
        assert!(!sleeper.lie_down());
        assert!(sleeper.take_calls());
        assert!(sleeper.lie_down());
        sleeper.get_up();
    }

    #[test]
    fn a_call_during_sleep_rings_once() {
        let (waker, sleeper) = pair().unwrap();
        assert!(sleeper.lie_down());
        waker.wake();
        waker.clone().wake();
        assert!(rings(&sleeper));
        sleeper.get_up();
        assert!(!rings(&sleeper));
        assert!(sleeper.take_calls());
        assert!(!sleeper.take_calls());
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
        // Would sleep for ever here if a call were lost.
        while counter.load(Ordering::SeqCst) < turns || !caller.is_finished() {
            if caller.is_finished() {
                break;
            }
            if sleeper.lie_down() {
                let limit = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
                let _ = poll(&mut [PollFd::new(&sleeper, PollFlags::IN)], Some(&limit));
                sleeper.get_up();
            }
            sleeper.take_calls();
        }
        caller.join().unwrap();
        assert_eq!(counter.load(Ordering::SeqCst), turns);
    }
}

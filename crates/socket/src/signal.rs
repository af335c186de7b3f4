//! Wakes a thread that waits for several sockets.

use packtrain_os::clock;
use packtrain_units::Time;
use parking_lot::{Condvar, Mutex};

/// Notified when the state of one of the sockets changes.
#[derive(Debug, Default)]
pub(crate) struct PollSignal {
    rung: Mutex<bool>,
    condvar: Condvar,
}

impl PollSignal {
    /// Notifies the waiting thread.
    pub(crate) fn notify(&self) {
        *self.rung.lock() = true;
        self.condvar.notify_all();
    }
    /// Clears earlier notifications.
    pub(crate) fn clear(&self) {
        *self.rung.lock() = false;
    }

    /// Waits for a notification, at most until `until`.
    pub(crate) fn wait(&self, until: Option<Time>) {
        let mut rung = self.rung.lock();
        while !*rung {
            match until {
                None => self.condvar.wait(&mut rung),
                Some(until) => {
                    let left = until.since(clock::now());
                    if left.is_zero() {
                        break;
                    }
                    self.condvar.wait_for(&mut rung, left.to_std());
                }
            }
        }
    }
}

//! What wakes a thread that waits for many sockets.

use packtrain_os::clock;
use packtrain_units::Time;
use parking_lot::{Condvar, Mutex};

/// Rung when something happened to one of the sockets.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: Mutex<bool>,
    condvar: Condvar,
}

impl Bell {
    /// Something happened.
    pub(crate) fn ring(&self) {
        *self.rung.lock() = true;
        self.condvar.notify_all();
    }
    /// Rings from now on are new.
    pub(crate) fn clear(&self) {
        *self.rung.lock() = false;
    }

    /// Waits until it rings, at the longest until `until`.
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

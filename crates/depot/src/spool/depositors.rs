//! The connections that deposit records of one session.
//!
//! The header is not encrypted and is valid until the session expires, so an observer can connect
//! with a copy of it and use up the connections of the key. Therefore their number is small. A new
//! connection replaces the one that has delivered no new record for the longest time. A replayed
//! connection delivers no new record.

use parking_lot::{Mutex, MutexGuard};

use packtrain_units::Time;
use tokio::sync::oneshot;

/// Maximum connections per session: the current one, and one that is dead but not detected yet.
const MAX_PER_SESSION: usize = 2;

#[derive(Debug, Default)]
pub(super) struct Depositors(Mutex<All>);

#[derive(Debug, Default)]
struct All {
    next: u64,
    here: Vec<Depositor>,
}

#[derive(Debug)]
struct Depositor {
    number: u64,
    /// When it last delivered a new record; `None` if never.
    last_new: Option<Time>,
    /// Dropped to end the connection.
    _stay: oneshot::Sender<()>,
}

/// The slot of a connection, released on drop.
#[derive(Debug)]
pub(super) struct DepositorSlot<'a> {
    depositors: &'a Depositors,
    number: u64,
    leave: Option<oneshot::Receiver<()>>,
}

impl Depositors {
    fn all(&self) -> MutexGuard<'_, All> {
        self.0.lock()
    }

    /// Takes a slot, and may evict another connection.
    pub(super) fn join(&self) -> DepositorSlot<'_> {
        let mut all = self.all();
        if all.here.len() >= MAX_PER_SESSION {
            let idle =
                all.here.iter().enumerate().min_by_key(|(_, one)| (one.last_new, one.number));
            let idle = idle.map(|(at, _)| at);
            idle.map(|at| all.here.remove(at));
        }
        let number = all.next;
        all.next += 1;
        let (stay, leave) = oneshot::channel();
        all.here.push(Depositor { number, last_new: None, _stay: stay });
        DepositorSlot { depositors: self, number, leave: Some(leave) }
    }
}

impl DepositorSlot<'_> {
    /// Records that a new record was delivered.
    pub(super) fn record_delivered(&self, now: Time) {
        let mut all = self.depositors.all();
        if let Some(own) = all.here.iter_mut().find(|one| one.number == self.number) {
            own.last_new = Some(now);
        }
    }

    /// Completes when the connection is evicted. Call it once.
    pub(super) fn left(&mut self) -> impl Future<Output = ()> + use<> {
        let leave = self.leave.take();
        async move {
            if let Some(leave) = leave {
                // No value is sent: the sender is dropped.
                let _ = leave.await;
            }
        }
    }
}

impl Drop for DepositorSlot<'_> {
    fn drop(&mut self) {
        self.depositors.all().here.retain(|one| one.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use packtrain_units::Duration;

    use super::*;

    fn is_left(one: &mut DepositorSlot<'_>) -> bool {
        let leave = one.leave.as_mut().expect("nobody waits for it");
        leave.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn who_brings_stays_however_many_come() {
        let depositors = Depositors::default();
        let mut sender = depositors.join();
        sender.record_delivered(Time::ZERO + Duration::from_secs(1));
        let mut replays: Vec<_> = (0..100).map(|_| depositors.join()).collect();
        assert!(!is_left(&mut sender));
        let (last, before) = replays.split_last_mut().expect("some");
        assert!(!is_left(last) && before.iter_mut().all(is_left));
        // A reconnecting sender gets a slot, although its old connection is not detected as dead
        // yet.
        let mut again = depositors.join();
        assert!(is_left(last) && !is_left(&mut sender));
        again.record_delivered(Time::ZERO + Duration::from_secs(2));
        let _third = depositors.join();
        assert!(is_left(&mut sender) && !is_left(&mut again));
        drop(replays);
        assert_eq!(depositors.all().here.len(), 2);
    }
}

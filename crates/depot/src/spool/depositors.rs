//! Connections that bring the records of one session.
//!
//! Its header is in clear and good until its time is over, so whoever saw it can connect with it and
//! take places that are its key's. Therefore they are few, and who comes takes the place of the one
//! that has brought nothing for longest: who only repeats what it saw brings nothing.

use parking_lot::{Mutex, MutexGuard};

use packtrain_units::Time;
use tokio::sync::oneshot;

/// Connections of one session: that of who brings it now, and one that nobody has noticed to be dead.
const MAX_PER_SESSION: usize = 2;

#[derive(Debug, Default)]
pub(super) struct Depositors(Mutex<All>);

#[derive(Debug, Default)]
struct All {
    next: u64,
    here: Vec<Bringer>,
}

#[derive(Debug)]
struct Bringer {
    number: u64,
    /// When it last brought a record that was not here; none if it never did.
    brought: Option<Time>,
    /// Dropped when it is to leave.
    _stay: oneshot::Sender<()>,
}

/// One connection's place, given up with it.
#[derive(Debug)]
pub(super) struct Bringing<'a> {
    depositors: &'a Depositors,
    number: u64,
    leave: Option<oneshot::Receiver<()>>,
}

impl Depositors {
    fn all(&self) -> MutexGuard<'_, All> {
        self.0.lock()
    }

    /// Takes a place, perhaps another's.
    pub(super) fn join(&self) -> Bringing<'_> {
        let mut all = self.all();
        if all.here.len() >= MAX_PER_SESSION {
            let idle = all.here.iter().enumerate().min_by_key(|(_, one)| (one.brought, one.number));
            let idle = idle.map(|(at, _)| at);
            idle.map(|at| all.here.remove(at));
        }
        let number = all.next;
        all.next += 1;
        let (stay, leave) = oneshot::channel();
        all.here.push(Bringer { number, brought: None, _stay: stay });
        Bringing { depositors: self, number, leave: Some(leave) }
    }
}

impl Bringing<'_> {
    /// It brought a record that was not here.
    pub(super) fn brought(&self, now: Time) {
        let mut all = self.depositors.all();
        if let Some(own) = all.here.iter_mut().find(|one| one.number == self.number) {
            own.brought = Some(now);
        }
    }

    /// When another is to have its place: to be waited for once.
    pub(super) fn left(&mut self) -> impl Future<Output = ()> + use<> {
        let leave = self.leave.take();
        async move {
            if let Some(leave) = leave {
                // Nobody says anything: its other end is dropped.
                let _ = leave.await;
            }
        }
    }
}

impl Drop for Bringing<'_> {
    fn drop(&mut self) {
        self.depositors.all().here.retain(|one| one.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use packtrain_units::Duration;

    use super::*;

    fn is_left(one: &mut Bringing<'_>) -> bool {
        let leave = one.leave.as_mut().expect("nobody waits for it");
        leave.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn who_brings_stays_however_many_come() {
        let depositors = Depositors::default();
        let mut sender = depositors.join();
        sender.brought(Time::ZERO + Duration::from_secs(1));
        let mut replays: Vec<_> = (0..100).map(|_| depositors.join()).collect();
        assert!(!is_left(&mut sender));
        let (last, before) = replays.split_last_mut().expect("some");
        assert!(!is_left(last) && before.iter_mut().all(is_left));
        // Who comes back finds a place, although its old connection is not known to be dead.
        let mut again = depositors.join();
        assert!(is_left(last) && !is_left(&mut sender));
        again.brought(Time::ZERO + Duration::from_secs(2));
        let _third = depositors.join();
        assert!(is_left(&mut sender) && !is_left(&mut again));
        drop(replays);
        assert_eq!(depositors.all().here.len(), 2);
    }
}

//! Fair shares of the relay when bytes arrive faster than this machine can relay them.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::oneshot;

/// Maximum lead of a direction over the others. It is larger than a turn, so that turns do not wait
/// for each other.
const MAX_LEAD: u64 = 512 << 10;
/// Maximum deficit of a direction that was idle: the bytes that it may then move before the others
/// continue.
const MAX_DEFICIT: u64 = 8 << 20;

/// Schedules all directions that have bytes to move: none gets far ahead of others that wait for
/// their turn.
///
/// This is start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996) over turns. The virtual
/// time of a direction is the number of bytes that it has moved. The directions with the lowest
/// virtual time run, as many as there are processors, and those that are not far ahead of them. The
/// assignment to processors is left to the kernel's scheduler, which alone gives some directions
/// three times as much as others.
#[derive(Debug)]
pub struct FairScheduler(Mutex<State>);

type Key = (u64, u64);

#[derive(Debug)]
struct State {
    processors: usize,
    /// Number of keys issued.
    count: u64,
    /// The latest virtual time.
    now: u64,
    /// The directions with bytes to move, by virtual time.
    active: BTreeSet<Key>,
    /// Those of them that wait for the others.
    waiting: BTreeMap<Key, oneshot::Sender<()>>,
}

impl State {
    /// The maximum virtual time at which a direction may run.
    fn limit(&mut self) -> u64 {
        let Some((at, _)) = self.active.iter().nth(self.processors - 1) else {
            // If there are fewer directions than processors, none waits.
            self.now = self.now.max(self.active.last().map_or(0, |key| key.0));
            return u64::MAX;
        };
        self.now = self.now.max(*at);
        at + MAX_LEAD
    }

    /// Wakes the directions that the others have caught up with.
    fn wake(&mut self) {
        let limit = self.limit();
        while let Some(first) = self.waiting.first_entry() {
            if first.key().0 > limit {
                return;
            }
            // The receiver may be gone.
            let _ = first.remove().send(());
        }
    }
}

impl FairScheduler {
    /// A scheduler for a machine with this number of processors.
    pub fn new(processors: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            processors: processors.max(1),
            count: 0,
            now: 0,
            active: BTreeSet::new(),
            waiting: BTreeMap::new(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

/// The state of one direction.
#[derive(Debug)]
pub(super) struct Share {
    scheduler: Arc<FairScheduler>,
    key: Key,
    active: bool,
    /// Bytes moved since its last position in the order.
    moved: u64,
}

impl Share {
    pub(super) fn new(scheduler: &Arc<FairScheduler>) -> Self {
        let key = {
            let mut state = scheduler.lock();
            state.count += 1;
            (state.now, state.count)
        };
        Self { scheduler: Arc::clone(scheduler), key, active: false, moved: 0 }
    }

    /// Adds moved bytes.
    pub(super) fn moved(&mut self, bytes: usize) {
        self.moved += bytes as u64;
    }

    /// The direction has bytes to move; returns when it may run.
    pub(super) async fn enter(&mut self) {
        let wait = {
            let mut state = self.scheduler.lock();
            let mut key = (self.key.0 + std::mem::take(&mut self.moved), self.key.1);
            if self.active {
                state.active.remove(&self.key);
            } else {
                key.0 = key.0.max(state.now.saturating_sub(MAX_DEFICIT));
            }
            (self.key, self.active) = (key, true);
            state.active.insert(key);
            state.wake();
            if key.0 <= state.limit() {
                return;
            }
            let (go, wait) = oneshot::channel();
            state.waiting.insert(key, go);
            wait
        };
        // The sender is kept until it is used.
        let _ = wait.await;
    }

    /// The direction has no bytes to move.
    pub(super) fn leave(&mut self) {
        if !std::mem::take(&mut self.active) {
            return;
        }
        let mut state = self.scheduler.lock();
        state.active.remove(&self.key);
        state.waiting.remove(&self.key);
        state.wake();
        self.key.0 += std::mem::take(&mut self.moved);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use proptest::prelude::*;

    use super::*;

    type Running = Pin<Box<dyn Future<Output = Share>>>;

    /// Moves bytes, then asks whether it may continue.
    fn turn(mut share: Share, size: u64) -> Running {
        Box::pin(async move {
            share.moved(size as usize);
            share.enter().await;
            share
        })
    }

    fn poll(running: &mut Running) -> Option<Share> {
        match running.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(share) => Some(share),
            Poll::Pending => None,
        }
    }

    #[test]
    fn who_is_ahead_waits_for_the_others_and_not_for_those_who_left() {
        let scheduler = FairScheduler::new(1);
        let mut slow = poll(&mut turn(Share::new(&scheduler), 0)).expect("it is alone");
        let mut fast = turn(Share::new(&scheduler), MAX_LEAD + 1);
        assert!(poll(&mut fast).is_none());
        slow.moved(1);
        let slow = poll(&mut turn(slow, 0)).expect("it is behind");
        let fast = poll(&mut fast).expect("they are near again");
        let mut fast = turn(fast, 5 * MAX_LEAD);
        assert!(poll(&mut fast).is_none());
        drop(slow);
        let fast = poll(&mut fast).expect("it is alone");
        drop(fast);
        assert!(scheduler.lock().active.is_empty() && scheduler.lock().waiting.is_empty());
    }

    #[test]
    fn who_comes_late_has_no_more_than_the_credit() {
        let scheduler = FairScheduler::new(1);
        let mut old = Share::new(&scheduler);
        let late = Share::new(&scheduler);
        for _ in 0..100 {
            old = poll(&mut turn(old, MAX_LEAD)).expect("it is alone");
        }
        let late = poll(&mut turn(late, 0)).expect("it is behind");
        assert_eq!(late.key.0, 100 * MAX_LEAD - MAX_DEFICIT);
        assert!(poll(&mut turn(old, 0)).is_none());
    }

    proptest! {
        /// For any order: a direction that could always run is never far ahead of the direction
        /// that ranks next after as many as there are processors; at least one may always run.
        #[test]
        fn parts_are_equal(
            processors in 1usize..4,
            sizes in prop::collection::vec(1u64..(MAX_LEAD / 2), 2..20),
            order in prop::collection::vec((0usize..1000, 0u8..20), 200..2000),
        ) {
            let scheduler = FairScheduler::new(processors);
            let begin = |_: &u64| turn(Share::new(&scheduler), 0);
            let mut running: Vec<Running> = sizes.iter().map(begin).collect();
            for (which, what) in order {
                let n = which % running.len();
                if let Some(mut share) = poll(&mut running[n]) {
                    if what == 0 {
                        share.leave();
                    }
                    running[n] = turn(share, sizes[n]);
                }
                let state = scheduler.lock();
                let least = state.active.iter().nth(processors - 1).map(|key| key.0);
                let most = state.active.last().map(|key| key.0);
                // A returning direction may be behind, and one that is ahead may have had its turn.
                if let (Some(least), Some(most)) = (least, most) {
                    prop_assert!(most <= least + MAX_LEAD + MAX_DEFICIT + MAX_LEAD);
                }
                if !state.active.is_empty() {
                    prop_assert!(state.waiting.len() < state.active.len());
                }
            }
        }
    }
}

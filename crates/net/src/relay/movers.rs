//! Equal parts for all, where bytes come faster than this machine passes them on.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::oneshot;

/// How far one may be before the others. More than a turn, so that turns do not wait for each other.
const AHEAD: u64 = 512 << 10;
/// How far one who had nothing to move may be behind the others afterwards: what it may move before
/// they go on.
const CREDIT: u64 = 8 << 20;

/// All who move bytes: nobody gets far ahead of others who could move some too and have not had
/// their turn.
///
/// That is fair queueing by start time (Goyal, Vin and Cheng, SIGCOMM 1996) over turns: a virtual time is
/// the bytes that one has moved, those with the least go on, as many as there are processors, and
/// those who are not much before them. Who runs on which processor, and when, is left to
/// the scheduler; that alone gives one three times what another has.
#[derive(Debug)]
pub struct Movers(Mutex<State>);

type Key = (u64, u64);

#[derive(Debug)]
struct State {
    processors: usize,
    /// Numbers given out.
    count: u64,
    /// The virtual time when it last was one.
    now: u64,
    /// Those who can move bytes, by how many they have moved.
    active: BTreeSet<Key>,
    /// Those of them who wait for the others.
    waiting: BTreeMap<Key, oneshot::Sender<()>>,
}

impl State {
    /// The most that one may have moved to go on.
    fn limit(&mut self) -> u64 {
        let Some((at, _)) = self.active.iter().nth(self.processors - 1) else {
            // Fewer than there are processors never wait.
            self.now = self.now.max(self.active.last().map_or(0, |key| key.0));
            return u64::MAX;
        };
        self.now = self.now.max(*at);
        at + AHEAD
    }

    /// Lets those go on whom the others have caught up with.
    fn wake(&mut self) {
        let limit = self.limit();
        while let Some(first) = self.waiting.first_entry() {
            if first.key().0 > limit {
                return;
            }
            // One who has left has no use for it.
            let _ = first.remove().send(());
        }
    }
}

impl Movers {
    /// On a machine that moves for so many at a time.
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

/// One of them.
#[derive(Debug)]
pub(super) struct Share {
    movers: Arc<Movers>,
    key: Key,
    active: bool,
    /// Moved since its place among the others was looked at.
    moved: u64,
}

impl Share {
    pub(super) fn new(movers: &Arc<Movers>) -> Self {
        let key = {
            let mut state = movers.lock();
            state.count += 1;
            (state.now, state.count)
        };
        Self { movers: Arc::clone(movers), key, active: false, moved: 0 }
    }

    /// It has moved bytes.
    pub(super) fn moved(&mut self, bytes: usize) {
        self.moved += bytes as u64;
    }

    /// It can move bytes now; returns when it may.
    pub(super) async fn enter(&mut self) {
        let wait = {
            let mut state = self.movers.lock();
            let mut key = (self.key.0 + std::mem::take(&mut self.moved), self.key.1);
            if self.active {
                state.active.remove(&self.key);
            } else {
                key.0 = key.0.max(state.now.saturating_sub(CREDIT));
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
        // The sender stays where it is until it is used.
        let _ = wait.await;
    }

    /// It cannot move any at the moment.
    pub(super) fn leave(&mut self) {
        if !std::mem::take(&mut self.active) {
            return;
        }
        let mut state = self.movers.lock();
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

    /// Moves so much, and asks whether it may go on.
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
        let movers = Movers::new(1);
        let mut slow = poll(&mut turn(Share::new(&movers), 0)).expect("it is alone");
        let mut fast = turn(Share::new(&movers), AHEAD + 1);
        assert!(poll(&mut fast).is_none());
        slow.moved(1);
        let slow = poll(&mut turn(slow, 0)).expect("it is behind");
        let fast = poll(&mut fast).expect("they are near again");
        let mut fast = turn(fast, 5 * AHEAD);
        assert!(poll(&mut fast).is_none());
        drop(slow);
        let fast = poll(&mut fast).expect("it is alone");
        drop(fast);
        assert!(movers.lock().active.is_empty() && movers.lock().waiting.is_empty());
    }

    #[test]
    fn who_comes_late_has_no_more_than_the_credit() {
        let movers = Movers::new(1);
        let mut old = Share::new(&movers);
        let late = Share::new(&movers);
        for _ in 0..100 {
            old = poll(&mut turn(old, AHEAD)).expect("it is alone");
        }
        let late = poll(&mut turn(late, 0)).expect("it is behind");
        assert_eq!(late.key.0, 100 * AHEAD - CREDIT);
        assert!(poll(&mut turn(old, 0)).is_none());
    }

    proptest! {
        /// However they are scheduled, of those who always could go on none is far ahead of the
        /// one who comes after as many as there are processors; somebody always may go on.
        #[test]
        fn parts_are_equal(
            processors in 1usize..4,
            sizes in prop::collection::vec(1u64..(AHEAD / 2), 2..20),
            order in prop::collection::vec((0usize..1000, 0u8..20), 200..2000),
        ) {
            let movers = Movers::new(processors);
            let begin = |_: &u64| turn(Share::new(&movers), 0);
            let mut running: Vec<Running> = sizes.iter().map(begin).collect();
            for (which, what) in order {
                let n = which % running.len();
                if let Some(mut share) = poll(&mut running[n]) {
                    if what == 0 {
                        share.leave();
                    }
                    running[n] = turn(share, sizes[n]);
                }
                let state = movers.lock();
                let least = state.active.iter().nth(processors - 1).map(|key| key.0);
                let most = state.active.last().map(|key| key.0);
                // One who comes back may be behind, one who is ahead may have had a turn.
                if let (Some(least), Some(most)) = (least, most) {
                    prop_assert!(most <= least + AHEAD + CREDIT + AHEAD);
                }
                if !state.active.is_empty() {
                    prop_assert!(state.waiting.len() < state.active.len());
                }
            }
        }
    }
}

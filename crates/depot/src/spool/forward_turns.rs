//! Which sessions may have a connection to a next depot.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use packtrain_identity::pubkey::PublicKey;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum concurrent connections to next depots, and those of the sessions of one key; further ones
/// wait. A next depot that its sender controls may hold a connection for as long as the session is
/// kept, so the share keeps one key from holding them all.
const MAX_FORWARDS: usize = 256;
pub(super) const MAX_FORWARDS_PER_KEY: usize = MAX_FORWARDS / 8;

/// The connections of one depot.
pub(super) struct ForwardTurns {
    all: Arc<Places>,
    /// Those of the keys that have or await one.
    keys: Mutex<BTreeMap<PublicKey, Weak<Places>>>,
}

/// A number of places, and how many wait for one.
struct Places {
    free: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// One place; it is free again when this value is dropped.
struct TakenPlace {
    places: Arc<Places>,
    _permit: Option<OwnedSemaphorePermit>,
}

/// The turn of one connection; it ends when this value is dropped.
pub(super) struct ForwardTurn {
    all: TakenPlace,
    own: TakenPlace,
}

impl Places {
    fn new(count: usize) -> Arc<Self> {
        Arc::new(Self { free: Arc::new(Semaphore::new(count)), waiting: AtomicUsize::new(0) })
    }

    async fn take(self: Arc<Self>) -> TakenPlace {
        let waits = Waits::new(&self);
        // The semaphore is never closed.
        let permit = Arc::clone(&self.free).acquire_owned().await.ok();
        drop(waits);
        TakenPlace { places: self, _permit: permit }
    }
}

/// Counts one that waits.
struct Waits<'a>(&'a Places);

impl<'a> Waits<'a> {
    fn new(places: &'a Places) -> Self {
        places.waiting.fetch_add(1, Ordering::Relaxed);
        Self(places)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ForwardTurn {
    /// Whether another session waits for this turn.
    pub(super) fn is_wanted(&self) -> bool {
        let waits = |one: &TakenPlace| one.places.waiting.load(Ordering::Relaxed) > 0;
        waits(&self.own) || waits(&self.all)
    }
}

impl Default for ForwardTurns {
    fn default() -> Self {
        Self { all: Places::new(MAX_FORWARDS), keys: Mutex::default() }
    }
}

impl ForwardTurns {
    /// Waits for a turn for a session of `key`.
    pub(super) async fn take(&self, key: PublicKey) -> ForwardTurn {
        // First the share of the key, so that what waits for it holds no place of the others.
        let own = self.share(key).take().await;
        ForwardTurn { all: Arc::clone(&self.all).take().await, own }
    }

    fn share(&self, key: PublicKey) -> Arc<Places> {
        let mut keys = self.keys.lock();
        keys.retain(|_, share| share.strong_count() > 0);
        if let Some(share) = keys.get(&key).and_then(Weak::upgrade) {
            return share;
        }
        let share = Places::new(MAX_FORWARDS_PER_KEY);
        keys.insert(key, Arc::downgrade(&share));
        share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a turn is granted at once.
    async fn granted(turns: &ForwardTurns, key: PublicKey) -> Option<ForwardTurn> {
        let now = std::future::ready(());
        tokio::select! {
            biased;
            turn = turns.take(key) => Some(turn),
            () = now => None,
        }
    }

    #[tokio::test]
    async fn the_sessions_of_one_key_leave_turns_to_others() {
        const A: PublicKey = PublicKey([1; 32]);
        const B: PublicKey = PublicKey([2; 32]);
        let turns = ForwardTurns::default();
        let mut held = Vec::new();
        while let Some(turn) = granted(&turns, A).await {
            held.push(turn);
        }
        assert_eq!(held.len(), MAX_FORWARDS_PER_KEY);
        let other = granted(&turns, B).await.expect("another key has its own share");
        assert!(!held[0].is_wanted() && !other.is_wanted());
        {
            let mut waits = std::pin::pin!(turns.take(A));
            let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
            assert!(waits.as_mut().poll(context).is_pending());
            assert!(held[0].is_wanted() && !other.is_wanted());
        }
        assert!(!held[0].is_wanted(), "it waits no more");
        held.pop();
        held.push(granted(&turns, A).await.expect("one has ended"));
        drop((held, other));
        let last = granted(&turns, B).await;
        assert_eq!((last.is_some(), turns.keys.lock().len()), (true, 1), "A is forgotten");
        assert_eq!(turns.all.free.available_permits(), MAX_FORWARDS - 1);
    }
}

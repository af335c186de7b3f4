//! Waiting for room in the assembly, on threads and in tasks.

use std::pin::pin;

use packtrain_object::{BLOCK, CHUNK, SPACE_END};
use packtrain_proto::Placed;
use packtrain_units::{ByteCount, Duration, Offset};
use parking_lot::MutexGuard;

use super::{Assembly, SMALL_FILE_MEMORY_BYTES, State};

/// Time that data waits for room before extra memory is granted, and maximum number of consecutive
/// waits beside writers that have nothing to do.
const PLACE_TIMEOUT: std::time::Duration = std::time::Duration::from_millis(500);
const MAX_WAITS: u32 = 240;

impl Assembly {
    /// Calls `waker` when room is freed after data was refused.
    pub(crate) fn on_room(&self, waker: impl Fn() + Send + Sync + 'static) {
        self.0.wakers.lock().push(Box::new(waker));
    }

    /// Wakes all threads and tasks that wait for room.
    pub(super) fn wake(&self) {
        self.0.room.notify_all();
        self.0.room_for_tasks.notify_waiters();
    }

    pub(super) fn notify_room(&self, mut state: MutexGuard<'_, State>) {
        let refused = std::mem::take(&mut state.refused);
        drop(state);
        self.wake();
        if refused {
            for waker in self.0.wakers.lock().iter() {
                waker();
            }
        }
    }

    /// Sleeps for `wait`, but not longer than the assembly is open.
    pub(crate) fn sleep_until_closed(&self, wait: Duration) {
        let mut state = self.state();
        self.0.room.wait_while_for(&mut state, |state| !state.closed, wait.to_std());
    }

    /// Places as many of `bytes` at `at` as there is room for, without waiting; the rest.
    pub(crate) fn place_now<'a>(&self, at: Offset, bytes: &'a [u8]) -> (Offset, &'a [u8]) {
        self.place_some(&mut self.state(), at, bytes)
    }

    /// Places blocks of `bytes` at `at` until one finds no room; the rest. A block at a time, so that a
    /// large frame never needs more room than exists.
    fn place_some<'a>(
        &self,
        state: &mut State,
        mut at: Offset,
        mut bytes: &'a [u8],
    ) -> (Offset, &'a [u8]) {
        while !bytes.is_empty() {
            let step = (BLOCK.get() - at.get() % BLOCK.get()).min(bytes.len() as u64) as usize;
            if at >= SPACE_END {
                return (at, &[]);
            }
            if self.place_locked(state, at, &bytes[..step]) == Placed::NoRoom {
                break;
            }
            at += ByteCount(step as u64);
            bytes = &bytes[step..];
        }
        (at, bytes)
    }

    /// Places `bytes` at `at`; waits while there is no room. A task that waits holds no thread, and
    /// may be dropped.
    pub(crate) async fn place_async(&self, at: Offset, bytes: &[u8]) {
        let (mut at, mut bytes) = (at, bytes);
        let mut waited = 0;
        loop {
            // Registered before the try, so that no wakeup is missed. There is one try for each wakeup:
            // a try without room writes incomplete blocks early.
            let mut room = pin!(self.0.room_for_tasks.notified());
            room.as_mut().enable();
            (at, bytes) = self.place_now(at, bytes);
            if bytes.is_empty() || self.state().closed {
                return;
            }
            if tokio::time::timeout(PLACE_TIMEOUT, room).await.is_ok() {
                waited = 0;
            } else if !self.state().wait_longer(&mut waited, self.is_writing()) {
                return;
            }
        }
    }

    /// Places `bytes` at `at`; blocks while there is no room.
    pub(crate) fn place_waiting(&self, at: Offset, bytes: &[u8]) {
        let mut state = self.state();
        let (mut at, mut bytes) = self.place_some(&mut state, at, bytes);
        let mut waited = 0;
        while !bytes.is_empty() && self.wait_for_room(&mut state, &mut waited) {
            (at, bytes) = self.place_some(&mut state, at, bytes);
        }
    }

    /// Waits until there may be room; false if there will be none. `waited` counts how often nothing
    /// happened, in a row.
    pub(super) fn wait_for_room(
        &self,
        state: &mut MutexGuard<'_, State>,
        waited: &mut u32,
    ) -> bool {
        if state.closed {
            return false;
        }
        if !self.0.room.wait_for(state, PLACE_TIMEOUT).timed_out() {
            *waited = 0;
            return true;
        }
        state.wait_longer(waited, self.is_writing())
    }
}

impl State {
    /// Nothing happened during a wait for room: lends some. False if there will be none.
    fn wait_longer(&mut self, waited: &mut u32, is_writing: bool) -> bool {
        // What would make room may wait behind this data.
        self.extra_small_memory =
            (self.extra_small_memory + CHUNK.get()).min(SMALL_FILE_MEMORY_BYTES);
        // A disk may stand still for minutes.
        *waited = if is_writing { 0 } else { *waited + 1 };
        // No honest peer causes this many waits: the data is dropped, and the connection is read
        // again.
        !self.closed && *waited <= MAX_WAITS
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use crossbeam_channel::{Receiver, Sender, bounded};
    use packtrain_object::{ChunkIndex, Entry, EntryId, EntryKind, Mtime, Piece, RelPath};
    use packtrain_proto::Placement;
    use packtrain_transfer::{ChunkPlan, Failure};

    use super::*;
    use crate::assembly::{BLOCK_MEMORY_BYTES, PieceTarget};

    /// Longer than anything takes here, and shorter than a wait for room that nobody ends.
    const LIMIT: std::time::Duration = std::time::Duration::from_secs(60);

    /// A target that writes once its gate is dropped.
    struct Gated(Receiver<Infallible>);

    impl PieceTarget for Gated {
        fn write(&self, _: EntryId, _: &Entry, _: u64, _: &[u8]) -> Result<(), Failure> {
            let _ = self.0.recv();
            Ok(())
        }

        fn zero(&self, _: EntryId, _: &Entry, _: u64, _: u64) -> Result<(), Failure> {
            Ok(())
        }

        fn read(&self, _: EntryId, _: &Entry, _: u64, _: &mut [u8]) -> bool {
            false
        }

        fn write_small(&self, _: EntryId, _: &Entry, _: &[u8]) -> Result<(), Failure> {
            Ok(())
        }
    }

    /// An assembly without room until the gate is dropped, and where data is expected that finds no
    /// room.
    pub(crate) fn full() -> (Assembly, Sender<Infallible>, Offset) {
        let (gate, opens) = bounded(0);
        let mut assembly = Assembly::new(Gated(opens), Arc::default(), |_| {});
        let blocks = BLOCK_MEMORY_BYTES / BLOCK.get();
        let chunks = BLOCK_MEMORY_BYTES / CHUNK.get() + 4;
        let entry = Entry {
            path: RelPath::new(b"f".to_vec()).expect("a path"),
            kind: EntryKind::File { size: chunks * CHUNK.get() },
            mode: 0o644,
            mtime: Mtime { secs: 0, nanos: 0 },
            uid: 0,
            gid: 0,
            extras: Default::default(),
        };
        for n in 0..chunks {
            let chunk = ChunkIndex(n as _);
            let range = chunk.range();
            let file_offset = range.start.get();
            let piece = Piece { entry: EntryId(0), file_offset, range, whole: false };
            assembly.expect(ChunkPlan { chunk, pieces: vec![(piece, entry.clone())] });
        }
        for n in 0..blocks {
            let placed = assembly.place(Offset(n * BLOCK.get()), &[1]);
            assert_eq!(placed, Placed::New, "block {n} of {blocks}");
        }
        let next = Offset(blocks * BLOCK.get());
        assert_eq!(assembly.place(next, &[1]), Placed::NoRoom);
        (assembly, gate, next)
    }

    #[test]
    fn a_disk_that_stands_still_is_waited_for() {
        let (assembly, gate, _) = full();
        assert!(assembly.is_writing(), "the gate is closed");
        let (mut state, mut waited) = (State::default(), 0);
        assert!((0..10 * MAX_WAITS).all(|_| state.wait_longer(&mut waited, true)));
        assert_eq!((0..).take_while(|_| state.wait_longer(&mut waited, false)).count(), 240);
        assert!(state.extra_small_memory <= SMALL_FILE_MEMORY_BYTES);
        drop(gate);
        assembly.close_and_wait();
        assert!(!assembly.is_writing());
    }

    /// A runtime of one thread: a task that held it would stop all others.
    #[tokio::test]
    async fn tasks_that_wait_for_room_hold_no_thread() {
        let (assembly, gate, next) = full();
        let waiting: Vec<_> = (0..600)
            .map(|_| {
                let assembly = assembly.clone();
                tokio::spawn(async move { assembly.place_async(next, &[1]).await })
            })
            .collect();
        // All of them have begun to wait once a task that was started after them has run.
        tokio::spawn(async {}).await.expect("it runs");
        assert!(waiting.iter().all(|task| !task.is_finished()), "there is room");
        // A task that waits may be dropped.
        for task in &waiting[..300] {
            task.abort();
        }
        drop(gate);
        for (n, task) in waiting.into_iter().enumerate() {
            let ended = tokio::time::timeout(LIMIT, task).await.expect("it ends");
            assert_eq!(ended.is_ok(), n >= 300);
        }
        // Whoever did not give up has placed its byte.
        let mut assembly = assembly;
        assert_eq!(assembly.place(next, &[1]), Placed::Duplicate);
        assembly.close();
    }

    #[tokio::test]
    async fn an_assembly_that_is_closed_is_not_waited_for() {
        let (assembly, gate, next) = full();
        let waits = assembly.clone();
        let task = tokio::spawn(async move { waits.place_async(next, &[1]).await });
        tokio::spawn(async {}).await.expect("it runs");
        let (sleeper, (over, ended)) = (assembly.clone(), bounded::<()>(0));
        packtrain_service::executor::spawn("sleeps", move || {
            sleeper.sleep_until_closed(Duration::from_secs(1 << 30));
            drop(over);
        });
        assembly.close();
        tokio::time::timeout(LIMIT, task).await.expect("it ends").expect("no panic");
        assert!(ended.recv_timeout(LIMIT).is_err_and(|e| !e.is_timeout()));
        drop(gate);
    }
}

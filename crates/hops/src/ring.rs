//! The bytes of one direction of a session that goes by datagrams on either side: placed in any
//! order, taken in order, kept until they are let go.
//!
//! Memory comes in blocks. The first two are what each direction of a session always has; further
//! ones are lent by the pool while there are any and this direction has less than its share. The
//! block at the head is always there, so what is missing at the head always finds room, whatever
//! else came before it and whoever else keeps the pool.

use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use packtrain_object::RangeSet;
use packtrain_os::thread::Waker;
use packtrain_proto::{Fill, Placed};
use packtrain_units::{ByteCount, Offset};
use tokio::sync::Notify;

use super::pool::{BLOCK, MIN_DIRECTION, Pool};

/// Blocks that a direction always has.
const KEPT: usize = (MIN_DIRECTION / BLOCK) as usize;
/// So much is let go before whoever fills the ring is woken, unless it is empty.
const WAKE: u64 = 32 << 10;
/// The most bytes from the head on: what a round trip of 250 ms takes at 1 Gbit/s.
const MAX_BYTES: u64 = 32 << 20;

struct State {
    /// Bytes from that of the head on.
    blocks: VecDeque<Option<Box<[u8]>>>,
    /// Blocks beyond those kept.
    lent: u64,
    /// Everything before was let go.
    head: u64,
    /// Everything before has come.
    edge: u64,
    /// What came beyond the edge.
    beyond: RangeSet,
    /// What was let go beyond the head.
    gone: RangeSet,
    /// Bytes of the whole stream, once it is known.
    end: Option<u64>,
    held: bool,
    /// Fills it and must know when there is room again.
    filler: Option<Waker>,
    /// The head when that one was woken.
    woken: u64,
}

/// One direction's bytes.
pub struct Ring {
    state: Mutex<State>,
    pool: Arc<Pool>,
    more: Notify,
    unheld: Notify,
    room: Notify,
    gone: Notify,
}

/// How far a stream has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Bytes up to this one.
    Edge(u64),
    /// All of them, so many.
    End(u64),
}

impl Ring {
    /// An empty ring that borrows from `pool`.
    pub fn new(pool: &Arc<Pool>) -> Arc<Self> {
        pool.open_ring();
        let state = State {
            blocks: VecDeque::new(),
            lent: 0,
            head: 0,
            edge: 0,
            beyond: RangeSet::new(),
            gone: RangeSet::new(),
            end: None,
            held: false,
            filler: None,
            woken: 0,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            pool: Arc::clone(pool),
            more: Notify::new(),
            unheld: Notify::new(),
            room: Notify::new(),
            gone: Notify::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Nobody waits successfully for bytes until [`Ring::release_hold`].
    pub fn hold(&self) {
        self.state().held = true;
    }

    /// Undoes one [`Ring::hold`].
    pub fn release_hold(&self) {
        self.state().held = false;
        self.unheld.notify_one();
    }

    /// Has this woken when there is room.
    pub(super) fn wake(&self, filler: Option<Waker>) {
        self.state().filler = filler;
    }

    /// Bytes that were let go from the beginning on.
    pub fn head(&self) -> u64 {
        self.state().head
    }

    /// Bytes that came from the beginning on.
    pub(crate) fn edge(&self) -> u64 {
        self.state().edge
    }

    /// Appends what there is room for; how many bytes that were.
    pub fn append(&self, bytes: &[u8]) -> usize {
        let mut state = self.state();
        let at = state.edge;
        let mut len = (bytes.len() as u64).min((state.head + MAX_BYTES).saturating_sub(at));
        len = len.min(state.end.map_or(u64::MAX, |end| end.saturating_sub(at)));
        // As far as there are blocks.
        let first = state.head / BLOCK;
        let mut end = at;
        while end < at + len && state.ensure(&self.pool, (end / BLOCK - first) as usize) {
            end = ((end / BLOCK + 1) * BLOCK).min(at + len);
        }
        let count = (end - at) as usize;
        if count > 0 {
            state.write(at, &bytes[..count]);
            state.came(at..end);
            drop(state);
            self.more.notify_one();
        }
        count
    }

    /// Appends all of them, waiting for room.
    pub(crate) async fn append_all(&self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let count = self.append(bytes);
            bytes = &bytes[count..];
            if count == 0 {
                self.room.notified().await;
            }
        }
    }

    /// Waits until there is room for something, at most `most` bytes.
    pub(crate) async fn wait_room(&self, most: usize) -> usize {
        loop {
            {
                let mut state = self.state();
                let first = state.head / BLOCK;
                let (at, edge) = ((state.edge / BLOCK - first) as usize, state.edge);
                if edge < state.head + MAX_BYTES && state.ensure(&self.pool, at) {
                    // The next block too, if it is to be had: less of small pieces.
                    let mut room = BLOCK - edge % BLOCK;
                    if room < most as u64 && state.ensure(&self.pool, at + 1) {
                        room += BLOCK;
                    }
                    return most.min(room as usize);
                }
            }
            self.room.notified().await;
        }
    }

    /// Puts bytes at their place.
    pub(crate) fn place(&self, at: u64, bytes: &[u8]) -> Placed {
        let mut state = self.state();
        let Some(end) = at.checked_add(bytes.len() as u64) else { return Placed::NoRoom };
        if end <= state.edge || state.beyond.contains_range(&(Offset(at)..Offset(end))) {
            return Placed::Duplicate;
        }
        let start = at.max(state.edge);
        let bytes = &bytes[(start - at) as usize..];
        if end > state.head + MAX_BYTES || state.end.is_some_and(|last| end > last) {
            return Placed::NoRoom;
        }
        let first = state.head / BLOCK;
        for block in start / BLOCK..=(end - 1) / BLOCK {
            if !state.ensure(&self.pool, (block - first) as usize) {
                return Placed::NoRoom;
            }
        }
        state.write(start, bytes);
        let before = state.edge;
        state.came(start..end);
        let more = state.edge > before;
        drop(state);
        if more {
            self.more.notify_one();
        }
        Placed::New
    }

    /// Bytes that may still come before something is let go.
    pub(crate) fn room(&self) -> ByteCount {
        let state = self.state();
        let most = (MIN_DIRECTION + state.lent * BLOCK + self.pool.blocks_left(state.lent) * BLOCK)
            .min(MAX_BYTES)
            // The block of the head is used from the head on.
            .saturating_sub(state.head % BLOCK);
        let held = state.edge - state.head + state.beyond.iter().map(len).sum::<u64>();
        ByteCount(most.saturating_sub(held))
    }

    /// Copies what has come from `at` on; how many bytes that were.
    pub fn copy(&self, at: u64, out: &mut [u8]) -> usize {
        let state = self.state();
        if at < state.head || at >= state.edge {
            return 0;
        }
        let count = out.len().min((state.edge - at) as usize);
        state.read(at, &mut out[..count]);
        count
    }

    /// Copies exactly these bytes.
    pub(crate) fn fill(&self, at: u64, out: &mut [u8]) -> Fill {
        let state = self.state();
        let end = at.saturating_add(out.len() as u64);
        if at < state.head || end > state.edge {
            return Fill::Failed;
        }
        state.read(at, out);
        Fill::Ready
    }

    /// These bytes are not needed any more.
    pub(crate) fn let_go(&self, range: Range<u64>) {
        let mut state = self.state();
        let before = state.head;
        let range = range.start.max(before)..range.end.min(state.edge);
        state.gone.insert(Offset(range.start)..Offset(range.end));
        while let Some(first) = state.gone.first().filter(|first| first.start.get() <= state.head) {
            state.head = state.head.max(first.end.get());
            state.gone.remove(first);
        }
        if state.head == before {
            return;
        }
        for _ in before / BLOCK..state.head / BLOCK {
            state.blocks.pop_front();
            if state.blocks.get(KEPT - 1).is_some_and(Option::is_some) {
                // It is one of those kept from now on.
                state.lent -= 1;
                self.pool.block_back();
            }
        }
        let wake = state.head - state.woken >= WAKE || state.head == state.edge;
        let filler = if wake { state.filler.clone() } else { None };
        if wake {
            state.woken = state.head;
        }
        drop(state);
        if let Some(filler) = filler {
            filler.wake();
        }
        self.room.notify_one();
        self.gone.notify_waiters();
    }

    /// The stream has so many bytes; false if more have come.
    pub(crate) fn finish(&self, total: u64) -> bool {
        let mut state = self.state();
        let last = state.beyond.last().map_or(state.edge, |last| last.end.get());
        if total < last || state.end.is_some_and(|end| end != total) {
            return false;
        }
        state.end = Some(total);
        drop(state);
        self.more.notify_one();
        true
    }

    /// Waits for bytes behind `from`, or the end.
    pub(crate) async fn wait(&self, from: u64) -> Seen {
        loop {
            let held = {
                let state = self.state();
                if !state.held && state.edge > from {
                    return Seen::Edge(state.edge);
                }
                if !state.held && state.end == Some(state.edge) {
                    return Seen::End(state.edge);
                }
                state.held
            };
            // While it is held, somebody else waits for more.
            if held { self.unheld.notified().await } else { self.more.notified().await }
        }
    }

    /// Waits until at least so many bytes are there though they are held; false if there will never
    /// be.
    pub async fn wait_held(&self, count: u64) -> bool {
        loop {
            {
                let state = self.state();
                if state.edge >= count {
                    return true;
                }
                if state.end.is_some_and(|end| end < count) {
                    return false;
                }
            }
            self.more.notified().await;
        }
    }

    /// Waits until everything before `total` was let go.
    pub(crate) async fn wait_gone(&self, total: u64) {
        loop {
            let gone = self.gone.notified();
            let mut gone = std::pin::pin!(gone);
            gone.as_mut().enable();
            if self.head() >= total {
                return;
            }
            gone.await;
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        for _ in 0..self.state().lent {
            self.pool.block_back();
        }
        self.pool.close_ring();
    }
}

fn len(range: Range<Offset>) -> u64 {
    range.end.since(range.start).get()
}

impl State {
    /// Makes sure that there is memory for this block, counted from the head's.
    fn ensure(&mut self, pool: &Pool, index: usize) -> bool {
        if self.blocks.get(index).is_some_and(Option::is_some) {
            return true;
        }
        if index >= KEPT {
            if !pool.block(self.lent) {
                return false;
            }
            self.lent += 1;
        }
        if self.blocks.len() <= index {
            self.blocks.resize_with(index + 1, || None);
        }
        self.blocks[index] = Some(vec![0; BLOCK as usize].into_boxed_slice());
        true
    }

    /// Walks over the pieces of blocks that hold `len` bytes from `at` on.
    fn pieces(&self, at: u64, len: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
        let (first, end) = (self.head / BLOCK, at + len as u64);
        (at / BLOCK..end.div_ceil(BLOCK)).map(move |block| {
            let from = at.max(block * BLOCK) - block * BLOCK;
            let to = end.min((block + 1) * BLOCK) - block * BLOCK;
            ((block - first) as usize, from as usize..to as usize)
        })
    }

    fn write(&mut self, at: u64, mut bytes: &[u8]) {
        for (index, piece) in self.pieces(at, bytes.len()).collect::<Vec<_>>() {
            let (now, later) = bytes.split_at(piece.len());
            if let Some(Some(block)) = self.blocks.get_mut(index) {
                block[piece].copy_from_slice(now);
            }
            bytes = later;
        }
    }

    fn read(&self, at: u64, mut out: &mut [u8]) {
        for (index, piece) in self.pieces(at, out.len()) {
            let (now, later) = out.split_at_mut(piece.len());
            if let Some(Some(block)) = self.blocks.get(index) {
                now.copy_from_slice(&block[piece]);
            }
            out = later;
        }
    }

    fn came(&mut self, range: Range<u64>) {
        if range.start > self.edge || !self.beyond.is_empty() {
            self.beyond.insert(Offset(range.start)..Offset(range.end));
            let reaches = |first: &Range<Offset>| first.start.get() <= self.edge;
            if let Some(first) = self.beyond.first().filter(reaches) {
                self.edge = first.end.get();
                self.beyond.remove(first);
            }
        } else {
            self.edge = range.end;
        }
    }
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;

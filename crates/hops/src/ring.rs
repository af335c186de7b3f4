//! The bytes of one direction of a session with datagrams on either side. Bytes are placed in any
//! order, read in order, and kept until they are released.
//!
//! Memory comes in blocks. The first two are reserved for each direction of a session. The pool
//! lends further ones while it has any and this direction has less than its share. The block at the
//! head always exists, so the bytes missing at the head can always be placed, whatever arrived
//! before them and whatever other directions hold.

use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use packtrain_os::thread::Waker;
use packtrain_proto::{Fill, Placed};
use packtrain_units::{ByteCount, Offset, RangeSet};
use tokio::sync::Notify;

use super::pool::{BLOCK, MIN_DIRECTION, Pool};

/// Number of reserved blocks.
const RESERVED_BLOCKS: usize = (MIN_DIRECTION / BLOCK) as usize;
/// Bytes that are released before the filling task is woken, unless the ring is empty.
const WAKE_BYTES: u64 = 32 << 10;
/// Maximum bytes from the head on: a round trip of 250 ms at 1 Gbit/s.
const MAX_BYTES: u64 = 32 << 20;

struct State {
    /// Blocks from that of the head on.
    blocks: VecDeque<Option<Box<[u8]>>>,
    /// Borrowed blocks.
    lent: u64,
    /// All bytes before this offset were released.
    head: u64,
    /// All bytes before this offset have arrived.
    edge: u64,
    /// Ranges that arrived beyond the edge.
    beyond: RangeSet,
    /// Ranges that were released beyond the head.
    gone: RangeSet,
    /// Length of the whole stream, once it is known.
    end: Option<u64>,
    held: bool,
    /// Wakes the filling task when memory is free again.
    filler: Option<Waker>,
    /// The head when it was woken last.
    woken: u64,
}

/// The bytes of one direction.
pub struct Ring {
    state: Mutex<State>,
    pool: Arc<Pool>,
    more: Notify,
    unheld: Notify,
    room: Notify,
    gone: Notify,
}

/// The progress of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Bytes have arrived up to this offset.
    Edge(u64),
    /// All bytes have arrived; the length.
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

    /// Prevents waiting readers from being woken by bytes until [`Ring::release_hold`].
    pub fn hold(&self) {
        self.state().held = true;
    }

    /// Ends one [`Ring::hold`].
    pub fn release_hold(&self) {
        self.state().held = false;
        self.unheld.notify_one();
    }

    /// Sets the waker for free memory.
    pub(super) fn wake(&self, filler: Option<Waker>) {
        self.state().filler = filler;
    }

    /// Number of bytes released from the beginning on.
    pub fn head(&self) -> u64 {
        self.state().head
    }

    /// Number of bytes that have arrived from the beginning on.
    pub(crate) fn edge(&self) -> u64 {
        self.state().edge
    }

    /// Appends as many bytes as fit; returns their number.
    pub fn append(&self, bytes: &[u8]) -> usize {
        let mut state = self.state();
        let at = state.edge;
        let mut len = (bytes.len() as u64).min((state.head + MAX_BYTES).saturating_sub(at));
        len = len.min(state.end.map_or(u64::MAX, |end| end.saturating_sub(at)));
        // Limited by the blocks that can be borrowed.
        let first = state.head / BLOCK;
        let mut end = at;
        while end < at + len && state.ensure(&self.pool, (end / BLOCK - first) as usize) {
            end = ((end / BLOCK + 1) * BLOCK).min(at + len);
        }
        let count = (end - at) as usize;
        if count > 0 {
            state.write(at, &bytes[..count]);
            state.mark_received(at..end);
            drop(state);
            self.more.notify_one();
        }
        count
    }

    /// Appends all bytes, and waits for memory.
    pub(crate) async fn append_all(&self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let count = self.append(bytes);
            bytes = &bytes[count..];
            if count == 0 {
                self.room.notified().await;
            }
        }
    }

    /// Waits until at least one byte fits; returns how many fit, at most `most`.
    pub(crate) async fn wait_room(&self, most: usize) -> usize {
        loop {
            {
                let mut state = self.state();
                let first = state.head / BLOCK;
                let (at, edge) = ((state.edge / BLOCK - first) as usize, state.edge);
                if edge < state.head + MAX_BYTES && state.ensure(&self.pool, at) {
                    // Includes the next block if it can be borrowed, to avoid small pieces.
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

    /// Places bytes at their offset.
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
        state.mark_received(start..end);
        let more = state.edge > before;
        drop(state);
        if more {
            self.more.notify_one();
        }
        Placed::New
    }

    /// Bytes that can still arrive before something is released.
    pub(crate) fn room(&self) -> ByteCount {
        let state = self.state();
        let most = (MIN_DIRECTION + state.lent * BLOCK + self.pool.blocks_left(state.lent) * BLOCK)
            .min(MAX_BYTES)
            // The head's block is used from the head on.
            .saturating_sub(state.head % BLOCK);
        let held = state.edge - state.head + state.beyond.iter().map(len).sum::<u64>();
        ByteCount(most.saturating_sub(held))
    }

    /// Copies the bytes that have arrived from `at` on; returns their number.
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

    /// Releases these bytes.
    pub(crate) fn release(&self, range: Range<u64>) {
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
            if state.blocks.get(RESERVED_BLOCKS - 1).is_some_and(Option::is_some) {
                // The block counts as a reserved one from now on.
                state.lent -= 1;
                self.pool.block_back();
            }
        }
        let wake = state.head - state.woken >= WAKE_BYTES || state.head == state.edge;
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

    /// Sets the length of the stream; false if more bytes have arrived.
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

    /// Waits for bytes after `from`, or for the end.
    pub(crate) async fn wait(&self, from: u64) -> Progress {
        loop {
            let held = {
                let state = self.state();
                if !state.held && state.edge > from {
                    return Progress::Edge(state.edge);
                }
                if !state.held && state.end == Some(state.edge) {
                    return Progress::End(state.edge);
                }
                state.held
            };
            // While the ring is held, another task waits for more bytes.
            if held { self.unheld.notified().await } else { self.more.notified().await }
        }
    }

    /// Waits until at least `count` bytes have arrived, also while the ring is held; false if the
    /// stream is shorter.
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

    /// Waits until all bytes before `total` were released.
    pub(crate) async fn wait_released(&self, total: u64) {
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
    /// Makes sure that the block exists; `index` counts from the head's block.
    fn ensure(&mut self, pool: &Pool, index: usize) -> bool {
        if self.blocks.get(index).is_some_and(Option::is_some) {
            return true;
        }
        if index >= RESERVED_BLOCKS {
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

    /// The parts of blocks that contain `len` bytes from `at` on.
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

    fn mark_received(&mut self, range: Range<u64>) {
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

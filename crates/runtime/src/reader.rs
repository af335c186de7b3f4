//! The source's chunks: read ahead in the order of assignment, hashed at the first read, and cached
//! while memory lasts.
//!
//! A chunk that was evicted is read again for a retransmission; the page cache usually has it. Its
//! digest is reported once. A stream cannot be read again, so its chunks stay in memory until the
//! sink has verified them, and reading the stream pauses meanwhile. `chunk` is one chunk and its
//! buffer.

mod chunk;

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use packtrain_disk::SourceFile;
use packtrain_object::{BLOCK, CHUNK, ChunkIndex, Piece, digest};
use packtrain_transfer::Failure;
use packtrain_transfer::message::PieceDigest;
use packtrain_units::{Offset, RangeSet};

use crate::meters::Meters;
use chunk::BufferPool;
pub use chunk::{Chunk, Slice};
use packtrain_service::executor::{lower_priority, spawn};

/// Chunks that a range may have for its chunks to be looked up one by one.
const FEW_CHUNKS: usize = 64;
/// Maximum chunks in memory: 80 MiB.
const MAX_CHUNKS: usize = 20;
/// Maximum chunks that are read before a transport requests them.
const AHEAD: usize = 6;
/// Maximum chunks of a stream that wait for verification.
const STREAM_CHUNKS: usize = 12;
/// Small files that are open, read and hashed at once by one thread.
const SMALL_BATCH: usize = 64;
/// Number of threads that read and hash.
pub(crate) const THREADS: usize = 2;

/// Reads the data of pieces.
pub(crate) trait PieceSource: Send + Sync + 'static {
    /// Fills `out` with the piece's bytes, or says why the entry cannot be read (any more). Gives
    /// the file they are in if it is one whose blocks other files may share.
    fn read(&self, piece: &Piece, out: &mut [u8]) -> Result<Option<Arc<SourceFile>>, Failure>;

    /// Reads small files, each a whole piece, in offset order. `out` begins with the first of them.
    fn read_small(&self, pieces: &[Piece], out: &mut [u8]) -> Vec<Result<(), Failure>> {
        let read = |piece| self.read(piece, part_of(pieces, piece, out)).map(drop);
        pieces.iter().map(read).collect()
    }
}

/// The bytes of one of `pieces` in a buffer that begins with the first of them.
pub(crate) fn part_of<'a>(pieces: &[Piece], piece: &Piece, out: &'a mut [u8]) -> &'a mut [u8] {
    let base = pieces.first().map_or(piece.range.start, |first| first.range.start);
    let start = piece.range.start.since(base).get() as usize;
    &mut out[start..start + piece.size().get() as usize]
}

/// Events of the reader.
#[derive(Debug)]
pub(crate) enum ReadEvent {
    /// The first read of a chunk.
    Read(ChunkIndex, Vec<PieceDigest>),
    /// The entry of a piece failed.
    Failed(packtrain_object::EntryId, Failure),
}

enum Slot {
    /// Being read, for the plan at this value of the clock.
    Reading(u64),
    Ready {
        chunk: Arc<Chunk>,
        touched: bool,
        used: u64,
    },
}

#[derive(Default)]
struct State {
    plans: HashMap<ChunkIndex, Vec<Piece>>,
    slots: HashMap<ChunkIndex, Slot>,
    urgent: VecDeque<ChunkIndex>,
    ahead: VecDeque<ChunkIndex>,
    hashed: HashSet<ChunkIndex>,
    /// Chunks of a stream, which cannot be read again.
    pinned: HashMap<ChunkIndex, Piece>,
    untouched: usize,
    /// Whether a stream supplies the chunks, so that missing ones will arrive.
    streaming: bool,
    /// The last chunk that a stream supplied.
    streamed: Option<ChunkIndex>,
    clock: u64,
    closed: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    source: Box<dyn PieceSource>,
    events: Box<dyn Fn(ReadEvent) + Send + Sync>,
    wakers: Mutex<Vec<Box<dyn Fn() + Send + Sync>>>,
    pool: Arc<BufferPool>,
    meters: Arc<Meters>,
    /// How often a chunk was replaced, by one of more pieces or by another reading.
    replaced: AtomicU64,
}

/// The reader; clones share its chunks.
#[derive(Clone)]
pub struct Reader(Arc<Shared>);

impl Reader {
    /// A reader of `source` with its threads; `events` is called from them.
    pub(crate) fn new(
        source: impl PieceSource,
        meters: Arc<Meters>,
        events: impl Fn(ReadEvent) + Send + Sync + 'static,
    ) -> Self {
        let reader = Self(Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            source: Box::new(source),
            events: Box::new(events),
            wakers: Mutex::default(),
            pool: Arc::default(),
            meters,
            replaced: AtomicU64::new(0),
        }));
        for n in 0..THREADS {
            let this = reader.clone();
            spawn(&format!("read-{n}"), move || {
                lower_priority();
                this.work();
            });
        }
        reader
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock()
    }

    /// Calls `waker` whenever a chunk becomes available.
    pub fn on_ready(&self, waker: impl Fn() + Send + Sync + 'static) {
        self.0.wakers.lock().push(Box::new(waker));
    }

    /// These pieces of `chunk` will be requested soon, after those announced before.
    pub(crate) fn announce(&self, chunk: ChunkIndex, pieces: Vec<Piece>) {
        let mut state = self.state();
        let grown = match state.plans.get(&chunk) {
            // Some of the known pieces may have been verified, so the numbers do not tell.
            Some(known) => {
                let is_new = |piece: &Piece| {
                    let start = |known: &Piece| known.range.start;
                    known.binary_search_by_key(&piece.range.start, start).is_err()
                };
                pieces.iter().any(is_new)
            }
            None => true,
        };
        if grown {
            // More of the chunk is wanted than before: read all of it and report its digests again.
            state.remove(chunk);
            state.hashed.remove(&chunk);
            self.0.replaced.fetch_add(1, Ordering::Relaxed);
            state.plans.insert(chunk, pieces);
            state.ahead.push_back(chunk);
            self.0.changed.notify_all();
        }
    }

    /// The digest of this chunk did not match: read and hash it again.
    pub(crate) fn invalidate(&self, chunk: ChunkIndex) {
        let mut state = self.state();
        if let Some(piece) = state.pinned.get(&chunk).cloned() {
            // A stream cannot be read again: hash the held bytes again.
            let held = state.touch(chunk);
            drop(state);
            if let Some(bytes) = held.as_ref().and_then(|held| held.get(&piece.range)) {
                let digest = digest::piece(piece.file_offset, piece.whole, bytes);
                let digests = vec![PieceDigest { entry: piece.entry, digest }];
                (self.0.events)(ReadEvent::Read(chunk, digests));
            }
            return;
        }
        state.hashed.remove(&chunk);
        state.remove(chunk);
        self.0.replaced.fetch_add(1, Ordering::Relaxed);
    }

    /// Changes when chunks that were given out before must not be sent any more.
    pub(crate) fn replaced(&self) -> u64 {
        self.0.replaced.load(Ordering::Relaxed)
    }

    /// The chunks of `range` that [`Reader::forget`] may concern. A sink may verify the whole of an
    /// endless stream.
    pub(crate) fn known(&self, range: &Range<Offset>) -> Vec<ChunkIndex> {
        if ChunkIndex::covering(range).nth(FEW_CHUNKS).is_none() {
            return ChunkIndex::covering(range).collect();
        }
        let state = self.state();
        let within = |chunk: &&ChunkIndex| {
            chunk.range().start < range.end && range.start < chunk.range().end
        };
        let planned = state.plans.keys().chain(state.hashed.iter()).chain(state.pinned.keys());
        let mut known: Vec<_> = planned.chain(state.slots.keys()).filter(within).copied().collect();
        known.sort_unstable();
        known.dedup();
        known
    }

    /// The sink verified the whole chunk.
    pub(crate) fn forget(&self, chunk: ChunkIndex) {
        let mut state = self.state();
        state.plans.remove(&chunk);
        state.hashed.remove(&chunk);
        state.pinned.remove(&chunk);
        state.remove(chunk);
        self.0.changed.notify_all();
    }

    /// The chunk, if it is in memory; otherwise it is read next.
    pub fn try_get(&self, chunk: ChunkIndex) -> Option<Arc<Chunk>> {
        let mut state = self.state();
        let found = state.touch(chunk);
        if found.is_none() {
            state.want(chunk);
        }
        self.0.changed.notify_all();
        found
    }

    /// The chunk; blocks until it is read. None if the reader is closed or the chunk was never
    /// announced.
    pub fn get(&self, chunk: ChunkIndex) -> Option<Arc<Chunk>> {
        let mut state = self.state();
        loop {
            if let Some(found) = state.touch(chunk) {
                self.0.changed.notify_all();
                return Some(found);
            }
            // Chunks of a stream that the sink has verified are not supplied again.
            let coming = state.streaming && state.streamed.is_none_or(|last| chunk > last);
            if state.closed || !(coming || state.plans.contains_key(&chunk)) {
                return None;
            }
            state.want(chunk);
            self.0.changed.notify_all();
            self.0.changed.wait(&mut state);
        }
    }

    /// Reads `range` of one chunk, waiting until it is read. `have` gets each part in turn, until it
    /// gives false; that is given then. `lack` gets what cannot be had: it was verified meanwhile,
    /// belongs to an entry that failed, or the reader is closing.
    pub(crate) fn read_range(
        &self,
        range: Range<Offset>,
        lack: impl Fn(&Range<Offset>),
        mut have: impl FnMut(Offset, Slice) -> bool,
    ) -> bool {
        let mut at = range.start;
        if let Some(chunk) = self.get(ChunkIndex::of(at)) {
            for part in chunk.readable(&range) {
                // More of the chunk is wanted than was read: it is read anew.
                let Some(slice) = Slice::new(&chunk, part.clone()) else { continue };
                if at < part.start {
                    lack(&(at..part.start));
                }
                at = part.end;
                if !have(part.start, slice) {
                    return false;
                }
            }
        }
        if at < range.end {
            lack(&(at..range.end));
        }
        true
    }

    /// Chunks will come from a stream.
    pub(crate) fn expect_stream(&self) {
        self.state().streaming = true;
    }

    /// The stream supplies no more chunks.
    pub(crate) fn end_stream(&self) {
        self.state().streaming = false;
        self.wake();
    }

    /// Adds a chunk of a stream, kept until `forget`; blocks while too many are kept. False if the
    /// reader is closed.
    pub(crate) fn put_stream(&self, piece: &Piece, bytes: Vec<u8>) -> bool {
        let chunk = ChunkIndex::of(piece.range.start);
        let mut state = self.state();
        while state.pinned.len() >= STREAM_CHUNKS && !state.closed {
            self.0.changed.wait(&mut state);
        }
        if state.closed {
            return false;
        }
        let pool = Arc::clone(&self.0.pool);
        let (bad, files) = (RangeSet::new(), Vec::new());
        let held = Chunk { base: piece.range.start, bytes, bad, files, pool };
        state.clock += 1;
        let slot = Slot::Ready { chunk: Arc::new(held), touched: true, used: state.clock };
        state.slots.insert(chunk, slot);
        state.pinned.insert(chunk, piece.clone());
        state.streamed = Some(chunk);
        drop(state);
        self.wake();
        true
    }

    /// Stops the threads; all waiting calls return none.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.wake();
    }

    fn wake(&self) {
        self.0.changed.notify_all();
        for waker in self.0.wakers.lock().iter() {
            waker();
        }
    }

    fn work(&self) {
        while let Some((chunk, pieces, hash, generation)) = self.next_job() {
            let (read, digests, failures) = self.read(&pieces, hash);
            // Failures are reported before a transport can request their ranges.
            for (entry, failure) in failures {
                (self.0.events)(ReadEvent::Failed(entry, failure));
            }
            let mut state = self.state();
            if matches!(state.slots.get(&chunk), Some(Slot::Reading(at)) if *at == generation) {
                state.clock += 1;
                state.untouched += 1;
                let used = state.clock;
                state
                    .slots
                    .insert(chunk, Slot::Ready { chunk: Arc::new(read), touched: false, used });
            }
            drop(state);
            if hash {
                (self.0.events)(ReadEvent::Read(chunk, digests));
            }
            self.wake();
        }
    }

    fn next_job(&self) -> Option<(ChunkIndex, Vec<Piece>, bool, u64)> {
        let mut state = self.state();
        loop {
            if state.closed {
                return None;
            }
            if let Some(chunk) = state.next_chunk() {
                state.clock += 1;
                let generation = state.clock;
                state.slots.insert(chunk, Slot::Reading(generation));
                let pieces = state.plans.get(&chunk).cloned().unwrap_or_default();
                let hash = state.hashed.insert(chunk);
                return Some((chunk, pieces, hash, generation));
            }
            self.0.changed.wait(&mut state);
        }
    }

    #[allow(clippy::type_complexity)]
    fn read(
        &self,
        pieces: &[Piece],
        hash: bool,
    ) -> (Chunk, Vec<PieceDigest>, Vec<(packtrain_object::EntryId, Failure)>) {
        let base = pieces.first().map_or(Offset::ZERO, |p| p.range.start);
        let end = pieces.last().map_or(base, |p| p.range.end);
        let mut bytes = self.0.pool.take(end.since(base).get().min(CHUNK.get()) as usize);
        let (mut bad, mut digests, mut failures) = (RangeSet::new(), Vec::new(), Vec::new());
        // Pieces that are not wanted lie between those that are.
        for two in pieces.windows(2) {
            bad.insert(two[0].range.end..two[1].range.start);
        }
        let mut files = Vec::new();
        let mut rest = pieces;
        while let Some(first) = rest.first() {
            let is_small = |piece: &&Piece| piece.whole && piece.size() <= BLOCK;
            let small = rest.iter().take(SMALL_BATCH).take_while(is_small).count();
            let group;
            (group, rest) = rest.split_at(small.max(1));
            let out = &mut bytes[first.range.start.since(base).get() as usize..];
            let read = match small {
                0 => vec![self.0.source.read(first, part_of(group, first, out))],
                _ => self
                    .0
                    .source
                    .read_small(group, out)
                    .into_iter()
                    .map(|r| r.map(|()| None))
                    .collect(),
            };
            let mut good = Vec::with_capacity(group.len());
            for (piece, read) in group.iter().zip(read) {
                match read {
                    Ok(file) => {
                        files.extend(file.map(|file| (piece.clone(), file)));
                        good.push(piece);
                    }
                    Err(failure) => {
                        bad.insert(piece.range.clone());
                        failures.push((piece.entry, failure));
                    }
                }
            }
            if hash {
                let size = good.iter().map(|piece| piece.size().get()).sum();
                self.0.meters.hash.run_many(good.len() as u64, size, || {
                    for piece in good {
                        let bytes = part_of(group, piece, out);
                        let digest = digest::piece(piece.file_offset, piece.whole, bytes);
                        digests.push(PieceDigest { entry: piece.entry, digest });
                    }
                });
            }
        }
        let chunk = Chunk { base, bytes, bad, files, pool: Arc::clone(&self.0.pool) };
        (chunk, digests, failures)
    }
}

impl State {
    fn touch(&mut self, index: ChunkIndex) -> Option<Arc<Chunk>> {
        self.clock += 1;
        let clock = self.clock;
        match self.slots.get_mut(&index) {
            Some(Slot::Ready { chunk, touched, used }) => {
                if !std::mem::replace(touched, true) {
                    self.untouched -= 1;
                }
                *used = clock;
                Some(Arc::clone(chunk))
            }
            _ => None,
        }
    }

    fn want(&mut self, chunk: ChunkIndex) {
        let known = self.plans.contains_key(&chunk) && !self.slots.contains_key(&chunk);
        if known && !self.urgent.contains(&chunk) {
            self.urgent.push_back(chunk);
        }
    }

    fn remove(&mut self, chunk: ChunkIndex) {
        if let Some(Slot::Ready { touched: false, .. }) = self.slots.remove(&chunk) {
            self.untouched -= 1;
        }
    }

    fn next_chunk(&mut self) -> Option<ChunkIndex> {
        while let Some(chunk) = self.urgent.pop_front() {
            if self.plans.contains_key(&chunk) && !self.slots.contains_key(&chunk) {
                self.make_room();
                return Some(chunk);
            }
        }
        let reading = self.slots.values().filter(|s| matches!(s, Slot::Reading(_))).count();
        if self.untouched + reading >= AHEAD {
            return None;
        }
        while let Some(chunk) = self.ahead.pop_front() {
            if self.plans.contains_key(&chunk) && !self.slots.contains_key(&chunk) {
                self.make_room();
                return Some(chunk);
            }
        }
        None
    }

    /// Evicts the least recently used chunk if there are too many. Chunks that are being sent stay
    /// alive until they are sent.
    fn make_room(&mut self) {
        if self.slots.len() < MAX_CHUNKS {
            return;
        }
        let oldest = self
            .slots
            .iter()
            .filter(|(index, _)| !self.pinned.contains_key(index))
            .filter_map(|(index, slot)| match slot {
                Slot::Ready { touched, used, .. } => Some((!*touched, *used, *index)),
                Slot::Reading(_) => None,
            })
            .min();
        if let Some((_, _, index)) = oldest {
            self.remove(index);
        }
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;

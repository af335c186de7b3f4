//! The sink's buffer: assembles received data into blocks, writes them in runs and hashes them.
//!
//! Big files go block by block (256 KiB): a full block is written and hashed from memory and its
//! buffer is free again, so that memory does not grow with the bandwidth-delay product. When
//! buffers run short, the oldest incomplete block is written as far as it goes and is read back
//! for its hash once the rest has come. Small files of one chunk are gathered in one buffer and
//! each is written whole. Networks call [`Assembly::place`]; a source of this process hands its
//! memory over ([`Assembly::hand_over`]); writer threads do the rest.

mod block;
mod handed;
mod old;
mod piece_target;
pub(crate) mod room;
mod writers;

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use crossbeam_channel::{Receiver, Sender};
use packtrain_object::{BLOCK, CHUNK, ChunkIndex, Digest, Entry, EntryId, Piece, SPACE_END};
use packtrain_proto::{Placed, Placement};
use packtrain_transfer::{ChunkPlan, Failure};
use packtrain_units::{ByteCount, Offset, RangeSet};
use tokio::sync::Notify;

use crate::control::PayloadSink;
use crate::meters::Meters;
use block::Block;
use handed::Bytes;
pub(crate) use piece_target::PieceTarget;
pub(crate) use writers::THREADS;
use writers::{Job, Small};

/// Memory in bytes for incomplete and unwritten data of large files.
const BLOCK_MEMORY_BYTES: u64 = 56 << 20;
/// With less room than this, in bytes, the memory counts as full.
const LITTLE_ROOM_BYTES: u64 = 6 << 20;
/// Memory for chunks of small files.
const SMALL_FILE_MEMORY_BYTES: u64 = 40 << 20;
/// Maximum buffers of small files that are kept for the next ones, and their size.
const SPARE_SMALL: usize = 4;
const SPARE_SMALL_BYTES: usize = CHUNK.get() as usize;
/// The room of an assembly that holds nothing.
pub(crate) const EMPTY_ROOM: ByteCount = ByteCount(SMALL_FILE_MEMORY_BYTES);
const _: () = assert!(SMALL_FILE_MEMORY_BYTES < BLOCK_MEMORY_BYTES);
/// The largest file that is gathered in memory and written whole; larger ones may have holes.
pub(crate) const SMALL_FILE_BYTES: u64 = 1 << 20;

/// Events of the assembly.
#[derive(Debug)]
pub(crate) enum WriteEvent {
    /// All pieces of a plan are written, with the digests of the written data.
    Written(ChunkIndex, Vec<(EntryId, Digest)>),
    /// A piece could not be written.
    Failed(EntryId, Failure),
    /// A piece was read back.
    Rehashed(ChunkIndex, EntryId, Option<Digest>),
    /// A piece of an old version was read.
    OldHashed(ChunkIndex, EntryId, Option<Digest>),
    /// A piece of an old version was copied; none if it could not be read.
    Copied(ChunkIndex, EntryId, Option<Digest>),
}

#[derive(Debug)]
enum Plan {
    Big {
        piece: Piece,
        entry: Arc<Entry>,
        blocks: Vec<Block>,
        open: usize,
    },
    Small {
        pieces: Vec<(Piece, Arc<Entry>)>,
        base: Offset,
        got: RangeSet,
        buffer: Vec<u8>,
        missing: u64,
    },
}

#[derive(Default)]
struct State {
    plans: HashMap<ChunkIndex, Vec<Plan>>,
    block_memory: u64,
    small_memory: u64,
    /// Memory for small files granted beyond the limit, to prevent a deadlock.
    extra_small_memory: u64,
    /// Blocks in the order in which they got a buffer, for spilling.
    filling: VecDeque<(ChunkIndex, usize)>,
    spare: Vec<Vec<u8>>,
    /// Buffers of small files for the next ones. Their bytes are those of earlier files.
    spare_small: Vec<Vec<u8>>,
    /// Whether data was refused since room was last freed.
    refused: bool,
    closed: bool,
}

struct Shared {
    state: Mutex<State>,
    room: Condvar,
    /// The same for tasks.
    room_for_tasks: Notify,
    jobs: Sender<Job>,
    /// Number of writer threads with a job.
    writing: AtomicUsize,
    target: Box<dyn PieceTarget>,
    events: Box<dyn Fn(WriteEvent) + Send + Sync>,
    wakers: Mutex<Vec<Box<dyn Fn() + Send + Sync>>>,
    meters: Arc<Meters>,
    /// Disconnected when the last writer thread ends.
    ended: Receiver<()>,
}

/// The assembly; clones share its state.
#[derive(Clone)]
pub struct Assembly(Arc<Shared>);

impl Assembly {
    /// An assembly over `target` with its writer threads; `events` is called from them.
    pub(crate) fn new(
        target: impl PieceTarget,
        meters: Arc<Meters>,
        events: impl Fn(WriteEvent) + Send + Sync + 'static,
    ) -> Self {
        let (jobs, queue) = crossbeam_channel::unbounded();
        let (running, ended) = crossbeam_channel::bounded(0);
        let this = Self(Arc::new(Shared {
            state: Mutex::default(),
            room: Condvar::new(),
            room_for_tasks: Notify::new(),
            jobs,
            writing: AtomicUsize::new(0),
            target: Box::new(target),
            events: Box::new(events),
            wakers: Mutex::default(),
            meters,
            ended,
        }));
        writers::start(&this, &queue, &running);
        this
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock()
    }

    fn job(&self, job: Job) {
        let _ = self.0.jobs.send(job);
    }

    /// Whether there is hardly any room.
    pub(crate) fn is_full(&self) -> bool {
        let state = self.state();
        state.block_memory + LITTLE_ROOM_BYTES > BLOCK_MEMORY_BYTES
            || state.small_memory + LITTLE_ROOM_BYTES > SMALL_FILE_MEMORY_BYTES
    }

    /// Expects these pieces from now on.
    pub(crate) fn expect(&self, plan: ChunkPlan) {
        let pieces = plan.pieces.into_iter().map(|(p, e)| (p, Arc::new(e)));
        let (small, big): (Vec<_>, Vec<_>) =
            pieces.partition(|(p, _)| p.whole && len(&p.range) <= SMALL_FILE_BYTES);
        let mut state = self.state();
        let plans = state.plans.entry(plan.chunk).or_default();
        if let Some((first, _)) = small.first() {
            let base = first.range.start;
            let missing = small.iter().map(|(p, _)| len(&p.range)).sum();
            let (got, buffer) = (RangeSet::new(), Vec::new());
            plans.push(Plan::Small { pieces: small, base, got, buffer, missing });
        }
        for (piece, entry) in big {
            let count = len(&piece.range).div_ceil(BLOCK.get()) as usize;
            let blocks = (0..count).map(|_| Block::default()).collect();
            plans.push(Plan::Big { piece, entry, blocks, open: count });
        }
    }

    /// Reads a piece back and reports its digest.
    pub(crate) fn rehash(&self, chunk: ChunkIndex, piece: Piece, entry: Entry) {
        self.job(Job::Rehash { chunk, piece, entry });
    }

    /// These bytes are a hole at the source: they count as received.
    pub(crate) fn zero(&self, range: Range<Offset>) {
        let mut state = self.state();
        let mut at = range.start;
        while at < range.end {
            let chunk = ChunkIndex::of(at);
            let end = chunk.range().end.min(range.end);
            let jobs = state.zero(chunk, &(at..end));
            for job in jobs {
                self.job(job);
            }
            at = end;
        }
    }

    /// These pieces are no longer expected.
    pub(crate) fn unexpect(&self, range: &Range<Offset>) {
        let mut state = self.state();
        let mut at = range.start;
        while at < range.end {
            let chunk = ChunkIndex::of(at);
            let end = chunk.range().end.min(range.end);
            for job in state.unexpect(chunk, range) {
                self.job(job);
            }
            at = end;
        }
        self.wake();
    }

    /// The stream of this entry ended at `size`; nothing beyond it is expected.
    pub(crate) fn end_stream(&self, id: EntryId, size: ByteCount) {
        let mut state = self.state();
        let chunks: Vec<ChunkIndex> = state.plans.keys().copied().collect();
        for chunk in chunks {
            let (jobs, done) = state.end_stream(chunk, id, size.get());
            for job in jobs {
                self.job(job);
            }
            if let Some(event) = done {
                (self.0.events)(event);
            }
        }
        drop(state);
        self.wake();
    }

    /// Stops the writer threads when their queue is empty, and wakes all threads that wait for
    /// room.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.wake();
        writers::stop(&self.0.jobs);
    }

    /// Closes the assembly and waits until all writes are complete.
    pub(crate) fn close_and_wait(&self) {
        self.close();
        // Nothing is ever sent: this returns when the last writer thread ends.
        let _ = self.0.ended.recv();
    }

    fn place_locked(&self, state: &mut State, at: Offset, bytes: &[u8]) -> Placed {
        let mut outcome = Placed::Duplicate;
        let (mut at, mut bytes) = (at, bytes);
        while !bytes.is_empty() && at < SPACE_END {
            let chunk = ChunkIndex::of(at);
            let room = len(&(at..chunk.range().end)).min(bytes.len() as u64) as usize;
            match state.place(chunk, at, &bytes[..room], &self.0.jobs) {
                Placed::NoRoom => {
                    state.refused = true;
                    return Placed::NoRoom;
                }
                Placed::New => outcome = Placed::New,
                Placed::Duplicate => {}
            }
            at += ByteCount(room as u64);
            bytes = &bytes[room..];
        }
        outcome
    }
}

impl PayloadSink for Assembly {
    fn payload(&self, at: Offset, bytes: &[u8]) -> Result<(), Failure> {
        self.place_waiting(at, bytes);
        Ok(())
    }
}

impl Placement for Assembly {
    fn place(&mut self, at: Offset, bytes: &[u8]) -> Placed {
        let mut state = self.0.state.lock();
        self.place_locked(&mut state, at, bytes)
    }

    fn room(&self) -> ByteCount {
        let state = self.state();
        ByteCount(BLOCK_MEMORY_BYTES.saturating_sub(state.block_memory))
            .min(ByteCount(SMALL_FILE_MEMORY_BYTES.saturating_sub(state.small_memory)))
    }
}

fn len(range: &Range<Offset>) -> u64 {
    range.end.since(range.start).get()
}

fn overlap(a: &Range<Offset>, b: &Range<Offset>) -> Option<Range<Offset>> {
    let (start, end) = (a.start.max(b.start), a.end.min(b.end));
    (start < end).then_some(start..end)
}

impl State {
    fn place(&mut self, chunk: ChunkIndex, at: Offset, bytes: &[u8], jobs: &Sender<Job>) -> Placed {
        let range = at..at + ByteCount(bytes.len() as u64);
        let Some(plans) = self.plans.get_mut(&chunk) else { return Placed::Duplicate };
        let mut outcome = Placed::Duplicate;
        // One range may end several parts of a chunk.
        let mut finished = Vec::new();
        for (n, plan) in plans.iter_mut().enumerate() {
            let placed = match plan {
                Plan::Big { piece, entry, blocks, .. } => {
                    let Some(part) = overlap(&range, &piece.range) else { continue };
                    let bytes = &bytes[len(&(at..part.start)) as usize..][..len(&part) as usize];
                    let mut memory = Memory {
                        used: &mut self.block_memory,
                        spare: &mut self.spare,
                        filling: &mut self.filling,
                    };
                    block::place(chunk, piece, entry, blocks, part.start, bytes, &mut memory, jobs)
                }
                Plan::Small { pieces, base, got, buffer, missing } => {
                    let end = pieces.last().map_or(*base, |(p, _)| p.range.end);
                    let Some(part) = overlap(&range, &(*base..end)) else { continue };
                    if buffer.is_empty() {
                        let size = len(&(*base..end));
                        if self.small_memory + size
                            > SMALL_FILE_MEMORY_BYTES + self.extra_small_memory
                        {
                            return Placed::NoRoom;
                        }
                        self.small_memory += size;
                        *buffer = match self.spare_small.pop() {
                            // All of a file comes before it is written, so only growth is zeroed.
                            Some(mut spare) => {
                                spare.resize(size as usize, 0);
                                spare
                            }
                            None => vec![0; size as usize],
                        };
                    }
                    let from = len(&(at..part.start)) as usize;
                    let to = len(&(*base..part.start)) as usize;
                    let size = len(&part) as usize;
                    let new = needed(pieces, &part, |sub| got.insert(sub.clone()).get());
                    if new > 0 {
                        buffer[to..to + size].copy_from_slice(&bytes[from..from + size]);
                        *missing -= new;
                    }
                    if *missing == 0 {
                        finished.push(n);
                    }
                    if new > 0 { Placed::New } else { Placed::Duplicate }
                }
            };
            match placed {
                Placed::NoRoom => {
                    self.spill(jobs);
                    return Placed::NoRoom;
                }
                Placed::New => outcome = Placed::New,
                Placed::Duplicate => {}
            }
        }
        for job in self.finish_small(chunk, &finished) {
            let _ = jobs.send(job);
        }
        if finished.is_empty() && self.block_memory + BLOCK_MEMORY_BYTES / 8 > BLOCK_MEMORY_BYTES {
            self.spill(jobs);
        }
        outcome
    }

    /// Removes the plans at these indices, in ascending order, all of whose bytes are there.
    fn finish_small(&mut self, chunk: ChunkIndex, finished: &[usize]) -> Vec<Job> {
        let Some(plans) = self.plans.get_mut(&chunk) else { return Vec::new() };
        let mut jobs = Vec::with_capacity(finished.len());
        for n in finished.iter().rev() {
            if let Plan::Small { pieces, base, buffer, .. } = plans.remove(*n) {
                jobs.push(Job::Small(Small::new(chunk, pieces, base, Bytes::Own(buffer))));
            }
        }
        if plans.is_empty() {
            self.plans.remove(&chunk);
        }
        jobs
    }

    /// Writes the incomplete blocks that have waited longest.
    fn spill(&mut self, jobs: &Sender<Job>) {
        let mut handed = 0;
        while handed < 8 {
            // Skips blocks that were written in the meantime.
            let Some((chunk, n)) = self.filling.pop_front() else { return };
            let plans = self.plans.get_mut(&chunk);
            for plan in plans.into_iter().flatten() {
                if let Plan::Big { piece, entry, blocks, .. } = plan
                    && let Some(job) = block::spill(chunk, piece, entry, blocks, n)
                {
                    let _ = jobs.send(job);
                    handed += 1;
                }
            }
        }
    }

    fn zero(&mut self, chunk: ChunkIndex, range: &Range<Offset>) -> Vec<Job> {
        let mut jobs = Vec::new();
        for plan in self.plans.get_mut(&chunk).into_iter().flatten() {
            if let Plan::Big { piece, entry, blocks, .. } = plan
                && let Some(part) = overlap(range, &piece.range)
            {
                block::zero(chunk, piece, entry, blocks, &part, &mut jobs);
            }
        }
        jobs
    }

    fn unexpect(&mut self, chunk: ChunkIndex, range: &Range<Offset>) -> Vec<Job> {
        let Some(plans) = self.plans.get_mut(&chunk) else { return Vec::new() };
        let mut finished = Vec::new();
        let mut n = 0;
        while n < plans.len() {
            let gone = match &mut plans[n] {
                Plan::Big { piece, blocks, .. } => {
                    let gone = overlap(range, &piece.range).is_some();
                    if gone {
                        let held = blocks.iter().filter(|b| b.has_buffer()).count() as u64;
                        self.block_memory -= held * BLOCK.get();
                    }
                    gone
                }
                Plan::Small { pieces, got, buffer, missing, .. } => {
                    pieces.retain(|(p, _)| overlap(range, &p.range).is_none());
                    *missing = pieces
                        .iter()
                        .map(|(p, _)| got.gaps(p.range.clone()).map(|gap| len(&gap)).sum::<u64>())
                        .sum();
                    if pieces.is_empty() {
                        self.small_memory -= buffer.len() as u64;
                    } else if *missing == 0 {
                        finished.push(n);
                    }
                    pieces.is_empty()
                }
            };
            if gone {
                plans.remove(n);
            } else {
                n += 1;
            }
        }
        if plans.is_empty() {
            self.plans.remove(&chunk);
        }
        self.finish_small(chunk, &finished)
    }
}

impl State {
    /// Shortens the plan that crosses the end of a stream and drops those beyond it.
    fn end_stream(
        &mut self,
        chunk: ChunkIndex,
        id: EntryId,
        size: u64,
    ) -> (Vec<Job>, Option<WriteEvent>) {
        let (mut jobs, mut done) = (Vec::new(), None);
        let Some(plans) = self.plans.get_mut(&chunk) else { return (jobs, done) };
        plans.retain_mut(|plan| {
            let Plan::Big { piece, entry, blocks, open } = plan else { return true };
            if piece.entry != id {
                return true;
            }
            let left = size.saturating_sub(piece.file_offset);
            if left >= len(&piece.range) {
                return true;
            }
            let keep = left.div_ceil(BLOCK.get()) as usize;
            let held = blocks[keep..].iter().filter(|b| b.has_buffer()).count() as u64;
            self.block_memory -= held * BLOCK.get();
            blocks.truncate(keep);
            piece.range.end = piece.range.start + ByteCount(left);
            *open = blocks.iter().filter(|b| b.digest.is_none()).count();
            if let Some(job) = keep
                .checked_sub(1)
                .and_then(|last| block::complete(chunk, piece, entry, &mut blocks[last], last))
            {
                jobs.push(job);
            } else if let Some(last) = keep.checked_sub(1)
                && let Some(job) = block::reread(chunk, piece, entry, &mut blocks[last], last)
            {
                jobs.push(job);
            }
            if left > 0 && *open == 0 {
                done = finished(chunk, piece, blocks);
            }
            left > 0 && *open > 0
        });
        if plans.is_empty() {
            self.plans.remove(&chunk);
        }
        (jobs, done)
    }
}

/// The event for a piece whose blocks all have digests.
fn finished(chunk: ChunkIndex, piece: &Piece, blocks: &[Block]) -> Option<WriteEvent> {
    let digests: Vec<Digest> = blocks.iter().filter_map(|b| b.digest).collect();
    let whole =
        packtrain_object::digest::piece_from_blocks(piece.whole, &digests, len(&piece.range))?;
    Some(WriteEvent::Written(chunk, vec![(piece.entry, whole)]))
}

/// Calls `take` for each part of `range` that a piece needs. Returns the sum of its results.
fn needed(
    pieces: &[(Piece, Arc<Entry>)],
    range: &Range<Offset>,
    mut take: impl FnMut(&Range<Offset>) -> u64,
) -> u64 {
    let first = pieces.partition_point(|(p, _)| p.range.end <= range.start);
    pieces[first..]
        .iter()
        .take_while(|(p, _)| p.range.start < range.end)
        .filter_map(|(p, _)| overlap(&p.range, range))
        .map(|part| take(&part))
        .sum()
}

/// The memory for blocks.
struct Memory<'a> {
    used: &'a mut u64,
    spare: &'a mut Vec<Vec<u8>>,
    filling: &'a mut VecDeque<(ChunkIndex, usize)>,
}

impl Memory<'_> {
    fn take(&mut self, chunk: ChunkIndex, block: usize) -> Option<Vec<u8>> {
        if *self.used + BLOCK.get() > BLOCK_MEMORY_BYTES {
            return None;
        }
        *self.used += BLOCK.get();
        self.filling.push_back((chunk, block));
        // At most so many blocks have buffers: what is older than twice that was written.
        if self.filling.len() > 4 * (BLOCK_MEMORY_BYTES / BLOCK.get()) as usize {
            self.filling.pop_front();
        }
        Some(self.spare.pop().unwrap_or_else(|| vec![0; BLOCK.get() as usize]))
    }
}

#[cfg(test)]
mod tests;

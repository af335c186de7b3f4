//! The threads that write and hash.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_channel::{Receiver, Sender};
use packtrain_object::{BLOCK, ChunkIndex, Digest, Entry, EntryId, Piece, digest};
use packtrain_os::clock;
use packtrain_units::{Duration, Offset};

use super::block::block_size;
use super::handed::{Bytes, Whole};
use super::{Assembly, Plan, SPARE_SMALL, SPARE_SMALL_BYTES, WriteEvent, len};
use packtrain_service::executor::{lower_priority, spawn};

/// Number of threads that write and hash.
pub(crate) const THREADS: usize = 2;

/// Small files that are written, and then hashed, before the next ones.
const SMALL_BATCH: usize = 64;

/// If each of the files takes this long, another writer takes a part of the chunk. In memory or on a
/// local disk a file takes less, and the two would wait for each other.
const SLOW_FILE: Duration = Duration::from_micros(500);

/// Work for a writer thread.
pub(super) enum Job {
    Write(Write),
    Small(Small),
    Whole(Whole),
    Rehash { chunk: ChunkIndex, piece: Piece, entry: Entry },
    HashOld { chunk: ChunkIndex, piece: Piece, entry: Entry },
    CopyOld { chunk: ChunkIndex, piece: Piece, entry: Entry },
    Stop,
}

/// Writes small files of one chunk.
pub(super) struct Small {
    chunk: ChunkIndex,
    pieces: Vec<(Piece, Arc<Entry>)>,
    /// Their bytes. Another writer may have other files of them.
    bytes: Arc<Gathered>,
}

/// The bytes of small files, and where in the object they begin.
struct Gathered {
    base: Offset,
    bytes: Bytes,
}

impl Small {
    pub(super) fn new(
        chunk: ChunkIndex,
        pieces: Vec<(Piece, Arc<Entry>)>,
        base: Offset,
        bytes: Bytes,
    ) -> Self {
        Self { chunk, pieces, bytes: Arc::new(Gathered { base, bytes }) }
    }

    /// The bytes of a piece; none if they never came because the peer broke the order of pieces.
    fn bytes_of(&self, piece: &Piece) -> Option<&[u8]> {
        let start = len(&(self.bytes.base..piece.range.start)) as usize;
        self.bytes.bytes.get(start..start + len(&piece.range) as usize)
    }
}

/// Writes parts of a block, or punches a hole (no buffer).
pub(super) struct Write {
    pub(super) chunk: ChunkIndex,
    pub(super) piece: Piece,
    pub(super) entry: Arc<Entry>,
    pub(super) block: usize,
    pub(super) buffer: Option<Vec<u8>>,
    pub(super) parts: Vec<Range<u64>>,
    /// The buffer holds the whole block: its digest comes from memory.
    pub(super) hash: bool,
}

pub(super) fn start(assembly: &Assembly, queue: &Receiver<Job>, running: &Sender<()>) {
    for n in 0..THREADS {
        let (assembly, queue, running) = (assembly.clone(), queue.clone(), running.clone());
        spawn(&format!("write-{n}"), move || {
            let _running = running;
            lower_priority();
            let mut scratch = Vec::new();
            for job in &queue {
                let _writing = Writing::begin(&assembly);
                match job {
                    Job::Write(write) => assembly.write(write, &mut scratch),
                    Job::Small(small) => assembly.write_small(small),
                    Job::Whole(whole) => assembly.write_whole(&whole, &mut scratch),
                    Job::Rehash { chunk, piece, entry } => {
                        assembly.rehash_now(chunk, &piece, &entry, &mut scratch);
                    }
                    Job::HashOld { chunk, piece, entry } => {
                        assembly.hash_old_now(chunk, &piece, &entry, &mut scratch);
                    }
                    Job::CopyOld { chunk, piece, entry } => {
                        assembly.copy_old_now(chunk, &piece, &entry, &mut scratch);
                    }
                    Job::Stop => return,
                }
            }
        });
    }
}

/// Counts a writer as busy until it is dropped.
struct Writing<'a>(&'a AtomicUsize);

impl<'a> Writing<'a> {
    fn begin(assembly: &'a Assembly) -> Self {
        let writing = &assembly.0.writing;
        writing.fetch_add(1, Ordering::AcqRel);
        Self(writing)
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

pub(super) fn stop(jobs: &Sender<Job>) {
    for _ in 0..THREADS {
        let _ = jobs.send(Job::Stop);
    }
}

impl Assembly {
    /// Whether a writer is at work or has work: room will come, however slow the disk is.
    pub(super) fn is_writing(&self) -> bool {
        !self.0.jobs.is_empty() || self.0.writing.load(Ordering::Acquire) > 0
    }

    pub(super) fn event(&self, event: WriteEvent) {
        (self.0.events)(event);
    }

    fn write(&self, write: Write, scratch: &mut Vec<u8>) {
        let target = &self.0.target;
        let Write { chunk, piece, entry, block, buffer, parts, hash } = write;
        let base = piece.file_offset + block as u64 * BLOCK.get();
        let size = block_size(&piece, block);
        let mut result = Ok(());
        for Range { start, end } in parts {
            let (at, len) = (base + start, end - start);
            let write = || match &buffer {
                Some(buffer) => {
                    target.write(piece.entry, &entry, at, &buffer[start as usize..end as usize])
                }
                None => target.zero(piece.entry, &entry, at, len),
            };
            result = result.and_then(|()| self.0.meters.data.run(len, write));
        }
        let mut digest = buffer.as_deref().filter(|_| hash && result.is_ok()).map(|bytes| {
            let digest = || block_digest(&piece, base, &bytes[..size as usize]);
            self.0.meters.hash.run(size, digest)
        });
        // The piece of a stream may have become shorter in the meantime.
        let reread = self.release(chunk, &piece, block, buffer);
        if let Err(failure) = result {
            self.drop_plan(chunk, &piece);
            self.event(WriteEvent::Failed(piece.entry, failure));
            return;
        }
        if let Some(piece) = reread.filter(|_| digest.is_none()) {
            scratch.resize(block_size(&piece, block) as usize, 0);
            if target.read(piece.entry, &entry, base, scratch) {
                digest = Some(block_digest(&piece, base, scratch));
            }
        }
        if let Some(digest) = digest {
            self.block_done(chunk, &piece, block, digest);
        }
    }

    /// Returns the buffer to the pool. Returns the current piece if the block must be read back.
    fn release(
        &self,
        chunk: ChunkIndex,
        piece: &Piece,
        block: usize,
        buffer: Option<Vec<u8>>,
    ) -> Option<Piece> {
        let mut state = self.state();
        if let Some(buffer) = buffer {
            state.block_memory -= BLOCK.get();
            if state.spare.len() < 32 {
                state.spare.push(buffer);
            }
        }
        let wants = match state.big_plan(chunk, piece) {
            Some(Plan::Big { piece, blocks, .. }) if block < blocks.len() => {
                blocks[block].pending -= 1;
                blocks[block].wants_reread(block_size(piece, block)).then(|| piece.clone())
            }
            _ => None,
        };
        self.notify_room(state);
        wants
    }

    fn block_done(&self, chunk: ChunkIndex, piece: &Piece, block: usize, value: Digest) {
        let mut state = self.state();
        let Some(Plan::Big { piece, blocks, open, .. }) = state.big_plan(chunk, piece) else {
            return;
        };
        let piece = &piece.clone();
        if block >= blocks.len() {
            return;
        }
        if blocks[block].digest.replace(value).is_none() {
            *open -= 1;
        }
        if *open > 0 {
            return;
        }
        let done = super::finished(chunk, piece, blocks);
        state.remove_big(chunk, piece);
        drop(state);
        if let Some(event) = done {
            self.event(event);
        }
    }

    fn drop_plan(&self, chunk: ChunkIndex, piece: &Piece) {
        let mut state = self.state();
        if let Some(Plan::Big { blocks, .. }) = state.big_plan(chunk, piece) {
            let held = blocks.iter().filter(|b| b.has_buffer()).count() as u64;
            state.block_memory -= held * BLOCK.get();
            state.remove_big(chunk, piece);
        }
    }

    fn write_small(&self, mut small: Small) {
        let chunk = small.chunk;
        let mut written = Vec::with_capacity(small.pieces.len());
        let mut at = 0;
        while at < small.pieces.len() {
            let begun = clock::now();
            let end = small.pieces.len().min(at + SMALL_BATCH);
            self.write_group(&small, at..end, &mut written);
            let took = clock::now().since(begun);
            if took >= SLOW_FILE * (end - at) as u64 {
                self.share_rest(&mut small, end);
            }
            at = end;
        }
        // The last writer that has some of the bytes gives their memory back.
        if let Some(Gathered { bytes, .. }) = Arc::into_inner(small.bytes) {
            let mut state = self.state();
            state.small_memory -= bytes.len() as u64;
            state.keep_small(bytes);
            self.notify_room(state);
        }
        if !written.is_empty() {
            self.event(WriteEvent::Written(chunk, written));
        }
    }

    /// Writes, and then hashes, these of the files.
    fn write_group(
        &self,
        small: &Small,
        group: Range<usize>,
        written: &mut Vec<(EntryId, Digest)>,
    ) {
        let group = &small.pieces[group];
        let group = || {
            group.iter().filter_map(|(piece, entry)| Some((piece, entry, small.bytes_of(piece)?)))
        };
        let (count, size) =
            group().fold((0, 0), |(n, size), (_, _, bytes)| (n + 1, size + bytes.len() as u64));
        let results: Vec<_> = self.0.meters.small.run_many(count, size, || {
            let write = |(piece, entry, bytes): (&Piece, &Arc<Entry>, &[u8])| {
                self.0.target.write_small(piece.entry, entry, bytes)
            };
            group().map(write).collect()
        });
        self.0.meters.hash.run_many(count, size, || {
            for ((piece, _, bytes), result) in group().zip(results) {
                match result {
                    Ok(()) => written.push((piece.entry, digest::piece(0, true, bytes))),
                    Err(failure) => self.event(WriteEvent::Failed(piece.entry, failure)),
                }
            }
        });
    }

    /// Leaves the second half of the files from `at` on to a writer that has nothing to do.
    fn share_rest(&self, small: &mut Small, at: usize) {
        let rest = small.pieces.len() - at;
        // Locked: what is queued before the assembly closes is written.
        let state = self.state();
        if rest < 2 || state.closed || !self.0.jobs.is_empty() {
            return;
        }
        let pieces = small.pieces.split_off(at + rest.div_ceil(2));
        let bytes = Arc::clone(&small.bytes);
        self.job(Job::Small(Small { chunk: small.chunk, pieces, bytes }));
        drop(state);
    }

    fn rehash_now(&self, chunk: ChunkIndex, piece: &Piece, entry: &Entry, scratch: &mut Vec<u8>) {
        scratch.resize(len(&piece.range) as usize, 0);
        let read = self.0.target.read(piece.entry, entry, piece.file_offset, scratch);
        let found = read.then(|| digest::piece(piece.file_offset, piece.whole, scratch));
        self.event(WriteEvent::Rehashed(chunk, piece.entry, found));
    }
}

/// The chaining value of a block, or the root digest if the block is the whole file.
fn block_digest(piece: &Piece, at: u64, bytes: &[u8]) -> Digest {
    if piece.whole && len(&piece.range) <= BLOCK.get() {
        digest::piece(0, true, bytes)
    } else {
        digest::block(at, bytes)
    }
}

impl super::State {
    /// Keeps the buffer of small files for the next ones.
    fn keep_small(&mut self, bytes: Bytes) {
        if let Bytes::Own(buffer) = bytes
            && self.spare_small.len() < SPARE_SMALL
            && buffer.capacity() <= SPARE_SMALL_BYTES
        {
            self.spare_small.push(buffer);
        }
    }

    fn big_plan(&mut self, chunk: ChunkIndex, wanted: &Piece) -> Option<&mut Plan> {
        self.plans.get_mut(&chunk)?.iter_mut().find(
            |plan| matches!(plan, Plan::Big { piece, .. } if piece.range.start == wanted.range.start),
        )
    }

    fn remove_big(&mut self, chunk: ChunkIndex, wanted: &Piece) {
        if let Some(plans) = self.plans.get_mut(&chunk) {
            plans.retain(
                |plan| !matches!(plan, Plan::Big { piece, .. } if piece.range.start == wanted.range.start),
            );
            if plans.is_empty() {
                self.plans.remove(&chunk);
            }
        }
    }
}

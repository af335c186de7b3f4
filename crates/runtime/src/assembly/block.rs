//! One block of a large file, from reception to the disk.

use std::ops::Range;
use std::sync::Arc;

use crossbeam_channel::Sender;
use packtrain_object::{BLOCK, ChunkIndex, Digest, Entry, Piece};
use packtrain_proto::Placed;
use packtrain_units::{ByteCount, Offset, RangeSet};

use super::writers::{Job, Write};
use super::{Memory, len};

/// The state of a block.
#[derive(Debug, Default)]
pub(super) struct Block {
    /// Everything that arrived.
    got: RangeSet<u64>,
    /// What of it is in `buffer` and not handed to a writer yet.
    dirty: RangeSet<u64>,
    buffer: Option<Vec<u8>>,
    /// Number of writes under way.
    pub(super) pending: u32,
    /// Whether part of it was written without being hashed, so that it must be read back.
    reread: bool,
    /// Its digest, once it is completely written.
    pub(super) digest: Option<Digest>,
}

impl Block {
    /// Whether nothing of it came.
    pub(super) fn is_untouched(&self) -> bool {
        self.got.is_empty()
    }

    pub(super) fn has_buffer(&self) -> bool {
        self.buffer.is_some()
    }

    /// Whether all of its `size` bytes came, and none beyond.
    fn is_full(&self, size: u64) -> bool {
        self.got.count() == size && self.got.contains_range(&(0..size))
    }

    /// Whether all of it came and every write is done, but it has no digest yet.
    pub(super) fn wants_reread(&self, size: u64) -> bool {
        self.pending == 0 && self.digest.is_none() && self.is_full(size)
    }
}

/// Size in bytes of block `n` of a piece.
pub(super) fn block_size(piece: &Piece, n: usize) -> u64 {
    let start = n as u64 * BLOCK.get();
    (len(&piece.range) - start).min(BLOCK.get())
}

/// Copies `bytes` (inside the piece) into its blocks.
#[allow(clippy::too_many_arguments)]
pub(super) fn place(
    chunk: ChunkIndex,
    piece: &Piece,
    entry: &Arc<Entry>,
    blocks: &mut [Block],
    at: Offset,
    bytes: &[u8],
    memory: &mut Memory<'_>,
    jobs: &Sender<Job>,
) -> Placed {
    let mut outcome = Placed::Duplicate;
    let mut position = len(&(piece.range.start..at));
    let mut bytes = bytes;
    while !bytes.is_empty() {
        let n = (position / BLOCK.get()) as usize;
        let start = position % BLOCK.get();
        let step = (BLOCK.get() - start).min(bytes.len() as u64) as usize;
        let block = &mut blocks[n];
        let part = start..start + step as u64;
        if !block.got.contains_range(&part) {
            if block.buffer.is_none() {
                let Some(buffer) = memory.take(chunk, n) else { return Placed::NoRoom };
                block.buffer = Some(buffer);
            }
            if let Some(buffer) = &mut block.buffer {
                buffer[part.start as usize..part.end as usize].copy_from_slice(&bytes[..step]);
            }
            block.got.insert(part.clone());
            block.dirty.insert(part);
            outcome = Placed::New;
            if block.is_full(block_size(piece, n))
                && let Some(job) = hand_out(chunk, piece, entry, block, n)
            {
                let _ = jobs.send(job);
            }
        }
        position += step as u64;
        bytes = &bytes[step..];
    }
    outcome
}

/// Writes the received parts of block `n`, if it is incomplete and in memory.
pub(super) fn spill(
    chunk: ChunkIndex,
    piece: &Piece,
    entry: &Arc<Entry>,
    blocks: &mut [Block],
    n: usize,
) -> Option<Job> {
    let block = blocks.get_mut(n)?;
    if !block.has_buffer() {
        return None;
    }
    block.reread = true;
    hand_out(chunk, piece, entry, block, n)
}

/// Marks `part` of the piece as a hole.
pub(super) fn zero(
    chunk: ChunkIndex,
    piece: &Piece,
    entry: &Arc<Entry>,
    blocks: &mut [Block],
    part: &Range<Offset>,
    jobs: &mut Vec<Job>,
) {
    let mut at = part.start;
    while at < part.end {
        let position = len(&(piece.range.start..at));
        let n = (position / BLOCK.get()) as usize;
        let from = position % BLOCK.get();
        let step = (BLOCK.get() - from).min(len(&(at..part.end)));
        let block = &mut blocks[n];
        block.reread = true;
        let part = from..from + step;
        block.got.insert(part.clone());
        let parts = vec![part];
        jobs.push(write(chunk, piece, entry, block, n, None, parts));
        // The hole may complete a block that was partly received.
        jobs.extend(complete(chunk, piece, entry, block, n));
        at += ByteCount(step);
    }
}

/// The job that writes block `n`, if it is complete and in memory.
pub(super) fn complete(
    chunk: ChunkIndex,
    piece: &Piece,
    entry: &Arc<Entry>,
    block: &mut Block,
    n: usize,
) -> Option<Job> {
    let full = block.is_full(block_size(piece, n));
    if full { hand_out(chunk, piece, entry, block, n) } else { None }
}

/// The job that reads block `n` back for its digest, if it is completely written without one.
pub(super) fn reread(
    chunk: ChunkIndex,
    piece: &Piece,
    entry: &Arc<Entry>,
    block: &mut Block,
    n: usize,
) -> Option<Job> {
    if !block.wants_reread(block_size(piece, n)) {
        return None;
    }
    Some(write(chunk, piece, entry, block, n, None, Vec::new()))
}

fn hand_out(
    chunk: ChunkIndex,
    piece: &Piece,
    entry: &Arc<Entry>,
    block: &mut Block,
    n: usize,
) -> Option<Job> {
    let buffer = block.buffer.take()?;
    let parts = std::mem::take(&mut block.dirty).iter().collect();
    Some(write(chunk, piece, entry, block, n, Some(buffer), parts))
}

/// A write of block `n`, counted as pending. Its digest is computed from memory only if the buffer
/// has the whole block.
fn write(
    chunk: ChunkIndex,
    piece: &Piece,
    entry: &Arc<Entry>,
    block: &mut Block,
    n: usize,
    buffer: Option<Vec<u8>>,
    parts: Vec<Range<u64>>,
) -> Job {
    block.pending += 1;
    let hash = buffer.is_some() && !block.reread;
    let (piece, entry) = (piece.clone(), Arc::clone(entry));
    Job::Write(Write { chunk, piece, entry, block: n, buffer, parts, hash })
}

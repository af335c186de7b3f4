//! One block of a big file on its way from packets to the disk.

use std::ops::Range;
use std::sync::Arc;

use crossbeam_channel::Sender;
use packtrain_object::{BLOCK, ChunkIndex, Digest, Entry, Piece};
use packtrain_proto::Placed;
use packtrain_units::{ByteCount, Offset};

use super::writers::{Job, Write};
use super::{Memory, len};

/// A block: what came, what is in memory, what is on disk.
#[derive(Debug, Default)]
pub(super) struct Block {
    /// Everything that arrived.
    got: Intervals,
    /// What of it is in `buffer` and not handed to a writer yet.
    dirty: Intervals,
    buffer: Option<Vec<u8>>,
    /// Writes handed out and not done.
    pub(super) pending: u32,
    /// Part of it was written without being hashed: it is read back for its digest.
    reread: bool,
    /// Its digest, once all of it is written.
    pub(super) digest: Option<Digest>,
}

impl Block {
    /// Whether nothing of it came.
    pub(super) fn is_untouched(&self) -> bool {
        self.got == Intervals::default()
    }

    pub(super) fn has_buffer(&self) -> bool {
        self.buffer.is_some()
    }

    /// Whether all of it came and every write is done, but it has no digest yet.
    pub(super) fn wants_reread(&self, size: u64) -> bool {
        self.pending == 0 && self.digest.is_none() && self.got.is_full(size as u32)
    }
}

/// Bytes of block `n` of a piece.
pub(super) fn block_size(piece: &Piece, n: usize) -> u64 {
    let start = n as u64 * BLOCK.get();
    (len(&piece.range) - start).min(BLOCK.get())
}

/// Puts `bytes` (inside the piece) into its blocks.
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
        let (from, to) = (start as u32, start as u32 + step as u32);
        if !block.got.contains(from, to) {
            if block.buffer.is_none() {
                let Some(buffer) = memory.take(chunk, n) else { return Placed::NoRoom };
                block.buffer = Some(buffer);
            }
            if let Some(buffer) = &mut block.buffer {
                buffer[from as usize..to as usize].copy_from_slice(&bytes[..step]);
            }
            block.got.insert(from, to);
            block.dirty.insert(from, to);
            outcome = Placed::New;
            if block.got.is_full(block_size(piece, n) as u32)
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

/// Writes what block `n` has so far, if it is incomplete and in memory.
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
        block.got.insert(from as u32, (from + step) as u32);
        let parts = vec![(from as u32, (from + step) as u32)];
        jobs.push(write(chunk, piece, entry, block, n, None, parts));
        // What was already here may now be complete with what the hole adds.
        jobs.extend(complete(chunk, piece, entry, block, n));
        at += ByteCount(step);
    }
}

/// The job that writes block `n`, if all of it is here and in memory.
pub(super) fn complete(
    chunk: ChunkIndex,
    piece: &Piece,
    entry: &Arc<Entry>,
    block: &mut Block,
    n: usize,
) -> Option<Job> {
    let full = block.got.is_full(block_size(piece, n) as u32);
    if full { hand_out(chunk, piece, entry, block, n) } else { None }
}

/// The job that reads block `n` back for its digest, if all of it is written without one.
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
    let parts = std::mem::take(&mut block.dirty).0;
    Some(write(chunk, piece, entry, block, n, Some(buffer), parts))
}

/// A write of block `n`, counted as pending. Its digest comes from memory only if the buffer has
/// the whole block.
fn write(
    chunk: ChunkIndex,
    piece: &Piece,
    entry: &Arc<Entry>,
    block: &mut Block,
    n: usize,
    buffer: Option<Vec<u8>>,
    parts: Vec<(u32, u32)>,
) -> Job {
    block.pending += 1;
    let hash = buffer.is_some() && !block.reread;
    let (piece, entry) = (piece.clone(), Arc::clone(entry));
    Job::Write(Write { chunk, piece, entry, block: n, buffer, parts, hash })
}

/// Disjoint ascending intervals inside one buffer; nearly always one or two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Intervals(pub(super) Vec<(u32, u32)>);

impl Intervals {
    /// Adds `from..to`; how many bytes of it are new.
    pub(super) fn insert(&mut self, from: u32, to: u32) -> u64 {
        if let Some(last) = self.0.last_mut()
            && last.1 == from
        {
            last.1 = to;
            return u64::from(to - from);
        }
        let new = u64::from(to - from) - self.covered(from, to);
        let first = self.0.partition_point(|&(_, end)| end < from);
        let last = self.0.partition_point(|&(start, _)| start <= to);
        let (mut start, mut end) = (from, to);
        if first < last {
            start = start.min(self.0[first].0);
            end = end.max(self.0[last - 1].1);
        }
        self.0.splice(first..last, [(start, end)]);
        new
    }

    /// How many bytes of `from..to` are in.
    pub(super) fn covered(&self, from: u32, to: u32) -> u64 {
        let first = self.0.partition_point(|&(_, end)| end <= from);
        self.0[first..]
            .iter()
            .take_while(|&&(start, _)| start < to)
            .map(|&(start, end)| u64::from(end.min(to) - start.max(from)))
            .sum()
    }

    /// Whether all of `from..to` is in.
    pub(super) fn contains(&self, from: u32, to: u32) -> bool {
        let first = self.0.partition_point(|&(_, end)| end <= from);
        self.0.get(first).is_some_and(|&(start, end)| start <= from && to <= end)
    }

    /// Whether `0..size` is in.
    pub(super) fn is_full(&self, size: u32) -> bool {
        self.0.len() == 1 && self.0[0] == (0, size)
    }
}

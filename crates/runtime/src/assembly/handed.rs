//! What a source of the same process hands over: nothing of it is copied before it is written.

use std::ops::Deref;
use std::sync::Arc;

use packtrain_object::{BLOCK, ChunkIndex, Entry, Piece, digest};

use super::block::Block;
use super::writers::{Job, Small};
use super::{Assembly, BLOCK_MEMORY_BYTES, Plan, SMALL_FILE_MEMORY_BYTES, State, WriteEvent, len};
use crate::reader::Slice;

/// Bytes to be written.
pub(super) enum Bytes {
    /// Gathered in the assembly.
    Own(Vec<u8>),
    /// In the memory of the reader.
    Handed(Slice),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Handed(slice) => slice.bytes(),
        }
    }
}

/// Writing a whole piece of a big file.
pub(super) struct Whole {
    chunk: ChunkIndex,
    piece: Piece,
    entry: Arc<Entry>,
    /// Exactly the piece.
    slice: Slice,
}

/// What was taken of a slice.
enum Taken {
    Job(Job),
    NoRoom,
    Nothing,
}

impl Assembly {
    /// Puts bytes in the memory of this process at their place, waiting for room while there is
    /// none. Pieces and small files all of which is in the slice are written from there; of others
    /// the assembly makes a copy.
    pub(crate) fn hand_over(&self, slice: &Slice) {
        let chunk = ChunkIndex::of(slice.range().start);
        let mut state = self.state();
        let mut waited = 0;
        loop {
            match state.take_whole(chunk, slice) {
                Taken::Job(job) => self.job(job),
                Taken::Nothing => break,
                Taken::NoRoom => {
                    state.spill(&self.0.jobs);
                    if !self.wait_for_room(&mut state, &mut waited) {
                        return;
                    }
                }
            }
        }
        // What was taken is not expected any more.
        let is_expected = state.plans.contains_key(&chunk);
        drop(state);
        if is_expected {
            self.place_waiting(slice.range().start, slice.bytes());
        }
    }

    /// Writes a piece and hashes what was written. Where the file system can share blocks nothing is
    /// written: the piece is read back and hashed.
    pub(super) fn write_whole(&self, whole: &Whole, scratch: &mut Vec<u8>) {
        let Whole { chunk, piece, entry, slice } = whole;
        let target = &self.0.target;
        let bytes = slice.bytes();
        let size = bytes.len() as u64;
        let from = slice.file();
        let moved = self.0.meters.data.run(size, || {
            let at = piece.file_offset;
            if from.is_some_and(|from| target.share(piece.entry, entry, at, from, size)) {
                scratch.resize(bytes.len(), 0);
                if target.read(piece.entry, entry, at, scratch) {
                    return Ok(true);
                }
            }
            // Block by block: on ext4 one write of a whole piece takes two to four times as long to
            // reach the disk.
            let step = BLOCK.get() as usize;
            for (block, at) in bytes.chunks(step).zip((at..).step_by(step)) {
                target.write(piece.entry, entry, at, block)?;
            }
            Ok(false)
        });
        let written = moved.map(|is_shared| {
            let there = if is_shared { &scratch[..] } else { bytes };
            let digest = || digest::piece(piece.file_offset, piece.whole, there);
            self.0.meters.hash.run(size, digest)
        });
        let mut state = self.state();
        state.block_memory -= size;
        self.notify_room(state);
        self.event(match written {
            Ok(digest) => WriteEvent::Written(*chunk, vec![(piece.entry, digest)]),
            Err(failure) => WriteEvent::Failed(piece.entry, failure),
        });
    }
}

impl State {
    /// Takes a plan of which nothing came before, and all of which is in the slice.
    fn take_whole(&mut self, chunk: ChunkIndex, slice: &Slice) -> Taken {
        let Some(plans) = self.plans.get_mut(&chunk) else { return Taken::Nothing };
        let mut found = None;
        for (n, plan) in plans.iter().enumerate() {
            let range = match plan {
                Plan::Big { piece, blocks, .. } if blocks.iter().all(Block::is_untouched) => {
                    piece.range.clone()
                }
                Plan::Small { pieces, base, buffer, .. } if buffer.is_empty() => {
                    *base..pieces.last().map_or(*base, |(piece, _)| piece.range.end)
                }
                _ => continue,
            };
            if let Some(slice) = slice.part(range) {
                found = Some((n, slice));
                break;
            }
        }
        let Some((n, slice)) = found else { return Taken::Nothing };
        let size = len(slice.range());
        let (memory, limit) = match &plans[n] {
            Plan::Big { .. } => (&mut self.block_memory, BLOCK_MEMORY_BYTES),
            Plan::Small { .. } => {
                (&mut self.small_memory, SMALL_FILE_MEMORY_BYTES + self.extra_small_memory)
            }
        };
        if *memory + size > limit {
            return Taken::NoRoom;
        }
        *memory += size;
        let plan = plans.remove(n);
        if plans.is_empty() {
            self.plans.remove(&chunk);
        }
        Taken::Job(match plan {
            Plan::Big { piece, entry, .. } => Job::Whole(Whole { chunk, piece, entry, slice }),
            Plan::Small { pieces, base, .. } => {
                Job::Small(Small::new(chunk, pieces, base, Bytes::Handed(slice)))
            }
        })
    }
}

//! Pieces of old versions of files, which are hashed and copied instead of received.

use packtrain_object::{BLOCK, ChunkIndex, Entry, Piece, digest};

use super::block::Block;
use super::writers::Job;
use super::{Assembly, Plan, State, WriteEvent, len};

impl Assembly {
    /// Reads a piece of an old version and reports its digest.
    pub(crate) fn hash_old(&self, chunk: ChunkIndex, piece: Piece, entry: Entry) {
        self.job(Job::HashOld { chunk, piece, entry });
    }

    /// Copies an expected piece from the old version and reports the digest of what it copied.
    pub(crate) fn copy_old(&self, chunk: ChunkIndex, piece: Piece, entry: Entry) {
        // From here on, data of this piece that arrives nevertheless is dropped.
        if self.state().take_untouched(chunk, &piece) {
            self.job(Job::CopyOld { chunk, piece, entry });
        }
    }

    pub(super) fn hash_old_now(
        &self,
        chunk: ChunkIndex,
        piece: &Piece,
        entry: &Entry,
        scratch: &mut Vec<u8>,
    ) {
        let found = self.read_old(piece, entry, scratch).then(|| self.old_digest(piece, scratch));
        self.event(WriteEvent::OldHashed(chunk, piece.entry, found));
    }

    pub(super) fn copy_old_now(
        &self,
        chunk: ChunkIndex,
        piece: &Piece,
        entry: &Entry,
        scratch: &mut Vec<u8>,
    ) {
        if !self.read_old(piece, entry, scratch) {
            self.event(WriteEvent::Copied(chunk, piece.entry, None));
            return;
        }
        let mut at = piece.file_offset;
        for block in scratch.chunks(BLOCK.get() as usize) {
            let size = block.len() as u64;
            let write = || self.0.target.write_old(piece.entry, entry, at, block);
            if let Err(failure) = self.0.meters.data.run(size, write) {
                self.event(WriteEvent::Failed(piece.entry, failure));
                return;
            }
            at += size;
        }
        let copied = self.old_digest(piece, scratch);
        self.event(WriteEvent::Copied(chunk, piece.entry, Some(copied)));
    }

    fn read_old(&self, piece: &Piece, entry: &Entry, out: &mut Vec<u8>) -> bool {
        out.resize(len(&piece.range) as usize, 0);
        self.0.target.read_old(entry, piece.file_offset, out)
    }

    fn old_digest(&self, piece: &Piece, bytes: &[u8]) -> packtrain_object::Digest {
        let digest = || digest::piece(piece.file_offset, piece.whole, bytes);
        self.0.meters.hash.run(bytes.len() as u64, digest)
    }
}

impl State {
    /// Removes the plan of a piece of which nothing was placed. False if there is none.
    fn take_untouched(&mut self, chunk: ChunkIndex, wanted: &Piece) -> bool {
        let Some(plans) = self.plans.get_mut(&chunk) else { return false };
        let before = plans.len();
        plans.retain(|plan| match plan {
            Plan::Big { piece, blocks, .. } => {
                piece.range != wanted.range || !blocks.iter().all(Block::is_untouched)
            }
            Plan::Small { .. } => true,
        });
        let is_taken = plans.len() < before;
        if plans.is_empty() {
            self.plans.remove(&chunk);
        }
        is_taken
    }
}

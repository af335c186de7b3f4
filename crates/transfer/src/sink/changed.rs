//! Requests pieces of files that have an old version at the target.
//!
//! Before such a piece is requested, the bytes at its place in the old file are hashed,
//! [`OLD_WINDOW`] pieces at a time. The request states the digest. If the source has the same bytes,
//! it says so, and they are copied from the old file to the temporary. The digest of the copied bytes
//! is compared like that of any other piece: if the old file changed meanwhile, the piece is
//! requested again and moved.

use std::collections::BTreeMap;
use std::ops::Range;

use packtrain_object::{CHUNK, ChunkIndex, Digest, EntryId, Piece};
use packtrain_units::Offset;

use super::Sink;
use crate::action::SinkAction;
use crate::failure::{Failure, protocol};
use crate::limits::OLD_WINDOW;
use crate::message::{Message, unexpected};

/// Pieces with an old version.
#[derive(Debug, Default)]
pub(super) struct Changed {
    enabled: bool,
    /// Pieces whose old versions are being hashed.
    hashing: BTreeMap<ChunkIndex, Piece>,
    /// Digests that were stated to the source, of pieces that are not verified.
    stated: BTreeMap<ChunkIndex, Digest>,
}

impl Changed {
    /// Number of pieces held.
    pub(super) fn held(&self) -> usize {
        self.hashing.len() + self.stated.len()
    }

    /// Whether another old version may be hashed.
    pub(super) fn has_room(&self) -> bool {
        self.hashing.len() < OLD_WINDOW
    }

    /// The pieces of this range are verified or no longer wanted.
    pub(super) fn forget(&mut self, range: &Range<Offset>) {
        if self.held() == 0 {
            return;
        }
        let end = ChunkIndex(range.end.0.div_ceil(CHUNK.get()));
        let within = self.stated.range(ChunkIndex::of(range.start)..end);
        let gone: Vec<_> = within.map(|(chunk, _)| *chunk).collect();
        for chunk in gone {
            self.stated.remove(&chunk);
        }
    }
}

impl Sink {
    /// Asks the source to compare pieces of files that have an old version, and moves only those
    /// that differ. Only for a source that knows [`Message::NeedChanged`].
    #[must_use]
    pub fn with_changed_pieces(mut self) -> Self {
        self.changed.enabled = true;
        self
    }

    /// Hashes the old version of a chunk that is one piece of a large file, if there is one. Returns
    /// false if the pieces are requested as usual. A source can find the bytes of a short piece from
    /// its digest by guessing, so only whole chunks are hashed.
    ///
    /// With `--inplace` the old version may be what an earlier run wrote. After a failed write-back the
    /// kernel keeps the pages, takes them for clean, and tells the error once. So the target writes
    /// the bytes again even where they are the same, and the next sync covers them.
    pub(super) fn hash_old(&mut self, chunk: ChunkIndex, pieces: &[Piece]) -> bool {
        let [piece] = pieces else { return false };
        let Some(item) = self.entries.get(piece.entry).filter(|_| self.changed.enabled) else {
            return false;
        };
        let end = piece.file_offset + piece.size().get();
        if item.stream
            || piece.whole
            || piece.size() != CHUNK
            || item.old.is_none_or(|size| size < end)
        {
            return false;
        }
        let action = SinkAction::HashOld(chunk, piece.clone(), item.entry.clone());
        self.changed.hashing.insert(chunk, piece.clone());
        self.out.push_back(action);
        true
    }

    /// Answer to `HashOld`; none if the old version could not be read.
    pub fn on_old_hashed(&mut self, chunk: ChunkIndex, id: EntryId, digest: Option<Digest>) {
        let piece = self.changed.hashing.get(&chunk).filter(|piece| piece.entry == id).cloned();
        if let Some(piece) = piece {
            self.changed.hashing.remove(&chunk);
            if self.phase.is_open() && self.entries.is_moving(id) {
                self.need_old(chunk, piece, digest);
            }
        }
        self.advance();
    }

    fn need_old(&mut self, chunk: ChunkIndex, piece: Piece, digest: Option<Digest>) {
        let (start, mut ranges) = (piece.range.start, Vec::new());
        self.expect(chunk, vec![piece], &mut ranges);
        let Some(digest) = digest else {
            self.send_need(ranges, false);
            return;
        };
        self.accounted = false;
        self.changed.stated.insert(chunk, digest);
        self.send(Message::NeedChanged { start, digest });
    }

    /// The source has the bytes of the old version.
    pub(super) fn take_same(&mut self, start: Offset) -> Result<(), Failure> {
        let chunk = ChunkIndex::of(start);
        if !self.changed.enabled {
            return Err(unexpected(&Message::Same(start)));
        }
        if !self.chunks.was_asked(chunk) {
            return Err(protocol("an old version that was not asked about"));
        }
        // A piece that is not wanted any more belongs to an entry that failed here.
        let Some(digest) = self.changed.stated.remove(&chunk) else { return Ok(()) };
        let Some(piece) = self.chunks.take_from_old(chunk, start) else { return Ok(()) };
        let Some(item) = self.entries.get(piece.entry) else { return Ok(()) };
        let id = piece.entry;
        self.out.push_back(SinkAction::CopyOld(chunk, piece, item.entry.clone()));
        self.take_digest_of(chunk, id, Some(digest), None);
        Ok(())
    }

    /// Answer to `CopyOld`: the digest of the bytes that were copied; none if they could not be
    /// read.
    pub fn on_copied(&mut self, chunk: ChunkIndex, id: EntryId, digest: Option<Digest>) {
        if self.phase.is_open() {
            // No bytes have this digest: the piece is requested again.
            let hash = digest.unwrap_or(Digest([0; 32]));
            self.take_digest_of(chunk, id, None, Some(hash));
        }
        self.advance();
    }
}

//! Compares digests of the bytes written with digests of the bytes read at the source.

use std::collections::BTreeMap;
use std::ops::Range;

use packtrain_object::{CHUNK, ChunkIndex, Digest, EntryId, Piece, SPACE_END};
use packtrain_units::{Offset, RangeSet};

use super::Sink;
use super::entries::Stage;
use crate::action::{PieceHash, SinkAction};
use crate::failure::{Failure, FailureKind, protocol};
use crate::limits::{MAX_DIGESTS, MAX_TRIES, NEED_CHUNKS, NEED_WINDOW, path_bytes};
use crate::message::PieceDigest;

/// Chunks requested and not verified.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    chunks: BTreeMap<ChunkIndex, ChunkWork>,
    asked: RangeSet,
    /// The chunk after the last one ever requested.
    end: ChunkIndex,
}

#[derive(Debug)]
struct ChunkWork {
    pieces: Vec<PieceState>,
    /// Pieces that are neither verified nor dropped.
    open: usize,
}

#[derive(Debug)]
struct PieceState {
    piece: Piece,
    /// Digest from the source.
    digest: Option<Digest>,
    /// Digest of the bytes written.
    hash: Option<Digest>,
    tries: u8,
    open: bool,
    /// Whether its bytes come from the old version of the file.
    same: bool,
}

/// A piece with both digests.
#[derive(Debug)]
struct Compared {
    piece: Piece,
    digest: Digest,
    matches: bool,
    tries: u8,
    same: bool,
}

impl Chunks {
    /// Number of chunks under way.
    pub(super) fn held(&self) -> usize {
        self.chunks.len()
    }

    /// Whether more chunks may be requested.
    pub(super) fn has_room(&self) -> bool {
        self.asked.len_bytes().get() < NEED_WINDOW && self.chunks.len() < NEED_CHUNKS
    }

    /// These pieces were requested, perhaps again.
    pub(super) fn expect(&mut self, chunk: ChunkIndex, pieces: &[Piece]) {
        self.end = self.end.max(chunk.next());
        let work =
            self.chunks.entry(chunk).or_insert_with(|| ChunkWork { pieces: Vec::new(), open: 0 });
        for piece in pieces {
            self.asked.insert(piece.range.clone());
            match work.pieces.binary_search_by_key(&piece.entry, |p| p.piece.entry) {
                Ok(at) => {
                    let known = &mut work.pieces[at];
                    work.open += usize::from(!known.open);
                    (known.digest, known.hash, known.open) = (None, None, true);
                    known.same = false;
                }
                Err(at) => {
                    let piece = piece.clone();
                    let (digest, hash) = (None, None);
                    let new = PieceState { piece, digest, hash, tries: 0, open: true, same: false };
                    work.pieces.insert(at, new);
                    work.open += 1;
                }
            }
        }
    }

    /// Whether this piece is requested and not verified.
    pub(super) fn is_asked(&self, piece: &Piece) -> bool {
        self.asked.contains_range(&piece.range)
    }

    /// Whether this chunk may have been requested.
    pub(super) fn was_asked(&self, chunk: ChunkIndex) -> bool {
        chunk < self.end
    }

    /// The bytes of this piece come from the old version of the file. Returns the piece if it is open
    /// and has no digest yet.
    pub(super) fn take_from_old(&mut self, chunk: ChunkIndex, start: Offset) -> Option<Piece> {
        let work = self.chunks.get_mut(&chunk)?;
        let piece = work.pieces.iter_mut().find(|piece| piece.piece.range.start == start)?;
        let is_new = piece.open && piece.digest.is_none() && piece.hash.is_none();
        is_new.then(|| {
            piece.same = true;
            piece.piece.clone()
        })
    }

    fn compare(
        &mut self,
        chunk: ChunkIndex,
        digests: impl Iterator<Item = (EntryId, Option<Digest>, Option<Digest>)>,
    ) -> Vec<Compared> {
        let mut compared = Vec::new();
        let Some(work) = self.chunks.get_mut(&chunk) else { return compared };
        for (entry, digest, hash) in digests {
            let at = work.pieces.binary_search_by_key(&entry, |p| p.piece.entry);
            let Ok(piece) = at.map(|at| &mut work.pieces[at]) else { continue };
            if !piece.open {
                continue;
            }
            piece.digest = digest.or(piece.digest);
            piece.hash = hash.or(piece.hash);
            let (Some(digest), Some(hash)) = (piece.digest, piece.hash) else { continue };
            let matches = digest == hash;
            if matches {
                piece.open = false;
                work.open -= 1;
                self.asked.remove(piece.piece.range.clone());
            } else {
                piece.tries = piece.tries.saturating_add(1);
            }
            let (tries, same) = (piece.tries, piece.same);
            compared.push(Compared { piece: piece.piece.clone(), digest, matches, tries, same });
        }
        if work.open == 0 {
            self.chunks.remove(&chunk);
        }
        compared
    }

    /// The pieces of `range` are no longer wanted. Returns the parts that were.
    pub(super) fn give_up(&mut self, range: &Range<Offset>) -> Vec<Range<Offset>> {
        let parts: Vec<_> = self.asked.intersect(range.clone()).collect();
        for part in &parts {
            self.asked.remove(part.clone());
            for chunk in ChunkIndex::covering(part) {
                self.give_up_in(chunk, part);
            }
        }
        parts
    }

    fn give_up_in(&mut self, chunk: ChunkIndex, part: &Range<Offset>) {
        let Some(work) = self.chunks.get_mut(&chunk) else { return };
        let first = work.pieces.partition_point(|p| p.piece.range.start < part.start);
        for piece in work.pieces.iter_mut().skip(first) {
            if piece.piece.range.start >= part.end {
                break;
            }
            work.open -= usize::from(piece.open);
            piece.open = false;
        }
        if work.open == 0 {
            self.chunks.remove(&chunk);
        }
    }

    /// The stream ended at `end`: pieces beyond it are dropped, a piece across it is shortened.
    pub(super) fn cut(&mut self, end: Offset) {
        self.asked.remove(end..SPACE_END);
        let first = ChunkIndex::of(end);
        let keep = u64::from(end > first.start());
        self.chunks.retain(|chunk, _| chunk.0 < first.0 + keep);
        if keep == 0 {
            return;
        }
        if let Some(work) = self.chunks.get_mut(&first) {
            for piece in work.pieces.iter_mut().filter(|p| p.piece.range.end > end) {
                piece.piece.range.end = end;
            }
        }
    }
}

impl Sink {
    pub(super) fn take_digests(
        &mut self,
        chunk: ChunkIndex,
        pieces: &[PieceDigest],
    ) -> Result<(), Failure> {
        if pieces.len() > MAX_DIGESTS {
            return Err(protocol("more digests than fit in one message"));
        }
        if !self.chunks.was_asked(chunk) {
            return Err(protocol("digests of a chunk that was not asked for"));
        }
        let digests = pieces.iter().map(|p| (p.entry, Some(p.digest), None));
        let compared = self.chunks.compare(chunk, digests);
        self.settle_pieces(chunk, compared);
        Ok(())
    }

    pub(super) fn take_hashes(&mut self, chunk: ChunkIndex, hashes: &[PieceHash]) {
        let digests = hashes.iter().map(|&(entry, hash)| (entry, None, Some(hash)));
        let compared = self.chunks.compare(chunk, digests);
        self.settle_pieces(chunk, compared);
    }

    /// The digest from the source, or that of the bytes written, of one piece.
    pub(super) fn take_digest_of(
        &mut self,
        chunk: ChunkIndex,
        id: EntryId,
        digest: Option<Digest>,
        hash: Option<Digest>,
    ) {
        let compared = self.chunks.compare(chunk, [(id, digest, hash)].into_iter());
        self.settle_pieces(chunk, compared);
    }

    fn settle_pieces(&mut self, chunk: ChunkIndex, compared: Vec<Compared>) {
        let mut again = Vec::new();
        for piece in compared {
            if piece.matches {
                self.piece_verified(&piece);
            } else if piece.tries < MAX_TRIES {
                self.tally.again();
                again.push(piece.piece);
            } else {
                let text = "what is written does not hash to what was read, three times over; \
                            the source may be changing, or a disk or memory fail";
                let failure = Failure::new(FailureKind::Integrity, text);
                self.fail_entry(piece.piece.entry, failure, true);
            }
        }
        // They are in the order in which the peer sent their digests.
        again.sort_unstable_by_key(|piece: &Piece| piece.range.start);
        let mut ranges = Vec::new();
        self.expect(chunk, again, &mut ranges);
        self.send_need(ranges, true);
    }

    fn piece_verified(&mut self, compared: &Compared) {
        let Compared { piece, digest, same, .. } = compared;
        self.changed.forget(&piece.range);
        let Some(item) = self.entries.get_mut(piece.entry) else { return };
        item.verified += 1;
        let index = u32::try_from(piece.file_offset / CHUNK.get());
        if let (Some(file), Ok(index)) = (item.journal, index) {
            self.journal.chunk(file, index, *digest, &mut self.out);
        }
        match same {
            true => self.tally.same(piece.size().get()),
            false => self.tally.moved(piece.size().get()),
        }
        self.tally.verified_range(self.now, piece.range.clone());
        self.durability.add_bytes(self.now, piece.size().get());
        self.complete_if_all(piece.entry);
        if *same {
            self.send_present();
        }
    }

    /// If all pieces of the file are verified, queues it for a sync.
    pub(super) fn complete_if_all(&mut self, id: EntryId) {
        let all = |item: &super::entries::Item| item.verified == item.pieces;
        if self.entries.is_moving(id) && self.entries.get(id).is_some_and(all) {
            self.complete(id);
        }
    }

    pub(super) fn complete(&mut self, id: EntryId) {
        let Some(item) = self.entries.get_mut(id) else { return };
        item.stage = Stage::Complete;
        let paths = path_bytes(&item.entry);
        self.resumed.forget(id);
        self.durability.add_file(self.now, id, paths);
    }

    pub(super) fn take_hole(&mut self, range: Range<Offset>) -> Result<(), Failure> {
        if range.start >= range.end || range.end > self.layout.end() {
            return Err(protocol("a hole that lies nowhere"));
        }
        // Parts that are not requested (any more) belong to an entry that failed here.
        let parts: Vec<_> = self.chunks.asked.intersect(range).collect();
        for part in parts {
            self.tally.hole(part.end.since(part.start).get());
            self.out.push_back(SinkAction::Zero(part));
        }
        Ok(())
    }
}

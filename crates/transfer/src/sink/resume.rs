//! Finds the chunks of an earlier run.
//!
//! Journalled chunks are read back and hashed, [`REHASH_WINDOW`] at a time, while missing chunks
//! are moving. A chunk whose digest does not match the journal is requested like a missing one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use packtrain_object::{CHUNK, ChunkIndex, Digest, EntryId, Piece};
use packtrain_units::Offset;

use super::Sink;
use crate::action::SinkAction;
use crate::limits::REHASH_WINDOW;
use crate::message::Resume;

/// Files with chunks of an earlier run.
#[derive(Debug, Default)]
pub(super) struct Resumed {
    files: BTreeMap<EntryId, ResumedFile>,
    queue: VecDeque<EntryId>,
    reading: usize,
}

#[derive(Debug, Default)]
struct ResumedFile {
    /// Chunks that the earlier run left: they are not requested with the others of their file. Those
    /// that are not valid are requested again.
    chunks: BTreeSet<u32>,
    /// Of those, the ones to read back, with their journalled digests.
    unread: BTreeMap<u32, Digest>,
    reading: BTreeMap<u32, Digest>,
}

impl Resumed {
    /// Whether the earlier run left this chunk of a file.
    pub(super) fn has(&self, id: EntryId, index: u64) -> bool {
        let index = u32::try_from(index).ok();
        let file = self.files.get(&id);
        file.zip(index).is_some_and(|(file, index)| file.chunks.contains(&index))
    }

    /// The file is complete or failed. Returns whether an earlier run left chunks of it.
    pub(super) fn forget(&mut self, id: EntryId) -> bool {
        let file = self.files.remove(&id);
        self.reading -= file.as_ref().map_or(0, |file| file.reading.len());
        file.is_some()
    }

    /// The next chunk to read back.
    fn next(&mut self) -> Option<(EntryId, u32)> {
        while self.reading < REHASH_WINDOW {
            let id = *self.queue.front()?;
            let next = self.files.get_mut(&id).and_then(|file| {
                let (index, digest) = file.unread.pop_first()?;
                file.reading.insert(index, digest);
                Some(index)
            });
            if let Some(index) = next {
                self.reading += 1;
                return Some((id, index));
            }
            self.queue.pop_front();
        }
        None
    }

    /// A chunk was read back. Returns its journalled digest.
    fn read(&mut self, id: EntryId, index: u32) -> Option<Digest> {
        let digest = self.files.get_mut(&id)?.reading.remove(&index)?;
        self.reading -= 1;
        Some(digest)
    }
}

impl Sink {
    /// Starts a file of several chunks, with the chunks that the journal has.
    pub(super) fn resume(&mut self, id: EntryId) {
        let Some(item) = self.entries.get_mut(id) else { return };
        let key = item.key();
        let out = &mut self.after_requests;
        let Some((number, chunks)) = self.journal.begin_file(&key, item.temporary, out) else {
            return;
        };
        item.journal = Some(number);
        if chunks.is_empty() {
            return;
        }
        let mut file =
            ResumedFile { chunks: chunks.keys().copied().collect(), ..ResumedFile::default() };
        let mut trusted = Vec::new();
        for (index, chunk) in chunks {
            if self.options.resume == Resume::Trust {
                trusted.push(index);
            } else {
                file.unread.insert(index, chunk.digest);
            }
        }
        self.resumed.files.insert(id, file);
        self.resumed.queue.push_back(id);
        for index in trusted {
            if let Some(piece) = self.piece_of(id, index) {
                self.chunk_present(id, &piece, true);
            }
        }
    }

    pub(super) fn rehash_more(&mut self) {
        while let Some((id, index)) = self.resumed.next() {
            let piece = self.piece_of(id, index);
            let entry = self.entries.get(id).map(|item| item.entry.clone());
            if let (Some(piece), Some(entry)) = (piece, entry) {
                let chunk = ChunkIndex::of(piece.range.start);
                self.out.push_back(SinkAction::Rehash(chunk, piece, entry));
            } else {
                self.resumed.read(id, index);
            }
        }
    }

    pub(super) fn take_rehashed(&mut self, chunk: ChunkIndex, id: EntryId, digest: Option<Digest>) {
        let Some(item) = self.entries.get(id) else { return };
        let (Some(number), Some(range)) = (item.journal, item.range.clone()) else { return };
        let at = chunk.start().since(range.start).get() / CHUNK.get();
        let Ok(index) = u32::try_from(at) else { return };
        let Some(wanted) = self.resumed.read(id, index) else { return };
        if digest == Some(wanted) {
            if let Some(piece) = self.piece_of(id, index) {
                self.chunk_present(id, &piece, false);
                self.complete_if_all(id);
                self.send_present();
            }
        } else {
            self.tally.again();
            self.journal.invalidate(number, index, &mut self.out);
            self.planner.add_again(chunk);
        }
    }

    /// A chunk of an earlier run is valid.
    fn chunk_present(&mut self, id: EntryId, piece: &Piece, durable: bool) {
        let Some(item) = self.entries.get_mut(id) else { return };
        item.verified += 1;
        self.tally.resumed(piece.size().get());
        if durable {
            self.tally.durable(piece.size().get());
            self.durability.touch(self.now);
        } else {
            self.durability.add_bytes(self.now, piece.size().get());
        }
        self.tally.verified_range(self.now, piece.range.clone());
    }

    fn piece_of(&self, id: EntryId, index: u32) -> Option<Piece> {
        let range = self.entries.get(id)?.range.clone()?;
        let at = range.start.0.checked_add(u64::from(index) * CHUNK.get())?;
        self.layout.piece_at(Offset(at)).filter(|piece| piece.entry == id)
    }
}

//! What an earlier run left is found again.
//!
//! Journalled chunks are read back and hashed, a few at a time, while the missing ones are moving
//! already. One that does not hash to its journalled digest is asked for like a missing one.

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
    files: BTreeMap<EntryId, Left>,
    queue: VecDeque<EntryId>,
    reading: usize,
}

#[derive(Debug, Default)]
struct Left {
    /// Chunks that are good, or may be: not to be asked for.
    chunks: BTreeSet<u32>,
    /// Of those, the ones to be read back, with what they should hash to.
    unread: BTreeMap<u32, Digest>,
    reading: BTreeMap<u32, Digest>,
}

impl Resumed {
    /// Whether this chunk of a file need not be asked for.
    pub(super) fn has(&self, id: EntryId, index: u64) -> bool {
        let index = u32::try_from(index).ok();
        let left = self.files.get(&id);
        left.zip(index).is_some_and(|(left, index)| left.chunks.contains(&index))
    }

    /// The file is done or failed.
    pub(super) fn forget(&mut self, id: EntryId) {
        if let Some(left) = self.files.remove(&id) {
            self.reading -= left.reading.len();
        }
    }

    /// Begins to read the next chunk back.
    fn next(&mut self) -> Option<(EntryId, u32)> {
        while self.reading < REHASH_WINDOW {
            let id = *self.queue.front()?;
            let next = self.files.get_mut(&id).and_then(|left| {
                let (index, digest) = left.unread.pop_first()?;
                left.reading.insert(index, digest);
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

    /// A chunk was read back; gives what it should have hashed to.
    fn read(&mut self, id: EntryId, index: u32) -> Option<Digest> {
        let digest = self.files.get_mut(&id)?.reading.remove(&index)?;
        self.reading -= 1;
        Some(digest)
    }

    fn lost(&mut self, id: EntryId, index: u32) {
        if let Some(left) = self.files.get_mut(&id) {
            left.chunks.remove(&index);
        }
    }
}

impl Sink {
    /// A file of several chunks begins to move: takes up what the journal knows of it.
    pub(super) fn resume(&mut self, id: EntryId) {
        let Some(item) = self.entries.get_mut(id) else { return };
        let key = item.key();
        let Some((number, chunks)) = self.journal.begin_file(&key, item.temporary, &mut self.out)
        else {
            return;
        };
        item.journal = Some(number);
        if chunks.is_empty() {
            return;
        }
        let mut left = Left { chunks: chunks.keys().copied().collect(), ..Left::default() };
        let mut trusted = Vec::new();
        for (index, chunk) in chunks {
            if self.options.resume == Resume::Trust && chunk.durable {
                trusted.push(index);
            } else {
                left.unread.insert(index, chunk.digest);
            }
        }
        self.resumed.files.insert(id, left);
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
                self.tell_present();
            }
        } else {
            self.resumed.lost(id, index);
            self.tally.again();
            self.journal.bad(number, index, &mut self.out);
            self.planner.add_again(chunk);
        }
    }

    /// A chunk of an earlier run is good.
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

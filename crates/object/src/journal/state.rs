//! The state that a journal's records describe.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{FORMAT, FileKey, Record, encode};
use crate::chunk::CHUNK_LEN;
use crate::digest::Digest;
use crate::path::RelPath;

/// The state of each journalled file. Applying each record as it is written gives the same state as
/// a replay of the journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalState {
    transfer: Option<[u8; 16]>,
    note: String,
    files: BTreeMap<u32, FileState>,
    by_path: HashMap<RelPath, u32>,
    /// Bytes of the paths of all files.
    path_bytes: u64,
    /// Chunks that the next `Durable` makes durable: those of this run that are not durable yet.
    fresh: BTreeSet<(u32, u32)>,
}

/// The state of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileState {
    /// Its number in the journal's records.
    pub id: u32,
    /// The file.
    pub key: FileKey,
    /// Its verified chunks.
    pub chunks: BTreeMap<u32, ChunkState>,
}

/// The state of one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkState {
    /// Its piece's digest.
    pub digest: Digest,
    /// Whether its bytes were on stable storage.
    pub durable: bool,
}

impl JournalState {
    /// The state of this file: same path, size and modification time.
    pub fn lookup(&self, key: &FileKey) -> Option<&FileState> {
        self.files.get(self.by_path.get(&key.path)?).filter(|file| file.key == *key)
    }

    /// The state of the file with this number.
    pub fn file(&self, id: u32) -> Option<&FileState> {
        self.files.get(&id)
    }

    /// All files, by number.
    pub fn files(&self) -> impl Iterator<Item = &FileState> {
        self.files.values()
    }

    /// A number for the next file, larger than all in use; `None` if they are exhausted.
    pub fn next_id(&self) -> Option<u32> {
        self.files.last_key_value().map_or(Some(0), |(last, _)| last.checked_add(1))
    }

    /// The transfer id of the latest run; `None` before the first `Begin`.
    pub const fn transfer(&self) -> Option<[u8; 16]> {
        self.transfer
    }

    /// The note of the latest run.
    pub fn note(&self) -> &str {
        &self.note
    }

    /// Number of files.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Bytes of the paths of all files.
    pub const fn path_bytes(&self) -> u64 {
        self.path_bytes
    }

    /// Whether there is no file.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Applies a record. An invalid one (a chunk of an unknown file, or beyond its end) changes
    /// nothing.
    pub fn apply(&mut self, record: &Record) {
        match record {
            Record::Begin { transfer, note, .. } => {
                // A sync of this run does not cover data that an earlier run left unsynced.
                self.fresh.clear();
                self.transfer = Some(*transfer);
                self.note = note[..note.floor_char_boundary(super::MAX_NOTE)].to_owned();
            }
            Record::File { id, key } => self.begin_file(*id, key),
            Record::Chunk { file, index, digest } => {
                if let Some(state) = self.files.get_mut(file)
                    && u64::from(*index) < state.key.size.div_ceil(CHUNK_LEN)
                {
                    let chunk = ChunkState { digest: *digest, durable: false };
                    state.chunks.insert(*index, chunk);
                    self.fresh.insert((*file, *index));
                }
            }
            Record::Durable => {
                for (file, index) in std::mem::take(&mut self.fresh) {
                    let state = self.files.get_mut(&file);
                    if let Some(chunk) = state.and_then(|s| s.chunks.get_mut(&index)) {
                        chunk.durable = true;
                    }
                }
            }
            Record::Forget { file } => self.forget(*file),
            Record::Bad { file, index } => {
                if let Some(state) = self.files.get_mut(file) {
                    state.chunks.remove(index);
                    self.fresh.remove(&(*file, *index));
                }
            }
        }
    }

    /// The shortest journal with the same state, to replace a long one. Empty if no run ever began.
    pub fn rewrite(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let Some(transfer) = self.transfer else { return out };
        let begin = Record::Begin { format: FORMAT, transfer, note: self.note.clone() };
        encode(&begin, &mut out);
        for file in self.files.values() {
            encode(&Record::File { id: file.id, key: file.key.clone() }, &mut out);
        }
        if self.put_chunks(Standing::Stale, &mut out) {
            encode(&begin, &mut out);
        }
        if self.put_chunks(Standing::Durable, &mut out) {
            encode(&Record::Durable, &mut out);
        }
        self.put_chunks(Standing::Fresh, &mut out);
        out
    }

    /// Writes the chunks with this standing; returns whether there were any.
    fn put_chunks(&self, which: Standing, out: &mut Vec<u8>) -> bool {
        let before = out.len();
        for file in self.files.values() {
            for (&index, chunk) in &file.chunks {
                if self.standing(file.id, index, chunk) == which {
                    encode(&Record::Chunk { file: file.id, index, digest: chunk.digest }, out);
                }
            }
        }
        out.len() > before
    }

    fn standing(&self, file: u32, index: u32, chunk: &ChunkState) -> Standing {
        match chunk.durable {
            true => Standing::Durable,
            false if self.fresh.contains(&(file, index)) => Standing::Fresh,
            false => Standing::Stale,
        }
    }

    /// A path has one temporary file, so a file of a new size or time replaces the previous one.
    /// The same file with the same number keeps its chunks.
    fn begin_file(&mut self, id: u32, key: &FileKey) {
        if self.files.get(&id).is_some_and(|file| file.key == *key) {
            return;
        }
        self.forget(id);
        if let Some(old) = self.by_path.get(&key.path).copied() {
            self.forget(old);
        }
        self.path_bytes += key.path.as_bytes().len() as u64;
        self.by_path.insert(key.path.clone(), id);
        self.files.insert(id, FileState { id, key: key.clone(), chunks: BTreeMap::new() });
    }

    fn forget(&mut self, id: u32) {
        if let Some(file) = self.files.remove(&id) {
            self.by_path.remove(&file.key.path);
            self.path_bytes -= file.key.path.as_bytes().len() as u64;
            // A number may be reused: fresh chunks of the old file do not belong to the new one.
            let mut rest = self.fresh.split_off(&(id, 0));
            if let Some(next) = id.checked_add(1) {
                self.fresh.append(&mut rest.split_off(&(next, 0)));
            }
        }
    }
}

/// The progress of a verified chunk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// On stable storage.
    Durable,
    /// Written by this run; the next `Durable` covers it.
    Fresh,
    /// Written by an earlier run that ended before its next `Durable`.
    Stale,
}

//! The journal that this run writes.
//!
//! A chunk's record is appended when the chunk is verified. While a sync is under way, records are
//! held back, because the `Durable` record that follows the sync covers all records before it. If
//! [`SYNC_BYTES`] of records accumulate during a sync, they are written and that sync gets no
//! `Durable` record; the next sync then covers them.

use std::collections::{BTreeMap, VecDeque};

use packtrain_object::journal::{FORMAT, encode, replay};
use packtrain_object::{CHUNK, ChunkState, Digest, FileKey, JournalState, Record, RelPath};
use packtrain_units::escape::hex;

use crate::action::SinkAction;
use crate::failure::{Failure, FailureKind};
use crate::limits::{MAX_JOURNALLED, MAX_JOURNALLED_PATHS, SYNC_BYTES};
use crate::message::{Options, Resume};

/// The note of a journal with files of several origins.
const SEVERAL_ORIGINS: &str = "several origins";

/// State of the journal, without the chunks of files of this run.
#[derive(Debug)]
pub(super) struct Journal {
    enabled: bool,
    begun: bool,
    /// Whether an earlier run left it.
    found: bool,
    transfer: [u8; 16],
    /// Whose files the journal has: the origin of this run, or [`SEVERAL_ORIGINS`].
    note: String,
    state: JournalState,
    /// The number of the next file. A number is not used again in the same run: records that are held
    /// back may be of a file that failed meanwhile, and would become those of another file.
    next_id: Option<u32>,
    buffering: Buffering,
}

#[derive(Debug, PartialEq)]
enum Buffering {
    /// No sync is under way.
    Off,
    /// Chunk records are held back until the sync ends.
    On { records: Vec<u8>, chunks: u64, unlimited: bool },
    /// The held records became too many and were written: this sync gets no `Durable` record.
    Overflowed,
}

impl Journal {
    pub(super) fn open(
        options: &Options,
        bytes: &[u8],
        transfer: [u8; 16],
        out: &mut VecDeque<SinkAction>,
    ) -> Result<Self, Failure> {
        let changes = !options.dry_run && !options.verify;
        let enabled = changes && options.resume != Resume::Off;
        let mut journal = Self {
            enabled,
            begun: false,
            found: false,
            transfer,
            note: hex(&options.extra.origin),
            state: JournalState::default(),
            next_id: Some(0),
            buffering: Buffering::Off,
        };
        if !enabled {
            if changes && !bytes.is_empty() {
                out.push_back(SinkAction::RemoveJournal);
            }
            return Ok(journal);
        }
        if !bytes.is_empty() {
            let replay = replay(bytes).map_err(|error| {
                let text = format!("{error}; move it away, or copy with --no-resume");
                Failure::new(FailureKind::TargetRefused, text)
            })?;
            if replay.state.transfer() != Some(transfer) {
                // With `--inplace` one target has one journal for all sources. Another source has
                // overwritten the data that this journal describes.
                out.push_back(SinkAction::RemoveJournal);
                return Ok(journal);
            }
            journal.state = replay.state;
            journal.next_id = journal.state.next_id();
            if journal.has_files() && journal.state.note() != journal.note {
                SEVERAL_ORIGINS.clone_into(&mut journal.note);
            }
            journal.state.apply(&journal.begin());
            (journal.begun, journal.found) = (true, true);
            out.push_back(SinkAction::RewriteJournal(journal.state.rewrite()));
        }
        Ok(journal)
    }

    /// Whether files of several chunks are journalled.
    pub(super) fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Whether an earlier run left the journal.
    pub(super) fn was_found(&self) -> bool {
        self.found
    }

    /// Whether files in the journal may be of another origin than this run.
    pub(super) fn has_other_origins(&self) -> bool {
        self.note == SEVERAL_ORIGINS
    }

    /// Whether the journal has files that are not complete.
    pub(super) fn has_files(&self) -> bool {
        !self.state.is_empty()
    }

    /// The files that are not complete. At the end of a run these are files that an earlier run began
    /// and this one did not need. If they are of this run's origin, the source has them no longer.
    pub(super) fn unfinished(&self) -> Vec<RelPath> {
        self.state.files().map(|file| file.key.path.clone()).collect()
    }

    /// Starts a file, if it is journalled. Returns its number and the durable chunks of an earlier run, if
    /// its `temporary` still exists. Others may be right in the page cache and lost on the disk: after a
    /// failed write-back the kernel keeps the page, takes it for clean, and tells the error once.
    pub(super) fn begin_file(
        &mut self,
        key: &FileKey,
        temporary: Option<u64>,
        out: &mut VecDeque<SinkAction>,
    ) -> Option<(u32, BTreeMap<u32, ChunkState>)> {
        if !self.enabled {
            return None;
        }
        let known = self.state.lookup(key).map(|file| file.id);
        if let (Some(id), Some(len)) = (known, temporary) {
            let mut chunks =
                self.state.file(id).map(|file| file.chunks.clone()).unwrap_or_default();
            chunks.retain(|&index, chunk| chunk.durable && chunk_end(index, key.size) <= len);
            // From here on the caller owns the chunks: keep only the fact that the file is
            // journalled.
            self.state.apply(&Record::Forget { file: id });
            self.state.apply(&Record::File { id, key: key.clone() });
            return Some((id, chunks));
        }
        if let Some(id) = known {
            self.append(&Record::Forget { file: id }, out);
        }
        if !has_room(self.state.len(), self.state.path_bytes(), &key.path) {
            return None;
        }
        let id = self.next_id?;
        self.next_id = id.checked_add(1);
        self.append(&Record::File { id, key: key.clone() }, out);
        Some((id, BTreeMap::new()))
    }

    /// Records a verified chunk.
    pub(super) fn chunk(
        &mut self,
        file: u32,
        index: u32,
        digest: Digest,
        out: &mut VecDeque<SinkAction>,
    ) {
        let record = Record::Chunk { file, index, digest };
        let Buffering::On { records, chunks, unlimited } = &mut self.buffering else {
            self.append(&record, out);
            return;
        };
        encode(&record, records);
        *chunks += 1;
        if !*unlimited && *chunks * CHUNK.get() >= SYNC_BYTES {
            out.push_back(SinkAction::Journal(std::mem::take(records)));
            self.buffering = Buffering::Overflowed;
        }
    }

    /// Records that the digest of a chunk of an earlier run does not match the journal.
    pub(super) fn invalidate(&mut self, file: u32, index: u32, out: &mut VecDeque<SinkAction>) {
        self.append(&Record::Bad { file, index }, out);
    }

    /// Removes files that are durable under their final names, or whose chunks are no longer valid.
    pub(super) fn forget(&mut self, files: &[u32], out: &mut VecDeque<SinkAction>) {
        let mut bytes = Vec::new();
        for &file in files {
            let record = Record::Forget { file };
            self.state.apply(&record);
            encode(&record, &mut bytes);
        }
        if !bytes.is_empty() {
            out.push_back(SinkAction::Journal(bytes));
        }
    }

    /// A sync begins. `unlimited`: the sync before it was given up, so this one holds records without
    /// a limit.
    pub(super) fn sync_begins(&mut self, unlimited: bool) {
        self.buffering = Buffering::On { records: Vec::new(), chunks: 0, unlimited };
    }

    /// A sync succeeded: everything journalled before it began is durable. Returns whether this
    /// could be recorded.
    pub(super) fn synced(&mut self, out: &mut VecDeque<SinkAction>) -> bool {
        let buffering = std::mem::replace(&mut self.buffering, Buffering::Off);
        let Buffering::On { records, .. } = buffering else { return false };
        if self.begun {
            self.append(&Record::Durable, out);
        }
        if !records.is_empty() {
            out.push_back(SinkAction::Journal(records));
        }
        true
    }

    fn begin(&self) -> Record {
        Record::Begin { format: FORMAT, transfer: self.transfer, note: self.note.clone() }
    }

    fn append(&mut self, record: &Record, out: &mut VecDeque<SinkAction>) {
        if !self.begun {
            // A crash may leave any part of data that was not synced, and a file that does not
            // start with a journal header is refused. So the header is synced before anything
            // follows.
            self.begun = true;
            self.state.apply(&self.begin());
            out.push_back(SinkAction::RewriteJournal(self.state.rewrite()));
        }
        let mut bytes = Vec::new();
        encode(record, &mut bytes);
        if !matches!(record, Record::Chunk { .. } | Record::Bad { .. } | Record::Durable) {
            self.state.apply(record);
        }
        out.push_back(SinkAction::Journal(bytes));
    }
}

/// Whether a journal of so many files, whose paths have so many bytes, takes a file with this path.
fn has_room(files: usize, path_bytes: u64, path: &RelPath) -> bool {
    let path_bytes = path_bytes + path.as_bytes().len() as u64;
    files < MAX_JOURNALLED && path_bytes <= MAX_JOURNALLED_PATHS
}

/// Offset in the file at which this chunk ends.
fn chunk_end(index: u32, size: u64) -> u64 {
    (u64::from(index) + 1).saturating_mul(CHUNK.get()).min(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_beyond_the_limits_are_not_journalled() {
        let path = RelPath::new(vec![b'p'; 100]).unwrap();
        assert!(has_room(MAX_JOURNALLED - 1, MAX_JOURNALLED_PATHS - 100, &path));
        assert!(!has_room(MAX_JOURNALLED, 0, &path));
        assert!(!has_room(0, MAX_JOURNALLED_PATHS - 99, &path));
    }
}

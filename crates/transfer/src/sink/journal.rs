//! The journal as this run writes it.
//!
//! A chunk's record is appended as soon as the chunk is verified. Only while a sync is under way
//! are records kept back, because the `Durable` record that follows it speaks for all records
//! before it. A sync that takes too long loses that right: then the records go out, and the next
//! sync speaks for them.

use std::collections::{BTreeMap, VecDeque};

use packtrain_object::journal::{FORMAT, encode, replay};
use packtrain_object::{CHUNK, ChunkState, Digest, FileKey, JournalState, Record};

use crate::action::SinkAction;
use crate::failure::{Failure, FailureKind};
use crate::limits::SYNC_BYTES;
use crate::message::{Options, Resume};

/// What is journalled, without the chunks of files of this run.
#[derive(Debug)]
pub(super) struct Journal {
    enabled: bool,
    begun: bool,
    transfer: [u8; 16],
    state: JournalState,
    holding: Holding,
}

#[derive(Debug, PartialEq)]
enum Holding {
    /// No sync is under way.
    No,
    /// Chunk records wait for the sync to end.
    Yes { records: Vec<u8>, chunks: u64, patient: bool },
    /// They could not wait: this sync will not make a `Durable`.
    GaveUp,
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
            transfer,
            state: JournalState::default(),
            holding: Holding::No,
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
                // In place one target has one journal, whatever its source: another source wrote
                // over what this says.
                out.push_back(SinkAction::RemoveJournal);
                return Ok(journal);
            }
            journal.state = replay.state;
            journal.state.apply(&journal.begin());
            journal.begun = true;
            out.push_back(SinkAction::RewriteJournal(journal.state.rewrite()));
        }
        Ok(journal)
    }

    /// Whether files of several chunks are journalled at all.
    pub(super) fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Whether it knows of files that are not complete.
    pub(super) fn has_files(&self) -> bool {
        !self.state.is_empty()
    }

    /// A file begins to move. Gives its number and what is left of it from an earlier run, if
    /// its `temporary` is still there.
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
            chunks.retain(|&index, _| chunk_end(index, key.size) <= len);
            // The chunks are the caller's from here on: keep only that the file is journalled.
            self.state.apply(&Record::Forget { file: id });
            self.state.apply(&Record::File { id, key: key.clone() });
            return Some((id, chunks));
        }
        if let Some(id) = known {
            self.append(&Record::Forget { file: id }, out);
        }
        let id = self.state.next_id()?;
        self.append(&Record::File { id, key: key.clone() }, out);
        Some((id, BTreeMap::new()))
    }

    /// A chunk is verified.
    pub(super) fn chunk(
        &mut self,
        file: u32,
        index: u32,
        digest: Digest,
        out: &mut VecDeque<SinkAction>,
    ) {
        let record = Record::Chunk { file, index, digest };
        let Holding::Yes { records, chunks, patient } = &mut self.holding else {
            self.append(&record, out);
            return;
        };
        encode(&record, records);
        *chunks += 1;
        if !*patient && *chunks * CHUNK.get() >= SYNC_BYTES {
            out.push_back(SinkAction::Journal(std::mem::take(records)));
            self.holding = Holding::GaveUp;
        }
    }

    /// A chunk of an earlier run does not hash to what was journalled.
    pub(super) fn bad(&mut self, file: u32, index: u32, out: &mut VecDeque<SinkAction>) {
        self.append(&Record::Bad { file, index }, out);
    }

    /// Files are durable under their names, or what was known of them counts no more.
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

    /// A sync begins. `patient`: the one before gave up, so this one may take its time.
    pub(super) fn sync_begins(&mut self, patient: bool) {
        self.holding = Holding::Yes { records: Vec::new(), chunks: 0, patient };
    }

    /// The sync ended well: everything journalled before it began is durable. Tells whether that
    /// could be said.
    pub(super) fn synced(&mut self, out: &mut VecDeque<SinkAction>) -> bool {
        let holding = std::mem::replace(&mut self.holding, Holding::No);
        let Holding::Yes { records, .. } = holding else { return false };
        if self.begun {
            self.append(&Record::Durable, out);
        }
        if !records.is_empty() {
            out.push_back(SinkAction::Journal(records));
        }
        true
    }

    fn begin(&self) -> Record {
        Record::Begin { format: FORMAT, transfer: self.transfer, note: String::new() }
    }

    fn append(&mut self, record: &Record, out: &mut VecDeque<SinkAction>) {
        if !self.begun {
            // A crash may leave anything of what was not synced, and a journal that does not
            // begin like one is refused: so its beginning is synced before anything follows.
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

/// Where a chunk of a file of this size ends in it.
fn chunk_end(index: u32, size: u64) -> u64 {
    (u64::from(index) + 1).saturating_mul(CHUNK.get()).min(size)
}

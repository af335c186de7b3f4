//! The sink: the end that receives and writes files.
//!
//! An entry passes through the modules in this order:
//!
//! - [`intake`] accepts segments of entries that were requested ([`Requested`]) and whose parents
//!   were announced ([`announced`]).
//! - [`examine`] decides what an entry needs.
//! - [`links`] makes further names of a file.
//! - [`roots`] compares digests of whole files.
//! - [`resume`] finds the chunks of an earlier run.
//! - [`plan`] requests ranges, and [`changed`] pieces of files with an old version.
//! - [`verify`] compares digests of pieces.
//! - [`durable`] syncs, renames and journals.
//! - [`finish`] deletes, sets metadata and ends the transfer.
//!
//! [`fail`] removes failed entries from all of them. Each module has its own state; this file
//! routes events between them.

mod announced;
mod changed;
mod durable;
mod entries;
mod examine;
mod fail;
mod finish;
mod intake;
mod journal;
mod links;
mod plan;
mod resume;
mod roots;
mod tally;
mod verify;

use std::collections::VecDeque;

use packtrain_object::{ChunkIndex, Digest, Entry, EntryId, EntryKind, Layout, MAX_PATH};
use packtrain_units::{ByteCount, Time};

use crate::action::{PieceHash, SinkAction, TargetState};
use crate::failure::{Failure, FailureKind, protocol};
use crate::limits::{MAX_EMPTY_SOURCES, MAX_FAILED};
use crate::message::{Message, Options, unexpected};
use crate::requested::Requested;
use announced::Announced;
use changed::Changed;
use durable::Durability;
use entries::{Entries, Stage};
use finish::{Directories, Phase};
use intake::Intake;
use journal::Journal;
use links::Links;
use plan::Planner;
use resume::Resumed;
use roots::Roots;
use tally::Tally;
use verify::Chunks;

/// The sink's state machine.
#[derive(Debug)]
pub struct Sink {
    options: Options,
    requested: Requested,
    announced: Announced,
    layout: Layout,
    entries: Entries,
    intake: Intake,
    roots: Roots,
    links: Links,
    journal: Journal,
    resumed: Resumed,
    planner: Planner,
    chunks: Chunks,
    changed: Changed,
    durability: Durability,
    directories: Directories,
    tally: Tally,
    phase: Phase,
    /// Whether the source has accounted for all that it was asked for.
    accounted: bool,
    /// Whether the source told what it removed.
    told_removed: bool,
    /// Records of the journal that follow the requests of the same event.
    after_requests: VecDeque<SinkAction>,
    /// The time of the last event that had one: some answers of the driver have no time.
    now: Time,
    out: VecDeque<SinkAction>,
}

/// Progress of a sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkTotals {
    /// Entries announced.
    pub entries: u64,
    /// Whether the manifest is complete.
    pub manifest_done: bool,
    /// Bytes of all files announced; a stream counts when it has ended.
    pub known: ByteCount,
    /// Whether a stream that has not ended is among them.
    pub stream_open: bool,
    /// Of those, bytes that are already here.
    pub present: ByteCount,
    /// Bytes requested, repeats included.
    pub needed: ByteCount,
    /// Bytes moved and verified in this run.
    pub verified: ByteCount,
    /// Bytes durable, including those that were already here.
    pub durable: ByteCount,
    /// Files complete under their final names.
    pub files: u64,
    /// Files announced.
    pub files_known: u64,
    /// Of those, files that were found here unchanged.
    pub files_present: u64,
}

impl Sink {
    /// A sink for one transfer that accepts what was `requested` and nothing else. `journal` is the
    /// content of the journal file, empty if there is none.
    ///
    /// # Errors
    /// The content is not a valid journal.
    pub fn new(
        options: Options,
        requested: Requested,
        journal: &[u8],
        transfer_id: [u8; 16],
        now: Time,
    ) -> Result<Self, Failure> {
        let mut out = VecDeque::new();
        let journal = Journal::open(&options, journal, transfer_id, &mut out)?;
        Ok(Self {
            options,
            requested,
            announced: Announced::default(),
            layout: Layout::new(),
            entries: Entries::default(),
            intake: Intake::default(),
            roots: Roots::default(),
            links: Links::default(),
            journal,
            resumed: Resumed::default(),
            planner: Planner::default(),
            chunks: Chunks::default(),
            changed: Changed::default(),
            durability: Durability::default(),
            directories: Directories::default(),
            tally: Tally::default(),
            phase: Phase::Running,
            accounted: false,
            told_removed: false,
            after_requests: VecDeque::new(),
            now,
            out,
        })
    }

    /// A message for the state machine arrived; the driver handles others itself. On an error the
    /// transfer is already cancelled.
    pub fn on_message(&mut self, now: Time, message: Message) -> Result<(), Failure> {
        self.now = now;
        let taken = match self.phase {
            Phase::Running => self.take_message(message),
            Phase::Deleting | Phase::Naming { .. } | Phase::Closing { .. } => {
                self.take_late_message(message)
            }
            Phase::AwaitBye => return self.take_last_message(message),
            // Late messages are ignored.
            Phase::Ending { .. } | Phase::Over => return Ok(()),
        };
        if let Err(failure) = &taken {
            self.end(failure.clone(), true);
        }
        self.advance();
        taken
    }

    fn take_message(&mut self, message: Message) -> Result<(), Failure> {
        match message {
            Message::Manifest(bytes) => self.take_manifest(&bytes),
            Message::ManifestEnd { failures, .. } if failures.len() > MAX_FAILED => {
                Err(protocol("more failures than are told"))
            }
            Message::ManifestEnd { empty, .. } if empty.len() > MAX_EMPTY_SOURCES => {
                Err(protocol("more empty sources than are told"))
            }
            Message::ManifestEnd { entries, failed, vanished, failures, empty } => {
                self.tally.failures.add_reported(failures, failed, vanished);
                self.directories.spare(empty);
                self.take_manifest_end(entries)
            }
            Message::Rules { .. } if !self.options.reports_rules() => {
                Err(protocol("filter rules in a transfer that needs none"))
            }
            Message::Rules { dir, .. } if dir.len() > MAX_PATH => {
                Err(protocol("filter rules of a path that no directory has"))
            }
            Message::Rules { number, dir, text }
                if self.intake.knows(EntryId(0)) && !self.intake.is_ended() =>
            {
                self.out.push_back(SinkAction::AddRules { number, dir, text });
                Ok(())
            }
            Message::Digests { chunk, pieces } => self.take_digests(chunk, &pieces),
            Message::Hole(range) => self.take_hole(range),
            Message::Same(start) => self.take_same(start),
            Message::SourceFailed { entry, failure } => {
                self.check_known(entry)?;
                self.fail_at_source(entry, failure.bounded());
                Ok(())
            }
            Message::StreamEnd { entry, size } => self.take_stream_end(entry, size),
            Message::Root { .. } if !self.options.checksum && !self.options.verify => {
                Err(protocol("a digest in a transfer that compares none"))
            }
            Message::Root { entry, digest } => {
                self.check_known(entry)?;
                self.take_root(entry, digest);
                Ok(())
            }
            Message::Refused(failure) | Message::Cancel(failure) => {
                self.end(failure.bounded(), false);
                Ok(())
            }
            Message::Bye => {
                let text = "the sending end left before it was done";
                self.end(Failure::new(FailureKind::Temporary, text), false);
                Ok(())
            }
            other => Err(unexpected(&other)),
        }
    }

    fn check_known(&self, id: EntryId) -> Result<(), Failure> {
        if self.intake.knows(id) { Ok(()) } else { Err(protocol("an entry that was not sent")) }
    }

    /// Answer to `Examine`: the states of the targets.
    pub fn on_examined(&mut self, now: Time, first: EntryId, states: Vec<TargetState>) {
        self.now = now;
        if self.phase.is_open() {
            self.take_examined(first, &states);
        }
        self.advance();
    }

    /// Answer to a `Make…` action.
    pub fn on_made(&mut self, id: EntryId, result: Result<(), Failure>) {
        let stage = self.entries.get(id).map(|item| item.stage);
        if !self.phase.is_open() || stage != Some(Stage::Making) {
            return;
        }
        match result {
            Ok(()) => self.made(id),
            Err(failure) => self.fail_entry(id, failure, true),
        }
        self.advance();
    }

    /// All expected pieces of a chunk are written; `hashes` are the digests of the bytes written.
    pub fn on_written(&mut self, chunk: ChunkIndex, hashes: Vec<PieceHash>) {
        if self.phase.is_open() {
            self.take_hashes(chunk, &hashes);
        }
        self.advance();
    }

    /// The data of an entry cannot be written.
    pub fn on_write_failed(&mut self, id: EntryId, failure: Failure) {
        if self.phase.is_open() {
            self.fail_entry(id, failure, true);
        }
        self.advance();
    }

    /// Answer to `Rehash`; none if the piece could not be read.
    pub fn on_rehashed(&mut self, chunk: ChunkIndex, id: EntryId, digest: Option<Digest>) {
        if self.phase.is_open() {
            self.take_rehashed(chunk, id, digest);
        }
        self.advance();
    }

    /// Answer to `HashTarget`; none if the file could not be read.
    pub fn on_target_root(&mut self, id: EntryId, digest: Option<Digest>) {
        if self.phase.is_open() {
            self.take_target_root(id, digest);
        }
        self.advance();
    }

    /// Answer to `Sync`.
    pub fn on_synced(&mut self, token: u64) {
        self.take_synced(token);
        self.advance();
    }

    /// A `Sync` or `JournalSync` failed. The data it covered may be lost, and a later successful
    /// sync does not prove otherwise. The transfer ends.
    pub fn on_sync_failed(&mut self, token: u64, failure: Failure) {
        self.take_sync_failed(token, failure);
        self.advance();
    }

    /// Answer to `Commit` for one entry.
    pub fn on_committed(&mut self, id: EntryId, result: Result<(), Failure>) {
        self.take_committed(id, result);
        self.advance();
    }

    /// Answer to `JournalSync`.
    pub fn on_journal_synced(&mut self, token: u64) {
        self.take_journal_synced(token);
        self.advance();
    }

    /// Answer to `Delete`: the paths that were removed, or that could not be.
    pub fn on_deleted(&mut self, paths: Vec<(Vec<u8>, Result<(), Failure>)>) {
        self.take_deleted(paths);
        self.advance();
    }

    /// Paths that were removed, or could not be, to make room for entries. Called before the answer
    /// about these entries.
    pub fn on_removed(&mut self, paths: Vec<(Vec<u8>, Result<(), Failure>)>) {
        self.take_removed(paths);
    }

    /// The source has sent all that it was asked for and has accounted for it. Its `Bye` would say
    /// nothing more, so the transfer ends with `Finished`: a round trip earlier.
    pub fn on_accounted(&mut self) {
        self.accounted = true;
        self.end_if_accounted();
    }

    /// Number of entries whose owner or group could not be set.
    pub fn on_not_owned(&mut self, entries: u64) {
        self.tally.summary.not_owned = entries;
    }

    /// The time of `poll_timeout` has come.
    pub fn on_timeout(&mut self, now: Time) {
        self.now = now;
        self.advance();
    }

    /// When to call `on_timeout` next.
    pub fn poll_timeout(&self) -> Option<Time> {
        let sync = self.durability.poll_timeout();
        match self.phase {
            Phase::Over => None,
            _ => [sync, self.tally.poll_timeout()].into_iter().flatten().min(),
        }
    }

    /// Number of entries, chunks, ranges and actions held. Tests check that completed ones are
    /// released.
    #[doc(hidden)]
    pub fn held(&self) -> usize {
        let planned =
            self.intake.held() + self.planner.held() + self.chunks.held() + self.changed.held();
        self.entries.len() + planned + self.links.held() + self.tally.held() + self.out.len()
    }

    /// The next action.
    pub fn poll_action(&mut self) -> Option<SinkAction> {
        self.out.pop_front()
    }

    /// An entry that is not complete.
    pub fn entry(&self, id: EntryId) -> Option<&Entry> {
        self.entries.get(id).map(|item| &item.entry)
    }

    /// Whether all bytes of an entry are verified, and it waits for its name.
    pub fn is_verified(&self, id: EntryId) -> bool {
        let stage = self.entries.get(id).map(|item| item.stage);
        matches!(stage, Some(Stage::Complete | Stage::Committing))
    }

    /// Number of entries that were changed in any way.
    pub fn changed(&self) -> u64 {
        self.tally.summary.changed
    }

    /// The progress.
    pub fn totals(&self) -> SinkTotals {
        SinkTotals {
            entries: self.intake.count(),
            manifest_done: self.intake.is_ended(),
            stream_open: self.layout.stream_open(),
            ..self.tally.totals()
        }
    }

    /// Ends the transfer early. Verified data is made durable first, then `Finished` follows.
    pub fn cancel(&mut self, now: Time, failure: Failure) {
        self.now = now;
        self.end(failure, true);
        self.advance();
    }

    fn send(&mut self, message: Message) {
        self.out.push_back(SinkAction::Send(message));
    }

    /// Starts all work that is possible now. Called after every event.
    fn advance(&mut self) {
        let open = self.phase.is_open();
        if open {
            self.answer_if_kept_up();
            self.plan_more();
        }
        // The first record of a journal is synced, which the first byte need not wait for.
        self.out.append(&mut self.after_requests);
        if open {
            self.rehash_more();
            self.compare_more();
        }
        self.sync_if_due();
        self.send_due_reports();
        self.advance_phase();
    }

    fn made(&mut self, id: EntryId) {
        let Some(item) = self.entries.get(id) else { return };
        match item.entry.kind {
            EntryKind::File { .. } | EntryKind::Stream => self.complete(id),
            // The directory that it is in may have no name yet. The commit tells whether it got one.
            EntryKind::Symlink { .. } if self.options.removes_source() => self.complete(id),
            EntryKind::Directory | EntryKind::Symlink { .. } => {
                self.durability.touch(self.now);
                self.report_moved(id);
                self.done(id);
            }
        }
    }

    /// The entry matches the source. Directories get their metadata at the end.
    fn done(&mut self, id: EntryId) {
        let Some(item) = self.entries.remove(id) else { return };
        self.tally.summary.entries += 1;
        self.named_in_group(id, item.group, &item.entry.path);
        if item.entry.kind == EntryKind::Directory {
            self.directories.made(id, item.entry);
        }
    }
}

#[cfg(test)]
mod tests;

//! The end that receives and writes.
//!
//! Its parts, in the order in which an entry meets them: [`intake`] takes segments of what was
//! requested ([`Requested`]) and hangs together ([`announced`]), [`examine`]
//! decides what an entry needs, [`roots`] compares digests of whole files, [`resume`] finds again
//! what an earlier run left, [`plan`] asks for ranges, [`verify`] compares digests of pieces,
//! [`durable`] syncs, renames and journals, [`finish`] deletes, settles and says goodbye. [`fail`]
//! takes entries out of all of them. Each part has its own state; this file routes between them.

mod announced;
mod durable;
mod entries;
mod examine;
mod fail;
mod finish;
mod intake;
mod journal;
mod plan;
mod resume;
mod roots;
mod tally;
mod verify;

use std::collections::VecDeque;

use packtrain_object::{ChunkIndex, Digest, Entry, EntryId, EntryKind, Layout};
use packtrain_units::{ByteCount, Time};

use crate::action::{PieceHash, SinkAction, TargetState};
use crate::failure::{Failure, FailureKind, protocol};
use crate::limits::{MAX_EMPTY_SOURCES, MAX_FAILED};
use crate::message::{Message, Options, unexpected};
use crate::requested::Requested;
use announced::Announced;
use durable::Durability;
use entries::{Entries, Stage};
use finish::{Directories, Phase};
use intake::Intake;
use journal::Journal;
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
    journal: Journal,
    resumed: Resumed,
    planner: Planner,
    chunks: Chunks,
    durability: Durability,
    directories: Directories,
    tally: Tally,
    phase: Phase,
    /// The latest time heard of: some answers of the driver come without one.
    now: Time,
    out: VecDeque<SinkAction>,
}

/// How far a sink is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkTotals {
    /// Entries announced so far.
    pub entries: u64,
    /// Whether all are.
    pub manifest_done: bool,
    /// Bytes of all files announced so far; a stream counts when it ended.
    pub known: ByteCount,
    /// Whether a stream is among them that has not ended.
    pub stream_open: bool,
    /// Of those, bytes found here already.
    pub present: ByteCount,
    /// Bytes asked for so far, repeats included.
    pub needed: ByteCount,
    /// Bytes moved in this run and verified.
    pub verified: ByteCount,
    /// Bytes durable, those found here included.
    pub durable: ByteCount,
    /// Files complete under their names.
    pub files: u64,
}

impl Sink {
    /// A sink for one transfer that takes what was `requested` and nothing else. `journal` is what
    /// the journal's file holds, or nothing.
    ///
    /// # Errors
    /// If that file is not a journal of ours.
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
            journal,
            resumed: Resumed::default(),
            planner: Planner::default(),
            chunks: Chunks::default(),
            durability: Durability::default(),
            directories: Directories::default(),
            tally: Tally::default(),
            phase: Phase::Running,
            now,
            out,
        })
    }

    /// A message came, of those that are not the driver's own. After an error the transfer is
    /// cancelled already.
    pub fn on_message(&mut self, now: Time, message: Message) -> Result<(), Failure> {
        self.now = now;
        let taken = match self.phase {
            Phase::Running => self.take_message(message),
            Phase::Deleting | Phase::Closing { .. } => self.take_late_message(message),
            Phase::AwaitBye => return self.take_last_message(message),
            // Nothing that comes matters any more.
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
                self.tally.failures.note_told(failures, failed, vanished);
                self.directories.spare(empty);
                self.take_manifest_end(entries)
            }
            Message::Digests { chunk, pieces } => self.take_digests(chunk, &pieces),
            Message::Hole(range) => self.take_hole(range),
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

    /// The targets of the entries of an `Examine` were looked at.
    pub fn on_examined(&mut self, now: Time, first: EntryId, states: Vec<TargetState>) {
        self.now = now;
        if self.phase.is_open() {
            self.take_examined(first, &states);
        }
        self.advance();
    }

    /// What a `Make…` asked for was made, or not.
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

    /// Expected pieces of a chunk are written; `hashes` are digests of what was written.
    pub fn on_written(&mut self, chunk: ChunkIndex, hashes: Vec<PieceHash>) {
        if self.phase.is_open() {
            self.take_hashes(chunk, &hashes);
        }
        self.advance();
    }

    /// An entry's data cannot be written.
    pub fn on_write_failed(&mut self, id: EntryId, failure: Failure) {
        if self.phase.is_open() {
            self.fail_entry(id, failure, true);
        }
        self.advance();
    }

    /// A piece that a `Rehash` named was read; none if it could not be.
    pub fn on_rehashed(&mut self, chunk: ChunkIndex, id: EntryId, digest: Option<Digest>) {
        if self.phase.is_open() {
            self.take_rehashed(chunk, id, digest);
        }
        self.advance();
    }

    /// A target that a `HashTarget` named was read; none if it could not be.
    pub fn on_target_root(&mut self, id: EntryId, digest: Option<Digest>) {
        if self.phase.is_open() {
            self.take_target_root(id, digest);
        }
        self.advance();
    }

    /// A `Sync` is done.
    pub fn on_synced(&mut self, token: u64) {
        self.take_synced(token);
        self.advance();
    }

    /// A `Sync` or `JournalSync` failed: what it covered is not known to be safe, and after a
    /// failed sync nothing ever will be. The transfer ends.
    pub fn on_sync_failed(&mut self, token: u64, failure: Failure) {
        self.take_sync_failed(token, failure);
        self.advance();
    }

    /// An entry of a `Commit` has its name, or not.
    pub fn on_committed(&mut self, id: EntryId, result: Result<(), Failure>) {
        self.take_committed(id, result);
        self.advance();
    }

    /// A `JournalSync` is done.
    pub fn on_journal_synced(&mut self, token: u64) {
        self.take_journal_synced(token);
        self.advance();
    }

    /// What a `Delete` removed, or could not.
    pub fn on_deleted(&mut self, paths: Vec<(Vec<u8>, Result<(), Failure>)>) {
        self.take_deleted(paths);
        self.advance();
    }

    /// What was removed, or could not be, to make room for entries, before the answer about these.
    pub fn on_removed(&mut self, paths: Vec<(Vec<u8>, Result<(), Failure>)>) {
        self.take_removed(paths);
    }

    /// So many entries of those that have their metadata could not get owner or group.
    pub fn on_not_owned(&mut self, entries: u64) {
        self.tally.summary.not_owned = entries;
    }

    /// Time passed.
    pub fn on_timeout(&mut self, now: Time) {
        self.now = now;
        self.advance();
    }

    /// When `on_timeout` is wanted next.
    pub fn poll_timeout(&self) -> Option<Time> {
        let sync = self.durability.poll_timeout();
        match self.phase {
            Phase::Over => None,
            _ => [sync, self.tally.poll_timeout()].into_iter().flatten().min(),
        }
    }

    /// Entries, chunks, ranges and actions that it holds now. For tests: what is done is let go.
    #[doc(hidden)]
    pub fn held(&self) -> usize {
        let planned = self.intake.held() + self.planner.held() + self.chunks.held();
        self.entries.len() + planned + self.tally.held() + self.out.len()
    }

    /// What to do next.
    pub fn poll_action(&mut self) -> Option<SinkAction> {
        self.out.pop_front()
    }

    /// An entry that is not done yet.
    pub fn entry(&self, id: EntryId) -> Option<&Entry> {
        self.entries.get(id).map(|item| &item.entry)
    }

    /// How far it is.
    pub fn totals(&self) -> SinkTotals {
        SinkTotals {
            entries: self.intake.count(),
            manifest_done: self.intake.is_ended(),
            stream_open: self.layout.stream_open(),
            ..self.tally.totals()
        }
    }

    /// Ends the transfer early: what is verified is made durable first, then `Finished` comes.
    pub fn cancel(&mut self, now: Time, failure: Failure) {
        self.now = now;
        self.end(failure, true);
        self.advance();
    }

    fn send(&mut self, message: Message) {
        self.out.push_back(SinkAction::Send(message));
    }

    /// Lets every part do what it can now. Called after everything that happens.
    fn advance(&mut self) {
        if self.phase.is_open() {
            self.plan_more();
            self.rehash_more();
            self.compare_more();
        }
        self.sync_if_due();
        self.tell();
        self.advance_phase();
    }

    fn made(&mut self, id: EntryId) {
        let Some(item) = self.entries.get(id) else { return };
        match item.entry.kind {
            EntryKind::File { .. } | EntryKind::Stream => self.complete(id),
            EntryKind::Directory | EntryKind::Symlink { .. } => {
                self.durability.touch(self.now);
                self.report_moved(id);
                self.done(id);
            }
        }
    }

    /// The entry is as the source has it; directories still get their metadata at the end.
    fn done(&mut self, id: EntryId) {
        let Some(item) = self.entries.remove(id) else { return };
        self.tally.summary.entries += 1;
        if item.entry.kind == EntryKind::Directory {
            self.directories.made(id, item.entry);
        }
    }
}

#[cfg(test)]
mod tests;

//! The end: well, with deletion, metadata of directories and a goodbye; or early, with what is
//! verified made durable first.

use std::collections::VecDeque;

use packtrain_object::{Entry, EntryId, EntryKind};

use super::Sink;
use crate::action::{DeletePlan, FileReport, Outcome, SinkAction};
use crate::failure::{Failure, FailureKind};
use crate::limits::SETTLE_BATCH;
use crate::message::{Message, Options, unexpected};

/// How far the transfer as a whole is.
#[derive(Debug)]
pub(super) enum Phase {
    /// Entries come and are not all done.
    Running,
    /// All is done; what is not in the source is being deleted.
    Deleting,
    /// The last sync of names and journal.
    Closing { token: u64 },
    /// The source was told; it says goodbye.
    AwaitBye,
    /// It ends early; what is verified becomes durable.
    Ending { failure: Failure, tell: bool },
    /// `Finished` was said.
    Over,
}

impl Phase {
    /// Whether entries are still worked on.
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Running)
    }

    pub(super) fn is_closing(&self, token: u64) -> bool {
        matches!(self, Self::Closing { token: own } if *own == token)
    }
}

/// What is done to metadata and to what is too many, at the end.
#[derive(Debug, Default)]
pub(super) struct Directories {
    /// Directories in the order in which they were made: parents first.
    made: Vec<(EntryId, Entry)>,
    /// Unchanged files whose metadata is to be set.
    settle: Vec<(EntryId, Entry)>,
    /// All paths of the source, if the rest is to be deleted.
    keep: Vec<Vec<u8>>,
    /// Paths of the sources that brought no file.
    spared: Vec<Vec<u8>>,
    /// Entries that are no directories.
    files: u64,
}

impl Directories {
    /// An entry was announced.
    pub(super) fn announce(&mut self, options: &Options, entry: &Entry) {
        self.files += u64::from(entry.kind != EntryKind::Directory);
        if options.delete {
            self.keep.push(entry.path.as_bytes().to_vec());
        }
    }

    /// The sources at these paths brought no file: more likely their disk is not mounted than that
    /// everything is to be deleted.
    pub(super) fn spare(&mut self, paths: Vec<Vec<u8>>) {
        self.spared = paths;
    }

    /// A directory is there.
    pub(super) fn made(&mut self, id: EntryId, entry: Entry) {
        self.made.push((id, entry));
    }

    /// A file with the right content is to get its metadata.
    pub(super) fn settle(&mut self, id: EntryId, entry: Entry, out: &mut VecDeque<SinkAction>) {
        self.settle.push((id, entry));
        if self.settle.len() >= SETTLE_BATCH {
            out.push_back(SinkAction::Settle(std::mem::take(&mut self.settle)));
        }
    }

    /// Everything that is left but the destination itself: files, then directories, children
    /// before parents.
    fn settle_all(&mut self, out: &mut VecDeque<SinkAction>) {
        let mut all = std::mem::take(&mut self.settle);
        let (root, mut made) =
            std::mem::take(&mut self.made).into_iter().partition(|(_, entry)| entry.path.is_root());
        self.made = root;
        made.sort_unstable_by_key(|(id, _)| std::cmp::Reverse(*id));
        all.append(&mut made);
        for batch in all.chunks(SETTLE_BATCH) {
            out.push_back(SinkAction::Settle(batch.to_vec()));
        }
    }

    /// The destination itself, when nothing is made or removed in it any more.
    fn settle_root(&mut self, out: &mut VecDeque<SinkAction>) {
        let root = std::mem::take(&mut self.made);
        if !root.is_empty() {
            out.push_back(SinkAction::Settle(root));
        }
    }

    fn delete_plan(&mut self, options: &Options) -> DeletePlan {
        let mut keep = std::mem::take(&mut self.keep);
        keep.sort_unstable();
        let spared =
            if options.force_delete { Vec::new() } else { std::mem::take(&mut self.spared) };
        DeletePlan { keep, spared, limit: options.max_delete, dry_run: options.dry_run }
    }
}

impl Sink {
    /// Goes on to the next phase when this one is over.
    pub(super) fn advance_phase(&mut self) {
        if !self.durability.is_idle() {
            return;
        }
        if self.phase.is_open() && self.intake.is_ended() && self.entries.len() == 0 {
            self.begin_end();
        }
        if !matches!(self.phase, Phase::Ending { .. }) {
            return;
        }
        let phase = std::mem::replace(&mut self.phase, Phase::Over);
        if let Phase::Ending { failure, tell } = phase {
            if tell {
                self.send(Message::Cancel(failure.clone()));
            }
            self.finished(Some(failure));
        }
    }

    fn begin_end(&mut self) {
        let clean = self.tally.failures.count() == 0;
        if !self.options.delete || !clean || self.options.verify {
            self.close();
            return;
        }
        if self.directories.files == 0 && !self.options.force_delete {
            let text = "the source has no file and --delete would delete every file at the target; \
                        use --force-delete if that is meant";
            self.end(Failure::new(FailureKind::Usage, text), true);
            return;
        }
        self.phase = Phase::Deleting;
        let plan = self.directories.delete_plan(&self.options);
        self.out.push_back(SinkAction::Delete(plan));
    }

    pub(super) fn take_deleted(&mut self, paths: Vec<(Vec<u8>, Result<(), Failure>)>) {
        if matches!(self.phase, Phase::Deleting) {
            self.take_removed(paths);
            self.close();
        }
    }

    pub(super) fn take_removed(&mut self, paths: Vec<(Vec<u8>, Result<(), Failure>)>) {
        for (path, result) in paths {
            match result {
                Ok(()) => {
                    self.tally.summary.deleted += 1;
                    self.report_path(path, FileReport::Deleted);
                }
                Err(failure) => {
                    self.report_path(path.clone(), FileReport::Failed(failure.clone()));
                    self.tally.failures.note(path, failure);
                }
            }
        }
    }

    /// Metadata, and the last sync.
    fn close(&mut self) {
        if self.options.dry_run || self.options.verify {
            self.say_finished();
            return;
        }
        // Before the sync: its answer says that these are done too, and only then all is.
        self.directories.settle_all(&mut self.out);
        // All files have their names, durably, so no crash needs the journal any more. Removing it
        // and the lock changes the time of the directory they are in.
        let clean = self.tally.failures.count() == 0;
        if self.journal.is_enabled() && (clean || !self.journal.has_files()) {
            self.out.push_back(SinkAction::RemoveJournal);
        }
        self.out.push_back(SinkAction::RemoveLock);
        self.directories.settle_root(&mut self.out);
        let token = self.durability.token();
        self.phase = Phase::Closing { token };
        self.out.push_back(SinkAction::JournalSync(token));
    }

    /// If this was the last sync, says that all is done.
    pub(super) fn take_last_journal_synced(&mut self, token: u64) -> bool {
        let last = self.phase.is_closing(token);
        if last {
            self.say_finished();
        }
        last
    }

    fn say_finished(&mut self) {
        self.phase = Phase::AwaitBye;
        self.tell_all();
        let summary = self.tally.summary();
        self.send(Message::Finished(summary));
    }

    /// All entries are done, and the source may not know so yet.
    pub(super) fn take_late_message(&mut self, message: Message) -> Result<(), Failure> {
        match message {
            Message::Refused(failure) | Message::Cancel(failure) => {
                self.end(failure.bounded(), false);
                Ok(())
            }
            Message::Bye => Err(unexpected(&message)),
            message => self.take_last_message(message),
        }
    }

    pub(super) fn take_last_message(&mut self, message: Message) -> Result<(), Failure> {
        match message {
            Message::Bye => {
                self.phase = Phase::Over;
                self.finished(None);
                Ok(())
            }
            Message::Cancel(_) | Message::Refused(_) => {
                self.phase = Phase::Over;
                self.finished(None);
                Ok(())
            }
            // Digests and the like that crossed the goodbye.
            Message::Digests { .. }
            | Message::Hole(_)
            | Message::Root { .. }
            | Message::SourceFailed { .. } => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Ends the transfer early; `tell` the source why.
    pub(super) fn end(&mut self, failure: Failure, tell: bool) {
        match self.phase {
            // All is safe; only the goodbye is missing.
            Phase::AwaitBye => {
                self.phase = Phase::Over;
                self.finished(None);
            }
            Phase::Over | Phase::Ending { .. } => {}
            Phase::Running | Phase::Deleting | Phase::Closing { .. } => {
                self.planner.clear();
                self.phase = Phase::Ending { failure, tell };
            }
        }
    }

    fn finished(&mut self, failure: Option<Failure>) {
        let summary = self.tally.summary();
        let failed = self.tally.failures.take();
        self.out.push_back(SinkAction::Finished(Outcome { summary, failure, failed }));
    }

    pub(super) fn report_moved(&mut self, id: EntryId) {
        self.report(id, FileReport::Moved);
    }

    /// Tells the user what became of an entry, if asked to.
    pub(super) fn report(&mut self, id: EntryId, report: FileReport) {
        let Some(item) = self.entries.get(id) else { return };
        let quiet = item.entry.kind == EntryKind::Directory && report == FileReport::Unchanged;
        if self.reports() && !quiet {
            let path = item.entry.path.as_bytes().to_vec();
            self.out.push_back(SinkAction::Report(path, report));
        }
    }

    fn report_path(&mut self, path: Vec<u8>, report: FileReport) {
        if self.reports() {
            self.out.push_back(SinkAction::Report(path, report));
        }
    }

    fn reports(&self) -> bool {
        self.options.report_files || self.options.dry_run || self.options.verify
    }
}

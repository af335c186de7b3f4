//! The end of a transfer: normally with deletion and metadata of directories; or early, after
//! verified data is made durable.

use std::collections::VecDeque;

use packtrain_object::{Entry, EntryId, EntryKind};

use super::Sink;
use crate::action::{DeletePlan, FileReport, Outcome, SinkAction};
use crate::failure::{Failure, FailureKind, protocol, removal_unknown};
use crate::limits::{MAX_FAILED, MAX_KEPT, SETTLE_BATCH};
use crate::message::{Message, Options, unexpected};
use crate::path_digests::KeptPaths;

/// State of the whole transfer.
#[derive(Debug)]
pub(super) enum Phase {
    /// Entries arrive or are not complete.
    Running,
    /// All entries are complete; files that are not in the source are being deleted.
    Deleting,
    /// A sync of the names that files have is under way, before the journal is removed.
    Naming { token: u64 },
    /// The last sync of names and journal is under way.
    Closing { token: u64 },
    /// `Finished` was sent; the source answers with `Bye`.
    AwaitBye,
    /// The transfer ends early; verified data is being synced.
    Ending { failure: Failure, notify: bool },
    /// The action `Finished` was returned.
    Over,
}

impl Phase {
    /// Whether entries are still processed.
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Running)
    }

    fn is_closing(&self, token: u64) -> bool {
        matches!(self, Self::Closing { token: own } if *own == token)
    }

    fn is_naming(&self, token: u64) -> bool {
        matches!(self, Self::Naming { token: own } if *own == token)
    }

    /// Whether this sync is one of the end.
    pub(super) fn is_last_sync(&self, token: u64) -> bool {
        self.is_naming(token) || self.is_closing(token)
    }
}

/// Metadata and deletions that are left for the end.
#[derive(Debug, Default)]
pub(super) struct Directories {
    /// Directories in the order in which they were made: parents first.
    made: Vec<(EntryId, Entry)>,
    /// Unchanged files whose metadata is set.
    settle: Vec<(EntryId, Entry)>,
    /// All paths of the source, if `delete` is set.
    keep: KeptPaths,
    /// Paths of the sources without a file.
    spared: Vec<Vec<u8>>,
    /// Number of entries that are not directories.
    files: u64,
}

impl Directories {
    /// An entry was announced.
    ///
    /// # Errors
    /// A failure if there are more entries than `--delete` can tell from others.
    pub(super) fn announce(&mut self, options: &Options, entry: &Entry) -> Result<(), Failure> {
        self.files += u64::from(entry.kind != EntryKind::Directory);
        if options.delete {
            self.keep.add(entry);
        }
        if self.keep.len() > MAX_KEPT {
            let text = format!(
                "--delete takes at most {MAX_KEPT} names; copy without it, or in several parts"
            );
            return Err(Failure::new(FailureKind::Usage, text));
        }
        Ok(())
    }

    /// The sources at these paths have no file. A disk that is not mounted is a more likely cause
    /// than a wish to delete everything.
    pub(super) fn spare(&mut self, paths: Vec<Vec<u8>>) {
        self.spared = paths;
    }

    /// A directory exists.
    pub(super) fn made(&mut self, id: EntryId, entry: Entry) {
        self.made.push((id, entry));
    }

    /// Queues a file with the right content for its metadata.
    pub(super) fn settle(&mut self, id: EntryId, entry: Entry, out: &mut VecDeque<SinkAction>) {
        self.settle.push((id, entry));
        if self.settle.len() >= SETTLE_BATCH {
            out.push_back(SinkAction::Settle(std::mem::take(&mut self.settle)));
        }
    }

    /// Sets the metadata of everything except the destination itself: files, then directories,
    /// children before parents.
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

    /// Sets the metadata of the destination, when nothing is made or removed in it any more.
    fn settle_root(&mut self, out: &mut VecDeque<SinkAction>) {
        let root = std::mem::take(&mut self.made);
        if !root.is_empty() {
            out.push_back(SinkAction::Settle(root));
        }
    }

    fn delete_plan(&mut self, options: &Options) -> DeletePlan {
        let mut keep = std::mem::take(&mut self.keep);
        keep.sort();
        let spared =
            if options.force_delete { Vec::new() } else { std::mem::take(&mut self.spared) };
        // `verify` lists what the source does not have, and removes nothing.
        let dry_run = options.dry_run || options.verify;
        DeletePlan { keep, spared, limit: options.max_delete, dry_run }
    }
}

impl Sink {
    /// Enters the next phase if the current one is complete.
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
        if let Phase::Ending { failure, notify } = phase {
            if notify {
                self.send(Message::Cancel(failure.clone()));
            }
            self.finished(Some(failure));
        }
    }

    fn begin_end(&mut self) {
        // What differs is a failure of `verify`, which also lists what the source does not have.
        let clean = self.tally.failures.count() == 0 || self.options.verify;
        if !self.options.delete || !clean {
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
                    self.tally.failures.add(path, failure);
                }
            }
        }
    }

    /// Makes the names of files durable if necessary, sets metadata and requests the last sync.
    fn close(&mut self) {
        if self.options.dry_run || self.options.verify {
            self.send_finished();
            return;
        }
        // An earlier run may have renamed files that this run found complete, without a sync. If a
        // crash loses such a rename, the next run must find the chunks in the journal.
        if self.journal.was_found() {
            let token = self.durability.token();
            self.phase = Phase::Naming { token };
            self.out.push_back(SinkAction::JournalSync { token, names: true });
            return;
        }
        self.close_named();
    }

    fn close_named(&mut self) {
        let clean = self.tally.failures.count() == 0;
        let begun = self.journal.unfinished();
        // What a copy of other sources has received is theirs, except where the target mirrors these.
        let is_owner = self.options.delete || !self.journal.has_other_origins();
        let clean = clean && is_owner;
        if clean && !begun.is_empty() {
            // Before the metadata, because the removal changes the time of their directories.
            self.out.push_back(SinkAction::Abandon(begun));
        }
        // Before the sync, because its answer must cover the metadata too.
        self.directories.settle_all(&mut self.out);
        // All files are durable under their final names, so a crash no longer needs the journal.
        // Removing it and the lock changes the mtime of their directory, so the destination's
        // metadata follows.
        if self.journal.is_enabled() && (clean || !self.journal.has_files()) {
            self.out.push_back(SinkAction::RemoveJournal);
        }
        self.out.push_back(SinkAction::RemoveLock);
        self.directories.settle_root(&mut self.out);
        let token = self.durability.token();
        self.phase = Phase::Closing { token };
        self.out.push_back(SinkAction::JournalSync { token, names: true });
    }

    /// If this was the sync of names, requests the last one; if it was the last one, sends
    /// `Finished`.
    pub(super) fn take_last_journal_synced(&mut self, token: u64) -> bool {
        if self.phase.is_naming(token) {
            self.close_named();
            return true;
        }
        let last = self.phase.is_closing(token);
        if last {
            self.send_finished();
        }
        last
    }

    fn send_finished(&mut self) {
        self.phase = Phase::AwaitBye;
        self.send_all_reports();
        let summary = self.tally.summary();
        self.send(Message::Finished(summary));
        self.end_if_accounted();
    }

    /// Ends the transfer without the source's `Bye`, which has nothing to say any more.
    pub(super) fn end_if_accounted(&mut self) {
        // A source that removes files tells what became of them before its `Bye`.
        let is_told = self.accounted && !self.options.removes_source();
        if is_told && matches!(self.phase, Phase::AwaitBye) {
            self.phase = Phase::Over;
            self.finished(None);
        }
    }

    /// A message after all entries are complete, which the source may not know yet.
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
                self.end_durable(None);
                Ok(())
            }
            Message::Cancel(failure) | Message::Refused(failure) => {
                self.end_durable(Some(failure.bounded()));
                Ok(())
            }
            Message::Removed { failures, .. } if failures.len() > MAX_FAILED => {
                Err(protocol("more failures than are told"))
            }
            Message::Removed { files, failed, failures } if self.awaits_removed() => {
                self.tally.summary.removed = files;
                for (path, failure) in &failures {
                    let report = FileReport::Failed(failure.clone().bounded());
                    self.report_path(path.clone(), report);
                }
                self.tally.failures.add_reported(failures, failed, 0);
                self.told_removed = true;
                Ok(())
            }
            // Digests and the like that were sent before the source received `Finished`.
            Message::Digests { .. }
            | Message::Hole(_)
            | Message::Same(_)
            | Message::Root { .. }
            | Message::SourceFailed { .. } => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Whether the source may tell now, for the first time, what it removed.
    fn awaits_removed(&self) -> bool {
        let waits = matches!(self.phase, Phase::AwaitBye) && !self.told_removed;
        waits && self.options.removes_source()
    }

    /// Ends the transfer early; `notify` the source why.
    pub(super) fn end(&mut self, failure: Failure, notify: bool) {
        match self.phase {
            // All data is durable; only `Bye` is missing.
            Phase::AwaitBye => self.end_durable(Some(failure)),
            Phase::Over | Phase::Ending { .. } => {}
            Phase::Running | Phase::Deleting | Phase::Naming { .. } | Phase::Closing { .. } => {
                self.planner.clear();
                self.phase = Phase::Ending { failure, notify };
            }
        }
    }

    /// Ends the transfer when all is durable; `early` is why no `Bye` came. It fails only if the source
    /// was to remove files and has not said which.
    fn end_durable(&mut self, early: Option<Failure>) {
        self.phase = Phase::Over;
        let is_unknown = self.options.removes_source() && !self.told_removed;
        self.finished(is_unknown.then(|| removal_unknown(early)));
    }

    fn finished(&mut self, failure: Option<Failure>) {
        let summary = self.tally.summary();
        let failed = self.tally.failures.take();
        self.out.push_back(SinkAction::Finished(Outcome { summary, failure, failed }));
    }

    pub(super) fn report_moved(&mut self, id: EntryId) {
        self.report(id, FileReport::Moved);
    }

    /// Reports the result of an entry to the user, if requested.
    pub(super) fn report(&mut self, id: EntryId, report: FileReport) {
        self.tally.summary.changed += u64::from(report == FileReport::Moved);
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

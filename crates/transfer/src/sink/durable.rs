//! From verified to durable: sync the data, rename files, sync the journal, report.
//!
//! One cycle runs at a time and covers everything verified before it began. A cycle begins when
//! [`SYNC_BYTES`] or [`SYNC_FILES`] wait, when the first of them has waited [`SYNC_EVERY`], or when
//! there is no other work to wait for.

use packtrain_object::EntryId;
use packtrain_units::Time;

use super::Sink;
use super::entries::Stage;
use super::finish::Phase;
use crate::action::{FileReport, SinkAction};
use crate::failure::Failure;
use crate::limits::{
    COMMIT_BATCH, MAX_STORED, MAX_UNSYNCED_FILES, MAX_UNSYNCED_PATHS, SYNC_BYTES, SYNC_EVERY,
    SYNC_FILES,
};
use crate::message::Message;

/// Data that waits for a sync, and the cycle under way.
#[derive(Debug, Default)]
pub(super) struct Durability {
    waiting: Batch,
    due: Option<Time>,
    cycle: Option<Cycle>,
    last_token: u64,
    /// Whether the last sync took so long that it got no `Durable` record.
    overflowed: bool,
}

/// Data that one cycle covers.
#[derive(Debug, Default)]
struct Batch {
    bytes: u64,
    files: Vec<EntryId>,
    /// Bytes of the paths of these files.
    paths: u64,
    /// Files and links that have their names, for a source that then removes its own.
    stored: Vec<EntryId>,
    /// Files and links that are left alone, for the same.
    left: Vec<EntryId>,
    /// Whether anything waits; it may be only names.
    any: bool,
}

#[derive(Debug)]
struct Cycle {
    token: u64,
    batch: Batch,
    step: Step,
    /// Journal numbers of files that were renamed.
    named: Vec<u32>,
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Syncing,
    Committing { left: usize },
    JournalSyncing,
}

impl Durability {
    /// Bytes were verified.
    pub(super) fn add_bytes(&mut self, now: Time, bytes: u64) {
        self.waiting.bytes += bytes;
        self.touch(now);
    }

    /// All bytes of a file were verified, or a link was made whose source will be removed.
    pub(super) fn add_file(&mut self, now: Time, id: EntryId, paths: u64) {
        self.waiting.files.push(id);
        self.waiting.paths += paths;
        self.touch(now);
    }

    /// A file or link is left alone; the source keeps its own.
    pub(super) fn leave(&mut self, now: Time, id: EntryId) {
        self.waiting.left.push(id);
        self.touch(now);
    }

    /// Marks a change that a cycle must cover.
    pub(super) fn touch(&mut self, now: Time) {
        self.waiting.any = true;
        self.due.get_or_insert(now + SYNC_EVERY);
    }

    /// Whether nothing waits and no cycle runs.
    pub(super) fn is_idle(&self) -> bool {
        !self.waiting.any && self.cycle.is_none()
    }

    /// Number of files that wait to be renamed.
    pub(super) fn files(&self) -> usize {
        let cycling = self.cycle.as_ref().map_or(0, |cycle| cycle.batch.files.len());
        self.waiting.files.len() + cycling
    }

    /// Whether so much waits that the source must pause.
    pub(super) fn is_behind(&self) -> bool {
        let cycling = self.cycle.as_ref().map_or(0, |cycle| cycle.batch.paths);
        self.files() > MAX_UNSYNCED_FILES || self.waiting.paths + cycling > MAX_UNSYNCED_PATHS
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.due.filter(|_| self.cycle.is_none())
    }

    /// A number that no other sync has.
    pub(super) fn token(&mut self) -> u64 {
        self.last_token += 1;
        self.last_token
    }

    /// Drops what waits: it will never be durable.
    pub(super) fn abandon(&mut self) {
        self.waiting = Batch::default();
        self.due = None;
        self.cycle = None;
    }

    fn is_due(&self, now: Time, all_waiting: bool) -> bool {
        self.cycle.is_none()
            && self.waiting.any
            && (all_waiting
                || self.due.is_some_and(|due| due <= now)
                || self.waiting.bytes >= SYNC_BYTES
                || self.waiting.files.len() >= SYNC_FILES
                || self.waiting.paths >= MAX_UNSYNCED_PATHS)
    }
}

impl Sink {
    pub(super) fn sync_if_due(&mut self) {
        let ending = matches!(self.phase, Phase::Ending { .. });
        let waiting = self.durability.files() + self.links.waiting();
        let all_waiting = self.intake.is_ended() && self.entries.len() == waiting;
        if !self.durability.is_due(self.now, all_waiting || ending) {
            return;
        }
        let token = self.durability.token();
        let batch = std::mem::take(&mut self.durability.waiting);
        self.durability.due = None;
        self.journal.sync_begins(self.durability.overflowed);
        self.durability.cycle =
            Some(Cycle { token, batch, step: Step::Syncing, named: Vec::new() });
        self.out.push_back(SinkAction::Sync(token));
    }

    pub(super) fn take_synced(&mut self, token: u64) {
        let Some(cycle) = &mut self.durability.cycle else { return };
        if cycle.token != token || cycle.step != Step::Syncing {
            return;
        }
        self.durability.overflowed = !self.journal.synced(&mut self.out);
        let entries = &mut self.entries;
        let mut commit = cycle.batch.files.iter().filter_map(|&id| {
            // The file may have failed since.
            let item = entries.get_mut(id).filter(|item| item.stage == Stage::Complete)?;
            item.stage = Stage::Committing;
            Some((id, item.entry.clone()))
        });
        let mut left = 0;
        loop {
            let batch: Vec<_> = commit.by_ref().take(COMMIT_BATCH).collect();
            if batch.is_empty() {
                break;
            }
            left += batch.len();
            self.out.push_back(SinkAction::Commit(batch));
        }
        cycle.step = Step::Committing { left };
        self.sync_journal_if_named();
    }

    pub(super) fn take_committed(&mut self, id: EntryId, result: Result<(), Failure>) {
        let Some(Cycle { step: Step::Committing { left }, .. }) = &mut self.durability.cycle else {
            return;
        };
        // Counts the answer, even if its entry failed meanwhile.
        *left = left.saturating_sub(1);
        let stage = self.entries.get(id).map(|item| item.stage);
        if stage == Some(Stage::Committing) {
            match result {
                Ok(()) => self.named(id),
                Err(failure) => self.fail_entry(id, failure, true),
            }
        }
        self.sync_journal_if_named();
    }

    fn named(&mut self, id: EntryId) {
        let Some(item) = self.entries.get(id) else { return };
        if let (Some(number), Some(cycle)) = (item.journal, &mut self.durability.cycle) {
            cycle.named.push(number);
        }
        if self.options.removes_source()
            && let Some(cycle) = &mut self.durability.cycle
        {
            cycle.batch.stored.push(id);
        }
        self.tally.summary.bytes += item.size();
        if item.entry.is_file() {
            self.tally.file_moved();
        }
        self.report(id, FileReport::Moved);
        self.done(id);
    }

    fn sync_journal_if_named(&mut self) {
        if let Some(cycle) = &mut self.durability.cycle
            && cycle.step == (Step::Committing { left: 0 })
        {
            cycle.step = Step::JournalSyncing;
            self.out.push_back(SinkAction::JournalSync { token: cycle.token, names: false });
        }
    }

    pub(super) fn take_journal_synced(&mut self, token: u64) {
        if self.take_last_journal_synced(token) {
            return;
        }
        let cycle = &self.durability.cycle;
        if cycle.as_ref().is_none_or(|c| c.token != token || c.step != Step::JournalSyncing) {
            return;
        }
        let Some(cycle) = self.durability.cycle.take() else { return };
        // Not earlier: if a crash loses the rename, the next run must find the chunks in the
        // journal.
        self.journal.forget(&cycle.named, &mut self.out);
        self.tally.durable(cycle.batch.bytes);
        self.tally.report_progress_now(self.now);
        self.send_stored(cycle.batch);
    }

    fn send_stored(&mut self, Batch { stored, left, .. }: Batch) {
        if stored.is_empty() && left.is_empty() {
            return;
        }
        // The source checks that it was told of the examination and the verification.
        self.answer_segments();
        self.send_verified();
        for entries in stored.chunks(MAX_STORED) {
            self.send(Message::Stored { entries: entries.to_vec(), left: Vec::new() });
        }
        for left in left.chunks(MAX_STORED) {
            self.send(Message::Stored { entries: Vec::new(), left: left.to_vec() });
        }
    }

    pub(super) fn take_sync_failed(&mut self, token: u64, failure: Failure) {
        let ours = self.durability.cycle.as_ref().is_some_and(|cycle| cycle.token == token);
        if ours || self.phase.is_last_sync(token) {
            self.durability.abandon();
            self.end(failure, true);
        }
    }
}

//! Failure of one entry; the transfer continues.

use packtrain_object::EntryId;

use super::Sink;
use super::entries::{Item, Stage};
use crate::action::{FileReport, SinkAction};
use crate::failure::{Failure, FailureKind};
use crate::message::Message;

impl Sink {
    /// Fails an entry; `notify` reports it to the source, unless it failed there.
    pub(super) fn fail_entry(&mut self, id: EntryId, failure: Failure, notify: bool) {
        let Some(item) = self.entries.get(id) else { return };
        if matches!(item.stage, Stage::Examining | Stage::Comparing) {
            self.decided(id);
        }
        if failure.kind != FailureKind::TargetFull {
            self.report(id, FileReport::Failed(failure.clone()));
        }
        self.drop_entry(id, failure, notify);
    }

    /// An entry failed at the source. This does not affect an entry whose bytes are all verified.
    pub(super) fn fail_at_source(&mut self, id: EntryId, failure: Failure) {
        let stage = self.entries.get(id).map(|item| item.stage);
        if !matches!(stage, Some(Stage::Complete | Stage::Committing)) {
            self.fail_entry(id, failure, false);
        }
    }

    /// Fails an entry because of the decision about it.
    pub(super) fn fail_decided(&mut self, id: EntryId, failure: Failure) {
        self.report(id, FileReport::Failed(failure.clone()));
        self.drop_entry(id, failure, true);
    }

    /// Removes a failed entry from all modules.
    pub(super) fn drop_entry(&mut self, id: EntryId, failure: Failure, notify: bool) {
        let group = self.entries.get(id).and_then(|item| item.group);
        self.leave_group(id, group);
        let Some(item) = self.entries.remove(id) else { return };
        let has_chunks = self.resumed.forget(id) || item.verified > 0;
        self.roots.forget(id);
        if let Some(range) = &item.range {
            for part in self.chunks.give_up(range) {
                self.out.push_back(SinkAction::Unexpect(part));
            }
            self.changed.forget(range);
        }
        self.drop_temporary(id, &item, &failure, has_chunks);
        // Every other file would fail too, so the transfer fails, with one message.
        if failure.kind == FailureKind::TargetFull {
            self.end(failure, true);
            return;
        }
        if notify {
            self.send(Message::SinkFailed { entry: id, failure: failure.clone() });
        }
        self.tally.failures.add(item.entry.path.into_bytes(), failure);
    }

    /// Removes a temporary that no later run can resume, and forgets its file: a source may announce and
    /// fail any number of files without sending a byte of them.
    fn drop_temporary(&mut self, id: EntryId, item: &Item, failure: &Failure, has_chunks: bool) {
        if !matches!(item.stage, Stage::Moving | Stage::Complete | Stage::Committing) {
            return;
        }
        let stale = matches!(
            failure.kind,
            FailureKind::Changed | FailureKind::Vanished | FailureKind::Integrity
        );
        match item.journal {
            Some(_) if has_chunks && !stale => return,
            Some(number) => self.journal.forget(&[number], &mut self.out),
            None => {}
        }
        if !self.options.inplace && item.entry.is_file() {
            self.out.push_back(SinkAction::Discard(id, item.entry.clone()));
        }
    }
}

//! One entry fails, the rest goes on.

use packtrain_object::EntryId;

use super::Sink;
use super::entries::{Item, Stage};
use crate::action::{FileReport, SinkAction};
use crate::failure::{Failure, FailureKind};
use crate::message::Message;

impl Sink {
    /// An entry fails; `tell` the source, unless that is where it failed.
    pub(super) fn fail_entry(&mut self, id: EntryId, failure: Failure, tell: bool) {
        let Some(item) = self.entries.get(id) else { return };
        if matches!(item.stage, Stage::Examining | Stage::Comparing) {
            self.decided(id);
        }
        if failure.kind != FailureKind::TargetFull {
            self.report(id, FileReport::Failed(failure.clone()));
        }
        self.drop_entry(id, failure, tell);
    }

    /// An entry failed at the source. One whose every byte is verified is not spoilt by that.
    pub(super) fn fail_at_source(&mut self, id: EntryId, failure: Failure) {
        let stage = self.entries.get(id).map(|item| item.stage);
        if !matches!(stage, Some(Stage::Complete | Stage::Committing)) {
            self.fail_entry(id, failure, false);
        }
    }

    /// An entry fails here by decision.
    pub(super) fn fail_decided(&mut self, id: EntryId, failure: Failure) {
        self.report(id, FileReport::Failed(failure.clone()));
        self.drop_entry(id, failure, true);
    }

    /// Takes a failed entry out of everything.
    pub(super) fn drop_entry(&mut self, id: EntryId, failure: Failure, tell: bool) {
        let Some(item) = self.entries.remove(id) else { return };
        self.resumed.forget(id);
        self.roots.forget(id);
        if let Some(range) = &item.range {
            for part in self.chunks.give_up(range) {
                self.out.push_back(SinkAction::Unexpect(part));
            }
        }
        self.drop_temporary(id, &item, &failure);
        // Every other file would meet the same: this is the transfer's failure, said once.
        if failure.kind == FailureKind::TargetFull {
            self.end(failure, true);
            return;
        }
        if tell {
            self.send(Message::SinkFailed { entry: id, failure: failure.clone() });
        }
        self.tally.failures.note(item.entry.path.into_bytes(), failure);
    }

    /// A temporary that no later run can take up is not left lying about.
    fn drop_temporary(&mut self, id: EntryId, item: &Item, failure: &Failure) {
        if !matches!(item.stage, Stage::Moving | Stage::Complete | Stage::Committing) {
            return;
        }
        let stale = matches!(
            failure.kind,
            FailureKind::Changed | FailureKind::Vanished | FailureKind::Integrity
        );
        match item.journal {
            Some(_) if !stale => return,
            Some(number) => self.journal.forget(&[number], &mut self.out),
            None => {}
        }
        if !self.options.inplace {
            self.out.push_back(SinkAction::Discard(id, item.entry.clone()));
        }
    }
}

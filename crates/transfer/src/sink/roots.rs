//! Compares digests of whole files (`--checksum`, `verify`).

use std::collections::{BTreeMap, VecDeque};

use packtrain_object::{Digest, EntryId};

use super::Sink;
use super::entries::Stage;
use super::examine::Decision;
use crate::action::{FileReport, SinkAction};
use crate::failure::{Failure, FailureKind};
use crate::limits::ROOTS_WINDOW;
use crate::message::Message;

/// Files whose contents are compared.
#[derive(Debug, Default)]
pub(super) struct Roots {
    queue: VecDeque<EntryId>,
    comparing: BTreeMap<EntryId, Pair>,
    /// Whether to set the metadata if the contents are equal.
    settle: BTreeMap<EntryId, bool>,
}

/// The digests of both ends. The outer none: no answer yet; the inner none: the file could not be
/// read.
#[derive(Debug, Default)]
struct Pair {
    source: Option<Option<Digest>>,
    target: Option<Option<Digest>>,
}

impl Roots {
    /// Removes an entry that failed.
    pub(super) fn forget(&mut self, id: EntryId) {
        self.comparing.remove(&id);
        self.settle.remove(&id);
    }

    fn take_if_both(&mut self, id: EntryId) -> Option<(Option<Digest>, Option<Digest>)> {
        let pair = self.comparing.get(&id)?;
        let (source, target) = (pair.source?, pair.target?);
        self.comparing.remove(&id);
        Some((source, target))
    }
}

impl Sink {
    /// Queues this entry for comparison of its content.
    pub(super) fn compare(&mut self, id: EntryId, settle: bool) {
        if let Some(item) = self.entries.get_mut(id) {
            item.stage = Stage::Comparing;
            self.roots.queue.push_back(id);
            self.roots.settle.insert(id, settle);
        }
    }

    pub(super) fn compare_more(&mut self) {
        let mut ask = Vec::new();
        while self.roots.comparing.len() < ROOTS_WINDOW
            && let Some(id) = self.roots.queue.pop_front()
        {
            let Some(item) = self.entries.get(id).filter(|i| i.stage == Stage::Comparing) else {
                continue;
            };
            self.out.push_back(SinkAction::HashTarget(id, item.entry.clone()));
            self.roots.comparing.insert(id, Pair::default());
            ask.push(id);
        }
        if !ask.is_empty() {
            self.send(Message::AskRoot(ask));
        }
    }

    pub(super) fn take_root(&mut self, id: EntryId, digest: Option<Digest>) {
        if let Some(pair) = self.roots.comparing.get_mut(&id) {
            pair.source = Some(digest);
            self.compared(id);
        }
    }

    pub(super) fn take_target_root(&mut self, id: EntryId, digest: Option<Digest>) {
        if let Some(pair) = self.roots.comparing.get_mut(&id) {
            pair.target = Some(digest);
            self.compared(id);
        }
    }

    fn compared(&mut self, id: EntryId) {
        let Some((source, target)) = self.roots.take_if_both(id) else { return };
        let settle = self.roots.settle.remove(&id).unwrap_or(false);
        let Some(source) = source else {
            let text = "the source could not be read to compare it";
            self.fail_entry(id, Failure::new(FailureKind::Unreadable, text), false);
            return;
        };
        self.decided(id);
        let changes = !self.options.dry_run && !self.options.verify;
        let decision = if target == Some(source) {
            Decision::Keep { settle: settle && changes }
        } else if self.options.verify {
            Decision::ReportOnly(FileReport::Differs)
        } else if self.options.dry_run {
            Decision::ReportOnly(FileReport::Moved)
        } else {
            Decision::Move
        };
        self.apply_decision(id, decision);
        self.send_present();
    }
}

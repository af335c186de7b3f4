//! Files and links that are removed once they are durable at the sink.

use std::collections::BTreeSet;

use packtrain_object::EntryId;
use packtrain_units::Time;

use super::Source;
use crate::action::SourceAction;
use crate::failure::{Failure, protocol};
use crate::limits::{MAX_FAILED, MAX_STORED};
use crate::message::{Message, Summary, unexpected};

/// State of the removals.
#[derive(Debug, Default)]
pub(super) struct Removal {
    removing: BTreeSet<EntryId>,
    removed: u64,
    kept: u64,
    /// The first of those that were kept, by their paths at the target.
    failures: Vec<(Vec<u8>, Failure)>,
    /// The sink's summary, while something is being removed.
    summary: Option<Summary>,
}

impl Removal {
    /// Number of files and links removed.
    pub(super) fn removed(&self) -> u64 {
        self.removed
    }

    /// Number of files and links that were kept although the sink has them.
    pub(super) fn kept(&self) -> u64 {
        self.kept
    }

    /// The sink finished. Returns whether something is being removed.
    pub(super) fn wait(&mut self, summary: Summary) -> Result<bool, Failure> {
        if self.summary.is_some() {
            return Err(protocol("the sink finished twice"));
        }
        if self.removing.is_empty() {
            return Ok(false);
        }
        self.summary = Some(summary);
        Ok(true)
    }

    pub(super) fn message(&mut self) -> Message {
        let failures = std::mem::take(&mut self.failures);
        Message::Removed { files: self.removed, failed: self.kept, failures }
    }
}

impl Source {
    pub(super) fn take_stored(
        &mut self,
        entries: &[EntryId],
        left: &[EntryId],
    ) -> Result<(), Failure> {
        if !self.options.removes_source() {
            let (entries, left) = (entries.to_vec(), left.to_vec());
            return Err(unexpected(&Message::Stored { entries, left }));
        }
        if entries.len().max(left.len()) > MAX_STORED {
            return Err(protocol("more stored entries than fit in one message"));
        }
        if !entries.iter().chain(left).all(|id| self.segments.was_sent(*id)) {
            return Err(protocol("a stored entry that was not sent"));
        }
        for &id in left {
            self.held.settle(id);
        }
        for &id in entries {
            match self.held.may_be_stored(id) {
                // It failed meanwhile.
                None => {}
                Some(false) => return Err(protocol("an entry was stored before it was verified")),
                Some(true) if self.removal.removing.insert(id) => {
                    self.out.push_back(SourceAction::Remove(id));
                }
                // It was named before.
                Some(true) => {}
            }
        }
        Ok(())
    }

    /// Answer to `Remove`: why the file was kept, if it was.
    pub fn on_removed(&mut self, _now: Time, id: EntryId, result: Result<(), Failure>) {
        if !self.removal.removing.remove(&id) || self.over {
            return;
        }
        match result {
            Ok(()) => self.removal.removed += 1,
            Err(failure) => {
                self.removal.kept += 1;
                let path = self.held.path(id).unwrap_or_default();
                if self.removal.failures.len() < MAX_FAILED {
                    self.removal.failures.push((path.clone(), failure.clone().bounded()));
                }
                self.failures.add(path, failure);
            }
        }
        self.held.settle(id);
        if self.removal.removing.is_empty()
            && let Some(summary) = self.removal.summary.take()
        {
            self.complete(summary);
        }
    }
}

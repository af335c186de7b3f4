//! Names of one file (`--hard-links`).
//!
//! The entries that are names of one file are a group. Each has its own range of the object, so any
//! of them can be moved like a file of its own. One of them, the anchor, is: the first name, or the
//! next one if that fails or is left alone. The others wait until the anchor is verified, synced and
//! named, and then become names of it. Where that is not possible they are moved too.
//!
//! An entry may refer only to an entry of the same manifest that said that it would be referred to,
//! and to it only as often as it said. So a hostile source cannot link to anything that it did not
//! send.

use std::collections::{HashMap, VecDeque};

use packtrain_object::{Entry, EntryId, HardLink, Mtime, RelPath};

use super::Sink;
use super::entries::Stage;
use super::examine::Decision;
use crate::action::{FileReport, LinkPlan, Linked, SinkAction};
use crate::failure::{Failure, protocol};
use crate::limits::{MAX_HELD, MAX_HELD_PATHS, MAX_LINK_GROUPS, MAX_LINK_PATHS};

/// A group keeps at least this many entries that do not wait any more.
const MIN_STALE: usize = 64;

/// The groups whose names are not all complete.
#[derive(Debug, Default)]
pub(super) struct Links {
    groups: HashMap<EntryId, Group>,
    /// Bytes of the paths of their first names.
    paths: u64,
    /// Entries that wait for their anchor.
    waiting: usize,
    /// What to do with entries that are being linked, if that is not possible.
    linking: HashMap<EntryId, Decision>,
    /// Small files to request although their chunk was planned before.
    late: VecDeque<EntryId>,
    /// Groups whose waiting entries may go on.
    released: VecDeque<EntryId>,
    /// Whether [`Sink::link_waiting`] runs. What it does to one entry may release others: they are
    /// queued, because a group may have more entries than the stack has room for.
    is_releasing: bool,
}

#[derive(Debug)]
struct Group {
    size: u64,
    mtime: Mtime,
    /// Bytes of the path of its first name.
    path: u64,
    /// Maximum number of further entries.
    further: u32,
    /// Entries that were announced and are not complete.
    open: u32,
    anchor: Anchor,
    /// Entries that wait for the anchor, and what they need otherwise. Some may have failed since.
    waiting: VecDeque<(EntryId, Decision)>,
}

#[derive(Clone, Debug, PartialEq)]
enum Anchor {
    /// This entry, which is not complete.
    Pending(EntryId),
    /// The file with this path.
    Ready(RelPath),
    /// A run that changes nothing would move its content.
    Changes,
    /// None: the next entry becomes it.
    Missing,
}

impl Links {
    /// Number of entries that wait for another name.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Number of entries held.
    pub(super) fn held(&self) -> usize {
        self.waiting + self.linking.len() + self.late.len()
    }

    /// Number of entries that waited and do not wait any more, but are still held.
    #[cfg(test)]
    pub(super) fn stale(&self) -> usize {
        let all: usize = self.groups.values().map(|group| group.waiting.len()).sum();
        all - self.waiting
    }

    /// An entry was announced. Returns the first name of its group, if it has one.
    pub(super) fn announce(
        &mut self,
        id: EntryId,
        entry: &Entry,
    ) -> Result<Option<EntryId>, Failure> {
        let (size, mtime) = (entry.size().unwrap_or_default(), entry.mtime);
        match entry.extras.hard_link {
            HardLink::None => Ok(None),
            HardLink::First { further } => {
                let path = entry.path.as_bytes().len() as u64;
                self.paths += path;
                // What is complete at the source may wait for a sync here.
                let is_full = self.groups.len() >= MAX_LINK_GROUPS + MAX_HELD
                    || self.paths > MAX_LINK_PATHS + MAX_HELD_PATHS;
                if is_full {
                    return Err(protocol("more files with several names than fit in one copy"));
                }
                let (anchor, waiting) = (Anchor::Pending(id), VecDeque::new());
                let group = Group { size, mtime, path, further, open: 1, anchor, waiting };
                self.groups.insert(id, group);
                Ok(Some(id))
            }
            HardLink::To(first) => {
                let unknown = || protocol("a name of a file that was not announced");
                let group = self.groups.get_mut(&first).ok_or_else(unknown)?;
                group.further = group.further.checked_sub(1).ok_or_else(unknown)?;
                // The file changed during the walk: what the entry says of it counts.
                let is_same = (group.size, group.mtime) == (size, mtime);
                group.open += u32::from(is_same);
                self.drop_if_complete(first);
                Ok(is_same.then_some(first))
            }
        }
    }

    fn drop_if_complete(&mut self, first: EntryId) {
        let is_complete = |group: &Group| group.further == 0 && group.open == 0;
        if self.groups.get(&first).is_some_and(is_complete)
            && let Some(group) = self.groups.remove(&first)
        {
            self.paths -= group.path;
        }
    }
}

impl Sink {
    /// Whether the entry is a further name of a file, which it has not to be moved for.
    pub(super) fn is_further_name(&self, id: EntryId) -> bool {
        self.entries.get(id).is_some_and(|item| item.group.is_some_and(|first| first != id))
    }

    /// The entry waits for its anchor; otherwise it would need this.
    pub(super) fn await_anchor(&mut self, id: EntryId, decision: Decision) {
        self.decided(id);
        let Some(item) = self.entries.get_mut(id) else { return };
        let Some(first) = item.group else { return };
        item.stage = Stage::Waiting;
        item.is_late = true;
        let Some(group) = self.links.groups.get_mut(&first) else { return };
        group.waiting.push_back((id, decision));
        self.links.waiting += 1;
        // Entries that failed while they waited do not accumulate.
        if group.waiting.len() > 2 * group.open as usize + MIN_STALE {
            let entries = &self.entries;
            let waits = |id| entries.get(id).is_some_and(|item| item.waits_in(first));
            group.waiting.retain(|(id, _)| waits(*id));
        }
        self.link_waiting(first);
    }

    /// The entry is no name of its group any more, because it failed or is left alone.
    pub(super) fn leave_group(&mut self, id: EntryId, group: Option<EntryId>) {
        let Some(first) = group else { return };
        self.links.linking.remove(&id);
        if let Some(item) = self.entries.get_mut(id) {
            self.links.waiting -= usize::from(item.waits_in(first));
            item.group = None;
        }
        let Some(group) = self.links.groups.get_mut(&first) else { return };
        group.open = group.open.saturating_sub(1);
        if group.anchor == Anchor::Pending(id) {
            group.anchor = Anchor::Missing;
        }
        self.link_waiting(first);
    }

    /// The entry is complete under its name.
    pub(super) fn named_in_group(&mut self, id: EntryId, group: Option<EntryId>, path: &RelPath) {
        self.end_of_anchor(id, group, Anchor::Ready(path.clone()));
    }

    /// A run that changes nothing would move the content of the entry.
    pub(super) fn changes_in_group(&mut self, id: EntryId, group: Option<EntryId>) {
        self.end_of_anchor(id, group, Anchor::Changes);
    }

    fn end_of_anchor(&mut self, id: EntryId, first: Option<EntryId>, anchor: Anchor) {
        let Some(first) = first else { return };
        let Some(group) = self.links.groups.get_mut(&first) else { return };
        group.open = group.open.saturating_sub(1);
        if group.anchor == Anchor::Pending(id) {
            group.anchor = anchor;
        }
        self.link_waiting(first);
    }

    /// Links the entries that wait, or moves one of them if there is nothing to link to; and forgets the
    /// group if all its names are complete.
    fn link_waiting(&mut self, first: EntryId) {
        self.links.released.push_back(first);
        if std::mem::replace(&mut self.links.is_releasing, true) {
            return;
        }
        while let Some(first) = self.links.released.pop_front() {
            self.release_group(first);
            self.links.drop_if_complete(first);
        }
        self.links.is_releasing = false;
    }

    fn release_group(&mut self, first: EntryId) {
        while let Some(group) = self.links.groups.get_mut(&first)
            && !matches!(group.anchor, Anchor::Pending(_))
            && let Some((id, decision)) = group.waiting.pop_front()
        {
            if !self.entries.get(id).is_some_and(|item| item.waits_in(first)) {
                continue;
            }
            self.links.waiting -= 1;
            match &group.anchor {
                Anchor::Ready(path) => {
                    let path = path.clone();
                    self.link(id, decision, path);
                }
                Anchor::Missing => {
                    group.anchor = Anchor::Pending(id);
                    self.apply_decision_late(id, decision);
                }
                _ => self.report_link(id),
            }
        }
    }

    fn link(&mut self, id: EntryId, decision: Decision, first: RelPath) {
        let Some(item) = self.entries.get_mut(id) else { return };
        item.stage = Stage::Linking;
        let makes = !self.options.dry_run && !self.options.verify;
        let plan = LinkPlan { id, entry: item.entry.clone(), first, makes };
        self.links.linking.insert(id, decision);
        self.out.push_back(SinkAction::Link(plan));
    }

    /// Answer to `Link`.
    pub fn on_linked(&mut self, id: EntryId, result: Result<Linked, Failure>) {
        let decision = self.links.linking.remove(&id);
        if let Some(decision) = decision.filter(|_| self.phase.is_open()) {
            match result {
                Ok(Linked::Made) => self.linked(id),
                Ok(Linked::Same) => self.keep(id, false),
                Ok(Linked::Differs) if self.options.verify => {
                    self.report_only(id, FileReport::Differs);
                }
                Ok(Linked::Differs) => self.report_link(id),
                Ok(Linked::Gone | Linked::TooMany) => self.replace_anchor(id, decision),
                Ok(Linked::Impossible) => {
                    let group = self.entries.get(id).and_then(|item| item.group);
                    self.leave_group(id, group);
                    self.apply_decision_late(id, decision);
                }
                Err(failure) => self.fail_entry(id, failure, true),
            }
            self.send_present();
        }
        self.advance();
    }

    /// The entry became a name of the anchor.
    fn linked(&mut self, id: EntryId) {
        let Some(item) = self.entries.get(id) else { return };
        self.durability.touch(self.now);
        if item.temporary.is_some() && !self.options.inplace {
            self.out.push_back(SinkAction::Discard(id, item.entry.clone()));
        }
        self.tally.found_file();
        self.tally.found(item.size());
        self.tally.summary.bytes += item.size();
        if let Some(range) = item.range.clone() {
            self.tally.verified_range(self.now, range);
        }
        self.report(id, FileReport::Moved);
        self.done(id);
    }

    /// Reports that a run that changes something would make a name.
    fn report_link(&mut self, id: EntryId) {
        let Some(item) = self.entries.get(id) else { return };
        self.tally.found(item.size());
        if let Some(range) = item.range.clone() {
            self.tally.verified_range(self.now, range);
        }
        let group = item.group;
        self.report(id, FileReport::Moved);
        self.entries.remove(id);
        self.changes_in_group(id, group);
    }

    /// There can be no further name of the anchor: this entry is moved and becomes the anchor,
    /// unless another one has become it meanwhile.
    fn replace_anchor(&mut self, id: EntryId, decision: Decision) {
        let Some(item) = self.entries.get_mut(id) else { return };
        item.stage = Stage::Waiting;
        let Some(first) = item.group else { return };
        let Some(group) = self.links.groups.get_mut(&first) else { return };
        group.waiting.push_back((id, decision));
        self.links.waiting += 1;
        if matches!(group.anchor, Anchor::Ready(_)) {
            group.anchor = Anchor::Missing;
        }
        self.link_waiting(first);
    }

    /// Applies the decision about an entry whose chunk was planned without it.
    fn apply_decision_late(&mut self, id: EntryId, decision: Decision) {
        match decision {
            Decision::Compare => {
                let settle = self.options.preserve_mode || self.options.preserve_times;
                self.compare(id, settle);
            }
            decision => self.apply_decision(id, decision),
        }
    }

    /// Requests a small file whose chunk was planned without it.
    pub(super) fn need_late(&mut self, id: EntryId) {
        self.links.late.push_back(id);
    }

    /// Requests small files whose chunks may have been planned without them.
    pub(super) fn plan_late(&mut self) {
        let mut ranges = Vec::new();
        while self.chunks.has_room()
            && let Some(id) = self.links.late.pop_front()
        {
            let range = self.entries.get(id).filter(|item| item.stage == Stage::Moving);
            let Some(range) = range.and_then(|item| item.range.clone()) else { continue };
            let Some(piece) = self.layout.piece_at(range.start) else { continue };
            // Its chunk was planned with it after all.
            if self.chunks.is_asked(&piece) {
                continue;
            }
            let chunk = packtrain_object::ChunkIndex::of(range.start);
            self.expect(chunk, vec![piece], &mut ranges);
        }
        // As for a piece that failed: the source may have read its chunk without this piece.
        self.send_need(ranges, true);
    }
}

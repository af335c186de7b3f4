//! The entries whose data may still be read.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use packtrain_object::{Entry, EntryId, EntryKind, Layout, RelPath};
use packtrain_units::{Offset, RangeSet};

use crate::limits::{MAX_RECENT, path_bytes};

/// Entries from the walk until the sink has examined them and verified all their bytes.
#[derive(Debug, Default)]
pub(super) struct Held {
    entries: BTreeMap<EntryId, HeldEntry>,
    /// Bytes of their paths and link targets.
    paths: u64,
    /// Bytes of held entries that are not verified.
    live: RangeSet,
    /// Paths of released entries: the sink may fail to rename a file after it verified all its
    /// bytes.
    recent: BTreeMap<EntryId, RelPath>,
    order: VecDeque<EntryId>,
    had_stream: bool,
    /// Whether files and links are held until the sink says what becomes of them.
    until_stored: bool,
}

#[derive(Debug)]
struct HeldEntry {
    entry: Entry,
    range: Option<Range<Offset>>,
    unverified: u64,
    answered: bool,
    /// Whether the sink still has to say what becomes of it.
    awaited: bool,
}

impl HeldEntry {
    /// Whether the sink needs nothing more of it.
    fn is_done(&self) -> bool {
        self.unverified == 0 && self.answered && !self.awaited
    }
}

impl Held {
    /// Holds files and links until the sink says what becomes of them, if `until_stored`.
    pub(super) fn new(until_stored: bool) -> Self {
        Self { until_stored, ..Self::default() }
    }

    pub(super) fn add(&mut self, id: EntryId, entry: Entry, range: Option<Range<Offset>>) {
        let unverified = range.clone().map_or(0, |range| self.live.insert(range).get());
        self.had_stream |= entry.kind == EntryKind::Stream;
        self.paths += path_bytes(&entry);
        let awaited = self.until_stored && entry.kind != EntryKind::Directory;
        self.entries.insert(id, HeldEntry { entry, range, unverified, answered: false, awaited });
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of the paths and link targets of held entries.
    pub(super) fn paths(&self) -> u64 {
        self.paths
    }

    pub(super) fn get(&self, id: EntryId) -> Option<&Entry> {
        self.entries.get(&id).map(|held| &held.entry)
    }

    /// Whether there is or was an entry of unknown length.
    pub(super) fn had_stream(&self) -> bool {
        self.had_stream
    }

    /// The path of an entry that is held, or that was released recently.
    pub(super) fn path(&self, id: EntryId) -> Option<Vec<u8>> {
        let path = self.get(id).map(|entry| &entry.path).or_else(|| self.recent.get(&id));
        path.map(|path| path.as_bytes().to_vec())
    }

    /// The unverified parts of `range` that belong to held entries.
    pub(super) fn live(&self, range: Range<Offset>) -> impl Iterator<Item = Range<Offset>> + '_ {
        self.live.intersect(range)
    }

    /// The sink examined these entries.
    pub(super) fn answered(&mut self, first: EntryId, count: u32) {
        let end = EntryId(first.0.saturating_add(count));
        let mut done = Vec::new();
        for (&id, held) in self.entries.range_mut(first..end) {
            held.answered = true;
            if held.is_done() {
                done.push(id);
            }
        }
        for id in done {
            self.release(id);
        }
    }

    /// The sink verified these bytes, or does not need them.
    pub(super) fn verified(&mut self, range: &Range<Offset>, layout: &Layout) {
        let parts: Vec<_> = self.live.intersect(range.clone()).collect();
        for part in parts {
            self.live.remove(part.clone());
            let mut at = part.start;
            while at < part.end {
                let Some(piece) = layout.piece_at(at) else { break };
                let whole = layout.range_of(piece.entry).unwrap_or(piece.range);
                let end = whole.end.min(part.end);
                self.verified_of(piece.entry, end.since(at).get());
                at = end;
            }
        }
    }

    fn verified_of(&mut self, id: EntryId, bytes: u64) {
        let Some(held) = self.entries.get_mut(&id) else { return };
        held.unverified = held.unverified.saturating_sub(bytes);
        if held.is_done() {
            self.release(id);
        }
    }

    /// Whether the sink may say that it stored this entry: it requested and verified all of it, or
    /// needed nothing. None if the entry is not held.
    pub(super) fn may_be_stored(&self, id: EntryId) -> Option<bool> {
        let held = self.entries.get(&id)?;
        Some(held.awaited && held.answered && held.unverified == 0)
    }

    /// What becomes of this entry is known.
    pub(super) fn settle(&mut self, id: EntryId) {
        let Some(held) = self.entries.get_mut(&id) else { return };
        held.awaited = false;
        if held.is_done() {
            self.release(id);
        }
    }

    /// The stream ended at this size; `beyond` is the range after its end.
    pub(super) fn end_stream(&mut self, id: EntryId, size: u64, beyond: &Range<Offset>) {
        let cut = self.live.remove(beyond.clone()).get();
        if let Some(held) = self.entries.get_mut(&id) {
            held.entry.kind = EntryKind::File { size };
            held.range = held.range.take().map(|range| range.start..beyond.start);
        }
        self.verified_of(id, cut);
    }

    /// Releases an entry that failed. Returns its range.
    pub(super) fn drop_entry(&mut self, id: EntryId) -> Option<Range<Offset>> {
        let range = self.release(id)?;
        self.live.remove(range.clone());
        Some(range)
    }

    fn release(&mut self, id: EntryId) -> Option<Range<Offset>> {
        let held = self.entries.remove(&id)?;
        self.paths -= path_bytes(&held.entry);
        self.recent.insert(id, held.entry.path);
        self.order.push_back(id);
        if self.order.len() > MAX_RECENT
            && let Some(oldest) = self.order.pop_front()
        {
            self.recent.remove(&oldest);
        }
        held.range
    }
}

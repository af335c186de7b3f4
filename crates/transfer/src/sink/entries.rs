//! The entries that are not complete.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use packtrain_object::{CHUNK, Entry, EntryId, EntryKind, FileKey};
use packtrain_units::Offset;

use crate::limits::path_bytes;
use crate::path_digests::PathKey;

/// Entries from their segment until they are complete or failed.
#[derive(Debug, Default)]
pub(super) struct Entries {
    items: BTreeMap<EntryId, Item>,
    /// Bytes of their paths and link targets.
    paths: u64,
    /// The files and links among them, by digests of their paths. Two of one path would write one
    /// temporary, or with `--inplace` one file.
    taken: HashMap<PathKey, EntryId>,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) entry: Entry,
    pub(super) range: Option<Range<Offset>>,
    pub(super) stage: Stage,
    /// Number of its pieces; `u64::MAX` while the end of a stream is not known.
    pub(super) pieces: u64,
    /// Pieces verified in this run, or found valid from an earlier one.
    pub(super) verified: u64,
    /// Its number in the journal, if it is journalled.
    pub(super) journal: Option<u32>,
    /// Size of the temporary of an earlier run.
    pub(super) temporary: Option<u64>,
    /// Size of the regular file under its final name, if there is one.
    pub(super) old: Option<u64>,
    /// Whether its size was unknown when it was announced.
    pub(super) stream: bool,
    /// The first name of the file, if it is one of several.
    pub(super) group: Option<EntryId>,
    /// Whether its chunk may have been planned without it.
    pub(super) is_late: bool,
    /// Digest of its path.
    key: PathKey,
    /// Whether an earlier entry has its path.
    pub(super) is_repeated: bool,
}

/// State of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its target is being examined.
    Examining,
    /// It waits for another name of the same file.
    Waiting,
    /// It is becoming a further name of a file.
    Linking,
    /// The digests of the whole file are being compared.
    Comparing,
    /// A directory, link or empty file is being made.
    Making,
    /// Its bytes are moving.
    Moving,
    /// All its bytes are verified; it waits for a sync.
    Complete,
    /// It is being renamed to its final name.
    Committing,
}

impl Item {
    /// `key` is the digest of its path.
    pub(super) fn new(entry: Entry, key: PathKey, range: Option<Range<Offset>>) -> Self {
        let stream = entry.kind == EntryKind::Stream;
        let pieces = if stream { u64::MAX } else { pieces(entry.size().unwrap_or_default()) };
        Self {
            entry,
            range,
            stage: Stage::Examining,
            pieces,
            verified: 0,
            journal: None,
            temporary: None,
            old: None,
            stream,
            group: None,
            is_late: false,
            key,
            is_repeated: false,
        }
    }

    /// The stream ended at this size.
    pub(super) fn end_stream(&mut self, size: u64) {
        self.entry.kind = EntryKind::File { size };
        self.pieces = pieces(size);
        let range = self.range.take().map(|r| r.start..Offset(r.start.0 + size));
        self.range = range.filter(|r| r.start < r.end);
    }

    /// Its size in bytes; zero for entries without one.
    pub(super) fn size(&self) -> u64 {
        self.entry.size().unwrap_or_default()
    }

    /// Whether the layout packs it with other files in one chunk.
    pub(super) fn is_small(&self) -> bool {
        !self.stream && self.range.is_some() && self.size() < CHUNK.get()
    }

    /// Whether it waits for another name in this group.
    pub(super) fn waits_in(&self, group: EntryId) -> bool {
        self.stage == Stage::Waiting && self.group == Some(group)
    }

    /// Its key in the journal.
    pub(super) fn key(&self) -> FileKey {
        FileKey { path: self.entry.path.clone(), size: self.size(), mtime: self.entry.mtime }
    }
}

fn pieces(size: u64) -> u64 {
    size.div_ceil(CHUNK.get())
}

impl Entries {
    /// Adds an entry. It is marked as repeated if another that is not complete has its path.
    pub(super) fn insert(&mut self, id: EntryId, mut item: Item) {
        self.paths += path_bytes(&item.entry);
        item.is_repeated |= self.taken.contains_key(&item.key);
        // Directories of one path are merged.
        if !item.is_repeated && item.entry.kind != EntryKind::Directory {
            self.taken.insert(item.key, id);
        }
        if let Some(old) = self.items.insert(id, item) {
            self.paths -= path_bytes(&old.entry);
        }
    }

    pub(super) fn get(&self, id: EntryId) -> Option<&Item> {
        self.items.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: EntryId) -> Option<&mut Item> {
        self.items.get_mut(&id)
    }

    pub(super) fn remove(&mut self, id: EntryId) -> Option<Item> {
        let item = self.items.remove(&id)?;
        self.paths -= path_bytes(&item.entry);
        if self.taken.get(&item.key) == Some(&id) {
            self.taken.remove(&item.key);
        }
        Some(item)
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Bytes of the paths and link targets of all of them.
    pub(super) fn paths(&self) -> u64 {
        self.paths
    }

    pub(super) fn is_moving(&self, id: EntryId) -> bool {
        self.get(id).is_some_and(|item| item.stage == Stage::Moving)
    }
}

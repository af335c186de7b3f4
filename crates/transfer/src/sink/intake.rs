//! Accepts segments of the manifest.
//!
//! A chunk of small files can be planned when it is closed to further files and all its files are
//! decided. A large file can be planned when it is decided.

use std::collections::BTreeMap;
use std::ops::Range;

use packtrain_object::manifest::decode_segment;
use packtrain_object::{ChunkIndex, EntryId};
use packtrain_units::{ByteCount, Offset};

use super::Sink;
use super::entries::{Item, Stage};
use crate::action::SinkAction;
use crate::failure::{Failure, protocol};
use crate::limits::{MAX_HELD, MAX_HELD_PATHS, path_bytes};

/// State of the manifest.
#[derive(Debug, Default)]
pub(super) struct Intake {
    count: u32,
    ended: bool,
    /// Segments being examined: first entry and count.
    examining: BTreeMap<EntryId, u32>,
    /// Chunks of small files that are not planned yet.
    small: BTreeMap<ChunkIndex, SmallChunk>,
    /// The chunk to which the next small file may still be added.
    open: Option<ChunkIndex>,
}

#[derive(Debug, Default)]
struct SmallChunk {
    /// Files in this chunk that are not decided.
    undecided: u32,
    /// Whether no more files can be added.
    closed: bool,
}

impl Intake {
    /// Number of segments and chunks held.
    pub(super) fn held(&self) -> usize {
        self.examining.len() + self.small.len()
    }

    pub(super) fn count(&self) -> u64 {
        u64::from(self.count)
    }

    pub(super) fn is_ended(&self) -> bool {
        self.ended
    }

    pub(super) fn knows(&self, id: EntryId) -> bool {
        id.0 < self.count
    }

    /// Ends the examination of a segment. Returns its number of entries.
    pub(super) fn examined(&mut self, first: EntryId) -> Option<u32> {
        self.examining.remove(&first)
    }

    /// A file was laid out. Returns the previous chunk if that can be planned now.
    fn laid_out(&mut self, range: &Range<Offset>, small: bool) -> Option<ChunkIndex> {
        let chunk = small.then(|| ChunkIndex::of(range.start));
        if let Some(chunk) = chunk {
            self.small.entry(chunk).or_default().undecided += 1;
        }
        if self.open == chunk {
            return None;
        }
        let before = std::mem::replace(&mut self.open, chunk)?;
        self.close(before)
    }

    fn close(&mut self, chunk: ChunkIndex) -> Option<ChunkIndex> {
        self.small.get_mut(&chunk)?.closed = true;
        self.take_ready(chunk)
    }

    fn take_ready(&mut self, chunk: ChunkIndex) -> Option<ChunkIndex> {
        let small = self.small.get(&chunk)?;
        if !small.closed || small.undecided > 0 {
            return None;
        }
        self.small.remove(&chunk);
        Some(chunk)
    }

    /// A small file that starts at `at` is decided. Returns its chunk if that can be planned now.
    pub(super) fn decided(&mut self, at: Offset) -> Option<ChunkIndex> {
        let chunk = ChunkIndex::of(at);
        let small = self.small.get_mut(&chunk)?;
        small.undecided = small.undecided.saturating_sub(1);
        self.take_ready(chunk)
    }
}

impl Sink {
    pub(super) fn take_manifest(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let (first, mut entries) =
            decode_segment(bytes).map_err(|error| protocol(&error.to_string()))?;
        if self.intake.ended || first.0 != self.intake.count || entries.is_empty() {
            return Err(protocol("a manifest segment out of order"));
        }
        if self.entries.len() + entries.len() > MAX_HELD {
            return Err(protocol("more entries than were wanted"));
        }
        // All entries of the segment are checked before any is acted on.
        for entry in &mut entries {
            self.requested.check(entry)?;
            self.announced.add(entry)?;
            self.requested.strip(entry);
        }
        let paths: u64 = entries.iter().map(path_bytes).sum();
        if self.entries.paths() + paths > MAX_HELD_PATHS {
            return Err(protocol("longer paths than were wanted"));
        }
        let count = u32::try_from(entries.len()).map_err(|_| protocol("too many entries"))?;
        let end = first.0.checked_add(count).ok_or_else(|| protocol("too many entries"))?;
        for (id, entry) in (first.0..end).map(EntryId).zip(&entries) {
            let range = self
                .layout
                .try_push(id, &entry.kind)
                .map_err(|error| protocol(&error.to_string()))?;
            self.directories.announce(&self.options, entry);
            self.tally.add_known(ByteCount(entry.size().unwrap_or_default()));
            if entry.is_file() {
                self.tally.add_file();
            }
            let mut item = Item::new(entry.clone(), range.clone());
            item.group = self.links.announce(id, entry)?;
            if let Some(range) = range
                && let Some(ready) = self.intake.laid_out(&range, item.is_small())
            {
                self.planner.add_chunk(ready);
            }
            self.entries.insert(id, item);
        }
        self.intake.count = end;
        self.intake.examining.insert(first, count);
        self.out.push_back(SinkAction::Examine(first, entries));
        Ok(())
    }

    pub(super) fn take_manifest_end(&mut self, entries: u64) -> Result<(), Failure> {
        if self.intake.ended || entries != self.intake.count() {
            return Err(protocol("the manifest ended at another count than was sent"));
        }
        self.intake.ended = true;
        if let Some(open) = self.intake.open.take()
            && let Some(ready) = self.intake.close(open)
        {
            self.planner.add_chunk(ready);
        }
        Ok(())
    }

    /// The entry's target was examined and, if requested, compared. Its chunk may now be planned.
    pub(super) fn decided(&mut self, id: EntryId) {
        let Some(item) = self.entries.get(id) else { return };
        debug_assert!(matches!(item.stage, Stage::Examining | Stage::Comparing));
        if item.is_small()
            && !item.is_late
            && let Some(range) = &item.range
            && let Some(ready) = self.intake.decided(range.start)
        {
            self.planner.add_chunk(ready);
        }
    }

    pub(super) fn take_stream_end(&mut self, id: EntryId, size: u64) -> Result<(), Failure> {
        self.layout.end_stream(id, size).map_err(|error| protocol(&error.to_string()))?;
        self.tally.add_known(ByteCount(size));
        let end = self.layout.end();
        self.planner.cut(end);
        self.chunks.cut(end);
        let Some(item) = self.entries.get_mut(id) else { return Ok(()) };
        let stage = item.stage;
        item.end_stream(size);
        if stage != Stage::Moving {
            return Ok(());
        }
        self.out.push_back(SinkAction::EndStream(id, ByteCount(size)));
        if size == 0 {
            self.make(id);
        } else {
            self.complete_if_all(id);
        }
        Ok(())
    }
}

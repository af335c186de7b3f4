//! Accepts segments of the manifest.
//!
//! A chunk of small files can be planned when it is closed to further files and all its files are
//! decided; a chunk of very many files is planned in parts. A large file can be planned when it is
//! decided.

use std::collections::{BTreeMap, VecDeque};

use packtrain_object::manifest::decode_segment;
use packtrain_object::{ChunkIndex, EntryId};
use packtrain_units::ByteCount;

use super::Sink;
use super::entries::{Item, Stage};
use crate::action::SinkAction;
use crate::failure::{Failure, protocol};
use crate::limits::{MAX_HELD, MAX_HELD_PATHS, MAX_PART_FILES, MAX_PART_PATHS, path_bytes};
use crate::message::Message;

/// State of the manifest.
#[derive(Debug, Default)]
pub(super) struct Intake {
    count: u32,
    ended: bool,
    /// Segments being examined: first entry and count.
    examining: BTreeMap<EntryId, u32>,
    /// Segments that were examined and not answered, because the disk is behind: the source goes on
    /// with its walk when it has the answer.
    unanswered: VecDeque<EntryId>,
    /// Parts of chunks of small files that are not planned yet, by their first entry.
    small: BTreeMap<EntryId, SmallPart>,
    /// The part to which the next small file may still be added.
    open: Option<EntryId>,
    /// The chunk of the last part.
    chunk: Option<ChunkIndex>,
}

/// The small files of a chunk, or some of them: a chunk of tiny files has more than the source may
/// announce before any is complete.
#[derive(Debug)]
struct SmallPart {
    chunk: ChunkIndex,
    /// Whether it is the first part of its chunk.
    is_first: bool,
    last: EntryId,
    files: u32,
    /// Bytes of the paths of its files.
    paths: u64,
    /// Files that are not decided.
    undecided: u32,
    /// Whether no more files can be added.
    closed: bool,
}

/// A part that can be planned: its chunk, and whether it is the first part of that.
type Ready = (ChunkIndex, bool);

impl Intake {
    /// Number of segments and chunks held.
    pub(super) fn held(&self) -> usize {
        self.examining.len() + self.unanswered.len() + self.small.len()
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

    /// Ends the examination of a segment, which then waits for its answer. Returns its number of
    /// entries.
    pub(super) fn examined(&mut self, first: EntryId) -> Option<u32> {
        let count = self.examining.remove(&first)?;
        self.unanswered.push_back(first);
        Some(count)
    }

    /// A file was laid out. Returns the previous part if that can be planned now.
    fn laid_out(&mut self, id: EntryId, item: &Item) -> Option<Ready> {
        let range = item.range.as_ref()?;
        let chunk = item.is_small().then(|| ChunkIndex::of(range.start));
        let paths = path_bytes(&item.entry);
        if let Some(part) = self.open.and_then(|open| self.small.get_mut(&open))
            && Some(part.chunk) == chunk
            && part.files < MAX_PART_FILES
            && part.paths < MAX_PART_PATHS
        {
            part.last = id;
            part.paths += paths;
            part.files += 1;
            part.undecided += 1;
            return None;
        }
        let before = self.open.take();
        if let Some(chunk) = chunk {
            let is_first = self.chunk.replace(chunk) != Some(chunk);
            let (files, undecided, closed) = (1, 1, false);
            let part = SmallPart { chunk, is_first, last: id, files, paths, undecided, closed };
            self.small.insert(id, part);
            self.open = Some(id);
        }
        self.close(before?)
    }

    fn close(&mut self, part: EntryId) -> Option<Ready> {
        self.small.get_mut(&part)?.closed = true;
        self.take_ready(part)
    }

    fn take_ready(&mut self, first: EntryId) -> Option<Ready> {
        let part = self.small.get(&first)?;
        if !part.closed || part.undecided > 0 {
            return None;
        }
        let part = self.small.remove(&first)?;
        Some((part.chunk, part.is_first))
    }

    /// A small file is decided. Returns its part if that can be planned now.
    fn decided(&mut self, id: EntryId) -> Option<Ready> {
        let (&first, part) = self.small.range_mut(..=id).next_back()?;
        if id > part.last {
            return None;
        }
        part.undecided = part.undecided.saturating_sub(1);
        self.take_ready(first)
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
        let mut known = Vec::with_capacity(entries.len());
        for entry in &mut entries {
            self.requested.check(entry)?;
            known.push(self.announced.add(entry)?);
            self.requested.strip(entry);
        }
        let paths: u64 = entries.iter().map(path_bytes).sum();
        if self.entries.paths() + paths > MAX_HELD_PATHS {
            return Err(protocol("longer paths than were wanted"));
        }
        let count = u32::try_from(entries.len()).map_err(|_| protocol("too many entries"))?;
        let end = first.0.checked_add(count).ok_or_else(|| protocol("too many entries"))?;
        let ids = (first.0..end).map(EntryId);
        for ((id, entry), (key, is_repeated)) in ids.zip(&entries).zip(known) {
            let range = self
                .layout
                .try_push(id, &entry.kind)
                .map_err(|error| protocol(&error.to_string()))?;
            self.directories.announce(&self.options, entry)?;
            self.tally.add_known(ByteCount(entry.size().unwrap_or_default()));
            if entry.is_file() {
                self.tally.add_file();
            }
            let mut item = Item::new(entry.clone(), key, range);
            item.group = self.links.announce(id, entry)?;
            item.is_repeated = is_repeated;
            let ready = self.intake.laid_out(id, &item);
            self.plan_part(ready);
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
        let ready = self.intake.open.take().and_then(|open| self.intake.close(open));
        self.plan_part(ready);
        Ok(())
    }

    /// Answers segments unless the disk is behind. Files without data wait for no request, so nothing
    /// else would hold their source.
    pub(super) fn answer_if_kept_up(&mut self) {
        if !self.durability.is_behind() {
            self.answer_segments();
        }
    }

    /// Answers all segments that were examined.
    pub(super) fn answer_segments(&mut self) {
        for first in std::mem::take(&mut self.intake.unanswered) {
            let (segment, present) = (Some(first), self.tally.take_present());
            self.send(Message::Need { segment, ranges: Vec::new(), present, again: false });
        }
    }

    fn plan_part(&mut self, ready: Option<Ready>) {
        match ready {
            Some((chunk, true)) => self.planner.add_chunk(chunk),
            // The source may have read the chunk for the first part.
            Some((chunk, false)) => self.planner.add_again(chunk),
            None => {}
        }
    }

    /// The entry's target was examined and, if requested, compared. Its chunk may now be planned.
    pub(super) fn decided(&mut self, id: EntryId) {
        let Some(item) = self.entries.get(id) else { return };
        debug_assert!(matches!(item.stage, Stage::Examining | Stage::Comparing));
        if item.is_small() && !item.is_late {
            let ready = self.intake.decided(id);
            self.plan_part(ready);
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

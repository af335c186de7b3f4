//! The mapping between bytes of files and offsets: a pure function of the manifest, so both ends
//! compute the same layout without exchanging it.
//!
//! A file of a chunk or more starts on a chunk boundary, and so does the file after it. Smaller
//! files are packed one after another; one that does not fit in the rest of the chunk starts the
//! next. A chunk therefore belongs to one big file or to whole small ones. A stream starts on a
//! boundary, is last, and occupies the rest of the space until its end is known.

use std::collections::VecDeque;
use std::ops::Range;

use packtrain_units::{ByteCount, Offset};

use crate::chunk::{CHUNK_LEN, ChunkIndex, EntryId, SPACE_END};
use crate::entry::EntryKind;

/// The part of one entry that lies in one chunk.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// The file that the bytes belong to.
    pub entry: EntryId,
    /// Their position in the file, in bytes; a multiple of [`crate::CHUNK`].
    pub file_offset: u64,
    /// Their position in the object.
    pub range: Range<Offset>,
    /// Whether they are the entire file, so that their digest is the file's. Never true for a
    /// stream: the digest of its first chunk must not depend on when its end became known.
    pub whole: bool,
}

impl Piece {
    /// Its number of bytes: at least one, at most [`crate::CHUNK`].
    pub const fn size(&self) -> ByteCount {
        self.range.end.since(self.range.start)
    }
}

/// Why an entry cannot be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The sizes add up to more than the offset space.
    #[error("the files are larger together than 2^63 bytes")]
    Full,
    /// Entries must come in manifest order.
    #[error("an entry is out of order")]
    OutOfOrder,
    /// A stream must be the last entry with content.
    #[error("a file follows a stream of unknown length")]
    AfterStream,
    /// The entry is not a stream that is still open, or the size does not fit the space.
    #[error("the end of a stream does not fit")]
    NotAStream,
}

/// The offset map of one object. Lookups take O(log n); a file takes 16 bytes (32 if it is
/// larger than a chunk).
#[derive(Clone, Debug, Default)]
pub struct Layout {
    placed: VecDeque<Placed>,
    /// Sizes of the entries whose `len` is [`BIG`], by entry.
    big: VecDeque<(EntryId, u64)>,
    /// The position of the next small file.
    cursor: u64,
    last: Option<EntryId>,
    stream: Option<EntryId>,
    open: bool,
}

/// Value of `len` for an entry whose size is in the other table.
const BIG: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Placed {
    start: u64,
    id: EntryId,
    len: u32,
}

impl Layout {
    /// The layout of no entries.
    pub fn new() -> Self {
        Self::default()
    }

    /// Places the next entry; `None` for an entry without bytes (directory, link, empty file) and
    /// for one that [`Layout::try_push`] refuses.
    pub fn push(&mut self, id: EntryId, kind: &EntryKind) -> Option<Range<Offset>> {
        self.try_push(id, kind).ok().flatten()
    }

    /// Places the next entry; `None` for one without bytes. An error leaves the layout unchanged;
    /// it occurs at the same entry at both ends.
    pub fn try_push(
        &mut self,
        id: EntryId,
        kind: &EntryKind,
    ) -> Result<Option<Range<Offset>>, LayoutError> {
        if self.last.is_some_and(|last| id <= last) {
            return Err(LayoutError::OutOfOrder);
        }
        let size = match *kind {
            EntryKind::Directory | EntryKind::Symlink { .. } | EntryKind::File { size: 0 } => {
                self.last = Some(id);
                return Ok(None);
            }
            EntryKind::File { size } => Some(size),
            EntryKind::Stream => None,
        };
        if self.stream.is_some() {
            return Err(LayoutError::AfterStream);
        }
        let start = match size {
            Some(n) if n <= room_in_chunk(self.cursor) && n < CHUNK_LEN => self.cursor,
            _ => self.cursor.next_multiple_of(CHUNK_LEN),
        };
        let left = SPACE_END.0 - start;
        let len = size.unwrap_or(left);
        if len > left || len == 0 {
            return Err(LayoutError::Full);
        }
        let small = u32::try_from(len).ok().filter(|_| len < CHUNK_LEN);
        if small.is_none() {
            self.big.push_back((id, len));
        }
        self.placed.push_back(Placed { start, id, len: small.unwrap_or(BIG) });
        let end = start + len;
        self.cursor = if small.is_some() { end } else { end.next_multiple_of(CHUNK_LEN) };
        self.last = Some(id);
        if size.is_none() {
            (self.stream, self.open) = (Some(id), true);
        }
        Ok(Some(Offset(start)..Offset(end)))
    }

    /// The range of an entry; `None` if it has no bytes, is unknown or forgotten.
    pub fn range_of(&self, id: EntryId) -> Option<Range<Offset>> {
        let at = self.placed.partition_point(|p| p.id < id);
        let placed = self.placed.get(at).filter(|p| p.id == id)?;
        let range = self.extent(placed);
        (range.start < range.end).then_some(range)
    }

    /// The pieces in a chunk, in offset order.
    pub fn pieces(&self, chunk: ChunkIndex) -> Vec<Piece> {
        let window = chunk.range();
        let first = self.placed.partition_point(|p| p.start <= window.start.0).saturating_sub(1);
        self.placed
            .range(first.min(self.placed.len())..)
            .take_while(|p| p.start < window.end.0)
            .filter_map(|p| self.piece(p, &window))
            .collect()
    }

    /// The piece that contains the byte at `offset`; `None` in a gap.
    pub fn piece_at(&self, offset: Offset) -> Option<Piece> {
        let after = self.placed.partition_point(|p| p.start <= offset.0);
        let placed = self.placed.get(after.checked_sub(1)?)?;
        self.piece(placed, &ChunkIndex::of(offset).range()).filter(|p| p.range.contains(&offset))
    }

    /// The end of the last byte placed so far; the end of the space while a stream is open.
    pub fn end(&self) -> Offset {
        self.placed.back().map_or(Offset(self.cursor), |p| self.extent(p).end)
    }

    /// Sets the size of the stream. Its pieces shrink accordingly.
    pub fn end_stream(&mut self, id: EntryId, size: u64) -> Result<(), LayoutError> {
        let Some(placed) = self.placed.back().copied() else { return Err(LayoutError::NotAStream) };
        if self.stream != Some(id) || placed.id != id || !self.open {
            return Err(LayoutError::NotAStream);
        }
        if size > SPACE_END.0 - placed.start {
            return Err(LayoutError::Full);
        }
        if let Some(last) = self.big.back_mut() {
            last.1 = size;
        }
        self.cursor = (placed.start + size).next_multiple_of(CHUNK_LEN);
        self.open = false;
        Ok(())
    }

    /// Whether the last entry is a stream whose end is not known yet.
    pub const fn stream_open(&self) -> bool {
        self.open
    }

    /// Drops entries that end at or before the start of `chunk`, to limit memory.
    pub fn forget_below(&mut self, chunk: ChunkIndex) {
        let floor = chunk.start();
        let keep = self.placed.partition_point(|p| self.extent(p).end <= floor);
        // The last entry stays, because it determines the end of the object.
        let keep = keep.min(self.placed.len().saturating_sub(1));
        self.placed.drain(..keep);
        let first = self.placed.front().map_or(EntryId(0), |p| p.id);
        let keep = self.big.partition_point(|(id, _)| *id < first);
        self.big.drain(..keep);
        if self.placed.capacity() > 4 * self.placed.len() + 1024 {
            self.placed.shrink_to(2 * self.placed.len());
        }
    }

    fn extent(&self, placed: &Placed) -> Range<Offset> {
        let len = if placed.len == BIG { self.big_size(placed.id) } else { u64::from(placed.len) };
        Offset(placed.start)..Offset(placed.start + len)
    }

    fn big_size(&self, id: EntryId) -> u64 {
        let at = self.big.partition_point(|(other, _)| *other < id);
        self.big.get(at).map_or(0, |(_, size)| *size)
    }

    fn piece(&self, placed: &Placed, window: &Range<Offset>) -> Option<Piece> {
        let extent = self.extent(placed);
        let range = extent.start.max(window.start)..extent.end.min(window.end);
        (range.start < range.end).then(|| Piece {
            entry: placed.id,
            file_offset: range.start.0 - extent.start.0,
            whole: range == extent && self.stream != Some(placed.id),
            range,
        })
    }
}

/// Bytes from `at` to the end of its chunk.
const fn room_in_chunk(at: u64) -> u64 {
    CHUNK_LEN - at % CHUNK_LEN
}

#[cfg(test)]
mod tests;

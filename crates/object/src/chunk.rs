//! The grid of the offset space, and the numbers of entries.

use std::fmt;
use std::ops::Range;

use packtrain_units::{ByteCount, Offset};
use serde::{Deserialize, Serialize};

pub(crate) const CHUNK_LEN: u64 = 4 << 20;
pub(crate) const BLOCK_LEN: u64 = 256 << 10;

/// The unit of digests: bytes that are verified, journalled and requested again together.
pub const CHUNK: ByteCount = ByteCount(CHUNK_LEN);

/// The unit that a writer hashes while it writes; sixteen make a chunk.
pub const BLOCK: ByteCount = ByteCount(BLOCK_LEN);

/// The end of the offset space: 2^63, a multiple of [`CHUNK`]. No offset is larger, so the sum of
/// an offset and a length never wraps.
pub const SPACE_END: Offset = Offset(1 << 63);

/// An entry's index in the manifest, from zero.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct EntryId(pub u32);

impl EntryId {
    /// The number as an index into a table of entries.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// A chunk's index in the offset space: its first offset divided by [`CHUNK`].
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct ChunkIndex(pub u64);

impl ChunkIndex {
    /// The chunk that contains `offset`.
    pub const fn of(offset: Offset) -> Self {
        Self(offset.0 / CHUNK_LEN)
    }

    /// The chunk's first offset; the end of the space for a chunk beyond it.
    pub const fn start(self) -> Offset {
        let at = self.0.saturating_mul(CHUNK_LEN);
        if at > SPACE_END.0 { SPACE_END } else { Offset(at) }
    }

    /// The chunk's offsets; an empty range for a chunk beyond the space.
    pub const fn range(self) -> Range<Offset> {
        self.start()..self.next().start()
    }

    /// The chunk after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The chunks that `range` overlaps, ascending; none if it is empty. Clip a peer's range to the
    /// layout before iterating over its chunks.
    pub fn covering(range: &Range<Offset>) -> impl Iterator<Item = Self> + use<> {
        let end = if range.start < range.end { (range.end.0 - 1) / CHUNK_LEN + 1 } else { 0 };
        (range.start.0 / CHUNK_LEN..end).map(Self)
    }
}

impl fmt::Display for ChunkIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chunk {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_tile_the_space() {
        assert_eq!(ChunkIndex::of(Offset(CHUNK_LEN - 1)), ChunkIndex(0));
        assert_eq!(ChunkIndex::of(Offset(CHUNK_LEN)), ChunkIndex(1));
        assert_eq!(ChunkIndex(3).range(), Offset(3 * CHUNK_LEN)..Offset(4 * CHUNK_LEN));
        assert_eq!(ChunkIndex::of(SPACE_END).range(), SPACE_END..SPACE_END);
        assert_eq!(ChunkIndex(u64::MAX).range(), SPACE_END..SPACE_END);
    }

    #[test]
    fn covering_counts_touched_chunks_only() {
        let of = |a, b| ChunkIndex::covering(&(Offset(a)..Offset(b))).map(|c| c.0).collect();
        let none: Vec<u64> = of(7, 7);
        assert_eq!(none, Vec::<u64>::new());
        assert_eq!(of(0, 1), [0]);
        assert_eq!(of(CHUNK_LEN - 1, CHUNK_LEN + 1), [0, 1]);
        assert_eq!(of(CHUNK_LEN, 2 * CHUNK_LEN), [1]);
    }
}

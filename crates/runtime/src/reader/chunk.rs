//! One chunk of the object in memory, and parts of it that are sent.

use std::ops::Range;
use std::sync::Arc;

use packtrain_disk::SourceFile;
use packtrain_object::Piece;
use packtrain_units::{ByteCount, Offset, RangeSet};
use parking_lot::Mutex;

/// Maximum buffers of chunks that are kept for the next ones.
const SPARE_CHUNKS: usize = 8;

/// One chunk in memory.
#[derive(Debug)]
pub struct Chunk {
    pub(super) base: Offset,
    pub(super) bytes: Vec<u8>,
    /// What could not be read, or was not to be read.
    pub(super) bad: RangeSet,
    /// The files that pieces were read from, in offset order.
    pub(super) files: Vec<(Piece, Arc<SourceFile>)>,
    pub(super) pool: Arc<BufferPool>,
}

impl Chunk {
    /// The bytes of `range`; none if the chunk does not have them or they could not be read.
    pub fn get(&self, range: &Range<Offset>) -> Option<&[u8]> {
        if self.bad.overlaps(range) {
            return None;
        }
        let start = range.start.get().checked_sub(self.base.get())? as usize;
        let end = range.end.get().checked_sub(self.base.get())? as usize;
        self.bytes.get(start..end)
    }

    /// The parts of `range` that could be read. The last chunk of a stream is shorter than what
    /// is asked of it as long as nobody knows where the stream ends.
    pub(crate) fn readable(&self, range: &Range<Offset>) -> impl Iterator<Item = Range<Offset>> {
        let end = self.base + ByteCount(self.bytes.len() as u64);
        self.bad.gaps(range.start..range.end.min(end))
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.pool.put(std::mem::take(&mut self.bytes));
    }
}

/// Part of a chunk, kept alive while it is being sent.
#[derive(Clone, Debug)]
pub struct Slice {
    chunk: Arc<Chunk>,
    range: Range<Offset>,
}

impl Slice {
    /// `range` of `chunk`; none if the chunk does not have it.
    pub(crate) fn new(chunk: &Arc<Chunk>, range: Range<Offset>) -> Option<Self> {
        chunk.get(&range)?;
        Some(Self { chunk: Arc::clone(chunk), range })
    }

    /// Part of the slice; none if it does not contain all of `range`.
    pub(crate) fn part(&self, range: Range<Offset>) -> Option<Self> {
        let within = self.range.start <= range.start && range.end <= self.range.end;
        within.then(|| Self { chunk: Arc::clone(&self.chunk), range })
    }

    /// A slice of received bytes, for forwarding.
    pub fn owned(at: Offset, bytes: Vec<u8>) -> Self {
        let range = at..at + ByteCount(bytes.len() as u64);
        let (bad, files) = (RangeSet::new(), Vec::new());
        let chunk = Chunk { base: at, bytes, bad, files, pool: Arc::default() };
        Self { chunk: Arc::new(chunk), range }
    }

    /// Where in the object they are.
    pub(crate) fn range(&self) -> &Range<Offset> {
        &self.range
    }

    /// The file that they were read from and where in it they begin, if other files may share its
    /// blocks and all of them are of one file.
    pub(crate) fn file(&self) -> Option<(&SourceFile, u64)> {
        let (start, end) = (self.range.start, self.range.end);
        let within = |piece: &Piece| piece.range.start <= start && end <= piece.range.end;
        let (piece, file) = self.chunk.files.iter().find(|(piece, _)| within(piece))?;
        Some((file.as_ref(), piece.file_offset + start.since(piece.range.start).get()))
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.chunk.get(&self.range).unwrap_or(&[])
    }

    /// Number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.range.end.since(self.range.start).get() as usize
    }
}

/// Buffers of chunks that are used again.
#[derive(Debug, Default)]
pub(super) struct BufferPool(Mutex<Vec<Vec<u8>>>);

impl BufferPool {
    /// A buffer of `len` bytes, with any content.
    pub(super) fn take(&self, len: usize) -> Vec<u8> {
        let Some(mut buffer) = self.0.lock().pop() else { return vec![0; len] };
        // The read overwrites old bytes, so only growth is zeroed.
        buffer.resize(len, 0);
        buffer
    }

    fn put(&self, buffer: Vec<u8>) {
        let mut kept = self.0.lock();
        if kept.len() < SPARE_CHUNKS {
            kept.push(buffer);
        }
    }
}

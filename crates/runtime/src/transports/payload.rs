//! The reader's chunks as the payload of a datagram flow.

use std::ops::Range;
use std::sync::Arc;

use packtrain_object::ChunkIndex;
use packtrain_proto::{Fill, Payload};
use packtrain_units::{ByteCount, Offset};

use crate::reader::{Chunk, Reader};

/// Chunks held by the network thread: the current one and those being retransmitted.
const HELD: usize = 4;

pub(super) struct ReaderPayload {
    reader: Reader,
    held: Vec<(ChunkIndex, Arc<Chunk>)>,
    /// [`Reader::replaced`] when the first of them was taken.
    replaced: u64,
}

impl ReaderPayload {
    pub(super) fn new(reader: Reader) -> Self {
        Self { replaced: reader.replaced(), reader, held: Vec::with_capacity(HELD + 1) }
    }

    fn chunk(&mut self, index: ChunkIndex) -> Option<&Chunk> {
        let replaced = self.reader.replaced();
        if std::mem::replace(&mut self.replaced, replaced) != replaced {
            self.held.clear();
        }
        let found = match self.held.iter().position(|(held, _)| *held == index) {
            Some(at) => at,
            None => {
                let chunk = self.reader.try_get(index)?;
                if self.held.len() >= HELD {
                    self.held.remove(0);
                }
                self.held.push((index, chunk));
                self.held.len() - 1
            }
        };
        Some(&self.held[found].1)
    }
}

impl Payload for ReaderPayload {
    fn fill(&mut self, at: Offset, out: &mut [u8]) -> Fill {
        let mut at = at;
        let mut out = out;
        while !out.is_empty() {
            let index = ChunkIndex::of(at);
            let step = index.range().end.since(at).get().min(out.len() as u64);
            let range = at..at + ByteCount(step);
            let stale = match self.chunk(index) {
                None => return Fill::Pending,
                Some(chunk) => chunk.get(&range).is_none(),
            };
            if stale {
                // More of the chunk may have been read in the meantime.
                self.held.retain(|(held, _)| *held != index);
            }
            let Some(chunk) = self.chunk(index) else { return Fill::Pending };
            let Some(bytes) = chunk.get(&range) else { return Fill::Failed };
            let (now, rest) = out.split_at_mut(step as usize);
            now.copy_from_slice(bytes);
            out = rest;
            at += ByteCount(step);
        }
        Fill::Ready
    }

    fn release(&mut self, _: Range<Offset>) {}
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU8, Ordering};

    use packtrain_disk::SourceFile;
    use packtrain_object::{EntryId, Piece};
    use packtrain_transfer::Failure;

    use super::*;
    use crate::reader::PieceSource;

    /// Each byte is the number of the entry and the number of the reading.
    #[derive(Default)]
    struct Numbered(AtomicU8);

    impl PieceSource for Numbered {
        fn read(&self, piece: &Piece, out: &mut [u8]) -> Result<Option<Arc<SourceFile>>, Failure> {
            out.fill(16 * piece.entry.0 as u8 + self.0.load(Ordering::Relaxed));
            Ok(None)
        }

        fn read_small(&self, pieces: &[Piece], out: &mut [u8]) -> Vec<Result<(), Failure>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            let mut read = |piece| self.read(piece, crate::reader::part_of(pieces, piece, out));
            pieces.iter().map(|piece| read(piece).map(drop)).collect()
        }
    }

    /// The byte at `at`, once it is read.
    fn byte(payload: &mut ReaderPayload, at: u64) -> u8 {
        let mut out = [0];
        loop {
            match payload.fill(Offset(at), &mut out) {
                Fill::Ready => return out[0],
                Fill::Failed => return u8::MAX,
                Fill::Pending => std::thread::yield_now(),
            }
        }
    }

    #[test]
    fn pieces_that_are_added_or_read_again_are_not_those_held_before() {
        let piece = |id: u32| Piece {
            entry: EntryId(id),
            file_offset: 0,
            range: Offset(u64::from(id))..Offset(u64::from(id) + 1),
            whole: true,
        };
        let reader = Reader::new(Numbered::default(), Arc::default(), |_| {});
        let mut payload = ReaderPayload::new(reader.clone());
        reader.announce(ChunkIndex(0), vec![piece(1), piece(3)]);
        assert_eq!([1, 3].map(|at| byte(&mut payload, at)), [0x11, 0x31]);
        // What was not read is not sent.
        assert_eq!(byte(&mut payload, 2), u8::MAX);
        reader.announce(ChunkIndex(0), vec![piece(2)]);
        assert_eq!(byte(&mut payload, 2), 0x22);
        // It did not match its digest.
        reader.invalidate(ChunkIndex(0));
        assert_eq!(byte(&mut payload, 2), 0x23);
        reader.close();
    }
}

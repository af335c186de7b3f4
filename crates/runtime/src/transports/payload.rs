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
}

impl ReaderPayload {
    pub(super) fn new(reader: Reader) -> Self {
        Self { reader, held: Vec::with_capacity(HELD + 1) }
    }

    fn chunk(&mut self, index: ChunkIndex) -> Option<&Chunk> {
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

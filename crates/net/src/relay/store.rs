//! Stores bytes while the next hop is slow.
//!
//! Two hops in series reach the rate of the path only on average. Without a buffer between them
//! each is stopped by the other's slow moments, and both together move what the slower one moves at
//! each moment: with independent losses a fifth less, or worse.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use tokio::net::TcpStream;

use super::RelayMemory;

/// Size of a block, in bytes. Memory is lent in blocks.
pub const BLOCK: usize = 64 << 10;
/// Maximum blocks per write.
const MAX_SLICES: usize = 16;

struct Block {
    bytes: Box<[u8]>,
    begin: usize,
    end: usize,
}

/// The result of a read.
pub(super) enum ReadResult {
    Bytes(usize),
    /// The input has ended.
    Ended,
    /// No memory was lent.
    Full,
}

/// A queue of bytes in lent blocks.
pub(super) struct Store<'a, R: RelayMemory> {
    room: &'a R,
    blocks: VecDeque<Block>,
    /// A block that is not lent, kept to avoid an allocation.
    idle: Option<Box<[u8]>>,
}

impl<'a, R: RelayMemory> Store<'a, R> {
    pub(super) fn new(room: &'a R) -> Self {
        Self { room, blocks: VecDeque::new(), idle: None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Reads once.
    pub(super) fn read(&mut self, from: &TcpStream) -> io::Result<ReadResult> {
        let block = match self.blocks.back_mut() {
            Some(block) if block.end < BLOCK => block,
            _ => {
                if !self.room.lend_block(self.blocks.len()) {
                    return Ok(ReadResult::Full);
                }
                let bytes = self.idle.take().unwrap_or_else(|| vec![0; BLOCK].into());
                self.blocks.push_back(Block { bytes, begin: 0, end: 0 });
                self.blocks.back_mut().expect("it was just put there")
            }
        };
        let got = from.try_read(&mut block.bytes[block.end..]);
        if let Ok(got) = got {
            block.end += got;
        }
        if block.end == 0 {
            self.pop();
        }
        got.map(|got| if got == 0 { ReadResult::Ended } else { ReadResult::Bytes(got) })
    }

    /// Writes once.
    pub(super) fn write(&mut self, to: &TcpStream) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); MAX_SLICES];
        let mut count = 0;
        for (slice, block) in slices.iter_mut().zip(&self.blocks) {
            *slice = IoSlice::new(&block.bytes[block.begin..block.end]);
            count += 1;
        }
        let put = to.try_write_vectored(&slices[..count])?;
        let mut left = put;
        while let Some(block) = self.blocks.front_mut() {
            let part = left.min(block.end - block.begin);
            block.begin += part;
            left -= part;
            if block.begin < block.end {
                break;
            }
            self.room.return_block(block.end);
            self.forget();
        }
        Ok(put)
    }

    /// Returns an unused block.
    fn pop(&mut self) {
        self.room.return_block(0);
        self.idle = self.blocks.pop_back().map(|block| block.bytes);
    }

    fn forget(&mut self) {
        self.idle = self.blocks.pop_front().map(|block| block.bytes);
    }

    /// The queue is empty: frees the idle block too.
    pub(super) fn rest(&mut self) {
        self.idle = None;
    }
}

impl<R: RelayMemory> Drop for Store<'_, R> {
    fn drop(&mut self) {
        for block in &self.blocks {
            self.room.return_block(block.begin);
        }
    }
}

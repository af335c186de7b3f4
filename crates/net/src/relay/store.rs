//! Bytes that wait for a hop that is slow at the moment.
//!
//! Two hops in series are each as fast as the path only on average. Without room between them each is stopped
//! by the other's bad moments, and both together move what the slower of the two moves at each
//! moment: with losses of their own, a fifth less and more.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use tokio::net::TcpStream;

use super::Room;

/// The bytes of a block, which is what is lent at a time.
pub const BLOCK: usize = 64 << 10;
/// Blocks written at a time.
const MAX_SLICES: usize = 16;

struct Block {
    bytes: Box<[u8]>,
    begin: usize,
    end: usize,
}

/// What came of reading.
pub(super) enum Kept {
    Bytes(usize),
    /// Nothing more comes.
    Ended,
    /// No room.
    Full,
}

/// A queue of bytes in blocks that are lent one by one.
pub(super) struct Store<'a, R: Room> {
    room: &'a R,
    blocks: VecDeque<Block>,
    /// One that is not lent, kept so that memory is not asked for again.
    idle: Option<Box<[u8]>>,
}

impl<'a, R: Room> Store<'a, R> {
    pub(super) fn new(room: &'a R) -> Self {
        Self { room, blocks: VecDeque::new(), idle: None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Reads once.
    pub(super) fn read(&mut self, from: &TcpStream) -> io::Result<Kept> {
        let block = match self.blocks.back_mut() {
            Some(block) if block.end < BLOCK => block,
            _ => {
                if !self.room.keep(self.blocks.len()) {
                    return Ok(Kept::Full);
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
        got.map(|got| if got == 0 { Kept::Ended } else { Kept::Bytes(got) })
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
            self.room.unkeep(block.end);
            self.forget();
        }
        Ok(put)
    }

    /// Gives back a block that nothing came for.
    fn pop(&mut self) {
        self.room.unkeep(0);
        self.idle = self.blocks.pop_back().map(|block| block.bytes);
    }

    fn forget(&mut self) {
        self.idle = self.blocks.pop_front().map(|block| block.bytes);
    }

    /// Nothing waits any more: memory goes back too.
    pub(super) fn rest(&mut self) {
        self.idle = None;
    }
}

impl<R: Room> Drop for Store<'_, R> {
    fn drop(&mut self) {
        for block in &self.blocks {
            self.room.unkeep(block.begin);
        }
    }
}

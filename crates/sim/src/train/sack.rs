//! Acknowledgements with SACK blocks.

/// Number of blocks that fit beside a timestamp (RFC 2018 section 3).
pub(crate) const BLOCKS: usize = 3;

/// Contents of an acknowledgement beyond its number (RFC 2018, RFC 2883).
#[derive(Clone, Debug)]
pub(crate) struct Sack {
    blocks: [(u64, u64); BLOCKS],
    count: u8,
    /// A segment that arrived a second time.
    pub(crate) duplicate: Option<u64>,
    /// Segments that the receiver has room for after the number.
    pub(crate) room: u32,
}

impl Sack {
    /// An acknowledgement without blocks.
    pub(crate) fn new(duplicate: Option<u64>, room: u32) -> Self {
        Self { blocks: [(0, 0); BLOCKS], count: 0, duplicate, room }
    }

    /// Number of blocks.
    pub(crate) fn count(&self) -> usize {
        usize::from(self.count)
    }

    /// Received ranges, the newest first.
    pub(crate) fn blocks(&self) -> &[(u64, u64)] {
        &self.blocks[..self.count()]
    }

    /// Adds a block, if there is room for it and it is not there yet.
    pub(crate) fn push(&mut self, block: (u64, u64)) {
        if self.count() < BLOCKS && !self.blocks().contains(&block) {
            self.blocks[usize::from(self.count)] = block;
            self.count += 1;
        }
    }
}

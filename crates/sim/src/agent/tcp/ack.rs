//! Acknowledgements with SACK blocks.

use std::collections::VecDeque;

use super::ranges::Ranges;

/// Blocks that fit beside a timestamp (RFC 2018 section 3).
const BLOCKS: usize = 3;

/// What an acknowledgement says beyond its number (RFC 2018, RFC 2883).
#[derive(Clone, Debug)]
pub(crate) struct Sack {
    blocks: [(u64, u64); BLOCKS],
    count: u8,
    /// A segment that came a second time.
    pub(super) duplicate: Option<u64>,
    /// How many segments from the number on the receiver has room for.
    pub(crate) room: u32,
}

impl Sack {
    /// Received ranges, the newest first.
    pub(super) fn blocks(&self) -> &[(u64, u64)] {
        &self.blocks[..usize::from(self.count)]
    }

    fn push(&mut self, block: (u64, u64)) {
        if usize::from(self.count) < BLOCKS && !self.blocks().contains(&block) {
            self.blocks[usize::from(self.count)] = block;
            self.count += 1;
        }
    }
}

/// Which blocks to tell: the one of the newest arrival, then those told before.
#[derive(Clone, Debug, Default)]
pub(super) struct Reporter {
    /// A segment of each block told lately, the newest first.
    recent: VecDeque<u64>,
}

impl Reporter {
    /// Segment `segment` arrived out of order.
    pub(super) fn arrived(&mut self, segment: u64, held: &Ranges) {
        let block = held.around(segment);
        self.recent.retain(|told| held.around(*told).is_some_and(|b| Some(b) != block));
        self.recent.push_front(segment);
        self.recent.truncate(BLOCKS + 1);
    }

    /// The blocks of the next acknowledgement, where `held` is held beyond a gap.
    pub(super) fn report(&self, held: &Ranges, duplicate: Option<u64>, room: u32) -> Sack {
        let mut sack = Sack { blocks: [(0, 0); BLOCKS], count: 0, duplicate, room };
        // A report of a duplicate takes the place of one block.
        let room = BLOCKS - usize::from(duplicate.is_some());
        for told in &self.recent {
            if usize::from(sack.count) < room
                && let Some(block) = held.around(*told)
            {
                sack.push(block);
            }
        }
        sack
    }

    /// Nothing is held beyond a gap any more.
    pub(super) fn clear(&mut self) {
        self.recent.clear();
    }
}

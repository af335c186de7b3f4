//! Selects the SACK blocks of an acknowledgement.

use std::collections::VecDeque;

use packtrain_units::RangeSet;

use crate::train::{BLOCKS, Sack};

/// Selects the blocks to report: that of the newest arrival, then those reported before.
#[derive(Clone, Debug, Default)]
pub(super) struct Reporter {
    /// A segment of each recently reported block, the newest first.
    recent: VecDeque<u64>,
}

impl Reporter {
    /// Segment `segment` arrived out of order.
    pub(super) fn arrived(&mut self, segment: u64, held: &RangeSet<u64>) {
        let block = held.range_at(segment);
        self.recent.retain(|told| {
            let other = held.range_at(*told);
            other.is_some() && other != block
        });
        self.recent.push_front(segment);
        self.recent.truncate(BLOCKS + 1);
    }

    /// The blocks of the next acknowledgement; `held` is the data beyond a gap.
    pub(super) fn report(&self, held: &RangeSet<u64>, duplicate: Option<u64>, room: u32) -> Sack {
        let mut sack = Sack::new(duplicate, room);
        // A report of a duplicate uses the space of one block.
        let room = BLOCKS - usize::from(duplicate.is_some());
        for told in &self.recent {
            if sack.count() < room
                && let Some(block) = held.range_at(*told)
            {
                sack.push((block.start, block.end));
            }
        }
        sack
    }

    /// No data is held beyond a gap any more.
    pub(super) fn clear(&mut self) {
        self.recent.clear();
    }
}

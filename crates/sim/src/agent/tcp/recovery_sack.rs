//! Loss detection by counting (RFC 6675 section 4).

use super::input::Delivered;
use super::sender::{Phase, Sender};

/// Segments delivered above a segment that make it lost.
const DUP_THRESH: u64 = 3;

impl Sender {
    /// `IsLost` of RFC 6675 for all segments at once: those below the third highest delivered one.
    pub(super) fn sack_detect(&mut self, delivered: &mut Delivered) {
        if let Phase::Loss(_) = self.phase {
            // All but the newest are being retransmitted anyway.
            return;
        }
        let mut above = 0;
        let mut third = None;
        for range in self.board.sacked.iter().rev() {
            let count = range.end - range.start;
            if above + count >= DUP_THRESH {
                third = Some(range.end - (DUP_THRESH - above));
                break;
            }
            above += count;
        }
        if let Some(third) = third
            && self.lose_first_transmissions(third) > 0
        {
            delivered.lost = true;
        }
    }

    /// Marks every first transmission below `upto` lost that was not judged before; returns their
    /// number.
    pub(super) fn lose_first_transmissions(&mut self, upto: u64) -> u64 {
        let mut at = self.board.judged.max(self.una);
        let mut lost = 0;
        while let Some(gap) = self.board.sacked.first_gap(at..upto) {
            at = gap.end;
            lost += self.lose_run(gap.start, gap.end);
        }
        self.board.judged = self.board.judged.max(upto);
        lost
    }

    /// The same for a run of which no segment arrived.
    pub(super) fn lose_run(&mut self, from: u64, to: u64) -> u64 {
        let (mut at, mut lost) = (from, 0);
        while at < to {
            let Some(burst) = self.log.around(at).copied() else { break };
            let mut end = to.min(burst.segment + burst.count);
            if self.board.again(at).is_some() || self.board.lost.contains(at) {
                at += 1;
                continue;
            }
            if let Some(again) = (at + 1..end).find(|s| self.board.again(*s).is_some()) {
                end = again;
            }
            self.record_lost(burst.of(at), end - at);
            self.board.mark_lost(at, end);
            lost += end - at;
            at = end;
        }
        lost
    }
}

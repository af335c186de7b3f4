//! The state of segments in flight other than first transmissions.

use std::collections::{BTreeMap, VecDeque};

use packtrain_units::RangeSet;

use super::log::Transmission;

/// Sets of segments from the first unacknowledged one on. A segment in none of them is in flight by
/// its first transmission.
#[derive(Clone, Debug, Default)]
pub(super) struct Scoreboard {
    /// Reported by SACK.
    pub(super) sacked: RangeSet<u64>,
    /// Lost and not yet retransmitted.
    pub(super) lost: RangeSet<u64>,
    /// Retransmitted and in flight.
    again: BTreeMap<u64, Transmission>,
    /// The same in the order of sending; may contain segments no longer in flight.
    order: VecDeque<(u64, u64)>,
    /// First transmissions of all segments below have been judged.
    pub(super) judged: u64,
    /// The highest delivered segment, by either kind of acknowledgement.
    pub(super) highest: Option<u64>,
}

impl Scoreboard {
    /// Whether all segments in flight are first transmissions, without SACKs or losses.
    #[inline]
    pub(super) fn is_clean(&self) -> bool {
        self.sacked.is_empty() && self.lost.is_empty() && self.again.is_empty()
    }

    /// Number of segments known not to be in flight.
    #[inline]
    pub(super) fn absent(&self) -> u64 {
        self.sacked.count() + self.lost.count()
    }

    /// A segment is retransmitted.
    pub(super) fn sent_again(&mut self, segment: u64, by: Transmission) {
        self.lost.remove(segment..segment + 1);
        self.again.insert(segment, by);
        self.order.push_back((by.index, segment));
    }

    /// The retransmission in flight of a segment.
    pub(super) fn again(&self, segment: u64) -> Option<&Transmission> {
        self.again.get(&segment)
    }

    /// The oldest retransmission still in flight.
    pub(super) fn oldest_again(&mut self) -> Option<(u64, Transmission)> {
        while let Some((index, segment)) = self.order.front() {
            match self.again.get(segment) {
                Some(by) if by.index == *index => return Some((*segment, *by)),
                _ => self.order.pop_front(),
            };
        }
        None
    }

    /// Marks segments lost, for the first time or again.
    pub(super) fn mark_lost(&mut self, from: u64, to: u64) {
        if to - from == 1 {
            self.again.remove(&from);
        }
        self.lost.insert(from..to);
    }

    /// Segments were delivered: their retransmissions are no longer in flight. Returns the newest
    /// of these and their number.
    pub(super) fn delivered_again(&mut self, from: u64, to: u64) -> (Option<Transmission>, u64) {
        let mut newest: Option<Transmission> = None;
        let mut count = 0;
        if self.again.is_empty() {
            return (None, 0);
        }
        while let Some((&segment, &by)) = self.again.range(from..to).next() {
            self.again.remove(&segment);
            count += 1;
            if newest.is_none_or(|n| n.index < by.index) {
                newest = Some(by);
            }
        }
        (newest, count)
    }

    /// All segments below `una` are acknowledged.
    pub(super) fn forget_below(&mut self, una: u64) {
        self.sacked.remove(0..una);
        self.lost.remove(0..una);
        self.judged = self.judged.max(una);
        if self.again.is_empty() {
            self.order.clear();
        }
    }

    /// The timer expired: no segment is in flight any more. Returns the retransmissions that were
    /// in flight.
    pub(super) fn clear_retransmissions(&mut self) -> Vec<(u64, Transmission)> {
        self.order.clear();
        std::mem::take(&mut self.again).into_iter().collect()
    }
}

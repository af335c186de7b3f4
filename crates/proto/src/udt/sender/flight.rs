//! Units that are sent and not acknowledged, and those to retransmit.

use std::collections::VecDeque;

use packtrain_units::Time;

use crate::udt::unitset::UnitSet;

/// The units in flight. One record of 16 bytes per unit, indexed by its number.
#[derive(Debug)]
pub(crate) struct Flight {
    /// First transmissions of `acked..next`.
    units: VecDeque<Unit>,
    acked: u64,
    /// To be retransmitted: the sender's loss list.
    lost: UnitSet,
    /// Not to be sent again.
    dropped: UnitSet,
    /// Send index of the next transmission, of a new unit or of an old one.
    index: u64,
}

/// The first transmission of a unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit {
    pub(crate) index: u64,
    pub(crate) sent_at: Time,
}

impl Flight {
    pub(crate) fn new(first: u64, window: u64) -> Self {
        Self {
            units: VecDeque::new(),
            acked: first,
            lost: UnitSet::new(window),
            dropped: UnitSet::new(window),
            index: 0,
        }
    }

    pub(crate) fn acked(&self) -> u64 {
        self.acked
    }

    pub(crate) fn next(&self) -> u64 {
        self.acked + self.units.len() as u64
    }

    pub(crate) fn len(&self) -> u64 {
        self.units.len() as u64
    }

    /// Number of units to retransmit.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.len()
    }

    /// The first transmission of a unit in flight.
    pub(crate) fn unit(&self, unit: u64) -> Option<Unit> {
        let at = unit.checked_sub(self.acked)?;
        self.units.get(usize::try_from(at).ok()?).copied()
    }

    /// `count` new units were sent; returns the send index of the first.
    pub(crate) fn push(&mut self, now: Time, count: u32) -> u64 {
        let first = self.index;
        for i in 0..u64::from(count) {
            self.units.push_back(Unit { index: first + i, sent_at: now });
        }
        self.index += u64::from(count);
        let (acked, next) = (self.acked, self.next());
        for set in [&mut self.lost, &mut self.dropped] {
            if !set.is_empty() {
                set.cover(acked, next);
            }
        }
        first
    }

    /// Units were retransmitted; returns the send index of the first.
    pub(crate) fn on_retransmitted(&mut self, first: u64, count: u32) -> u64 {
        let (from, to) = self.clip(first, first.saturating_add(u64::from(count)));
        self.lost.remove(from, to);
        let index = self.index;
        self.index += u64::from(count);
        index
    }

    /// All units below `to` have arrived; returns how many of them are newly acknowledged, and the
    /// last one.
    pub(crate) fn ack(&mut self, to: u64) -> (u64, Option<Unit>) {
        let count = to.min(self.next()).saturating_sub(self.acked);
        if count == 0 {
            return (0, None);
        }
        let to = self.acked + count;
        self.lost.remove(self.acked, to);
        self.dropped.remove(self.acked, to);
        let last = self.units.drain(..count as usize).next_back();
        self.acked = to;
        (count, last)
    }

    /// The first run of units to retransmit, of at most `max`.
    pub(crate) fn next_lost(&self, max: u64) -> Option<(u64, u64)> {
        let first = self.lost.first_in(self.acked, self.next())?;
        Some((first, self.lost.run_end(first, self.next().min(first + max)) - first))
    }

    /// The same among those below `below`.
    pub(crate) fn next_lost_below(&self, max: u64, below: u64) -> Option<(u64, u64)> {
        let first = self.lost.first_in(self.acked, below.min(self.next()))?;
        let end = self.next().min(below).min(first + max);
        Some((first, self.lost.run_end(first, end) - first))
    }

    /// The first of these units that is to be retransmitted.
    pub(super) fn first_lost(&self, first: u64, end: u64) -> Option<u64> {
        let (first, end) = self.clip(first, end);
        self.lost.first_in(first, end)
    }

    /// One past the run of units from `first` on that are to be retransmitted.
    pub(super) fn lost_end(&self, first: u64, end: u64) -> u64 {
        let (first, end) = self.clip(first, end);
        self.lost.run_end(first, end)
    }

    /// These units have arrived beyond a missing one.
    pub(super) fn mark_arrived(&mut self, first: u64, end: u64) {
        if !self.lost.is_empty() {
            let (first, end) = self.clip(first, end);
            self.lost.remove(first, end);
        }
    }

    /// Marks units for retransmission, except dropped ones, which are passed to `told`.
    pub(crate) fn mark_lost(
        &mut self,
        first: u64,
        end: u64,
        mut told: impl FnMut(u64, u64),
    ) -> u64 {
        let (first, end) = self.clip(first, end);
        self.lost.cover(self.acked, self.next());
        let mut added = self.lost.insert(first, end);
        let mut at = first;
        while let Some(from) = self.dropped.first_in(at, end) {
            at = self.dropped.run_end(from, end);
            added = added.saturating_sub(self.lost.remove(from, at));
            told(from, at);
        }
        added
    }

    /// These units will not be sent again.
    pub(crate) fn drop(&mut self, first: u64, end: u64) -> Option<(u64, u64)> {
        let (first, end) = self.clip(first, end);
        if first >= end {
            return None;
        }
        self.lost.remove(first, end);
        self.dropped.cover(self.acked, self.next());
        self.dropped.insert(first, end);
        Some((first, end))
    }

    fn clip(&self, first: u64, end: u64) -> (u64, u64) {
        let first = first.max(self.acked);
        (first, end.min(self.next()).max(first))
    }
}

//! The ranges that the sink requested, and their state.

use std::ops::Range;

use packtrain_units::{ByteCount, Offset, RangeSet};

/// Requested ranges.
#[derive(Debug, Default)]
pub(super) struct Needs {
    /// Requested and not verified.
    wanted: RangeSet,
    /// Requested and not placed.
    unplaced: RangeSet,
    /// Of those, ranges that were already assigned when the sink requested them again.
    resend: RangeSet,
}

impl Needs {
    /// Number of ranges in all sets.
    pub(super) fn held(&self) -> usize {
        [&self.wanted, &self.unplaced, &self.resend].iter().map(|set| set.iter().count()).sum()
    }

    /// The sink requests this range. Returns the parts to move now.
    pub(super) fn want(&mut self, range: &Range<Offset>) -> Vec<Range<Offset>> {
        let fresh: Vec<_> = self.wanted.gaps(range.clone()).collect();
        for part in &fresh {
            self.wanted.insert(part.clone());
            self.unplaced.insert(part.clone());
        }
        fresh
    }

    /// The sink requests this range again, because it failed verification. Returns the parts to
    /// move now. The parts in `under_way` are still assigned from before: they are moved again
    /// after they are placed, or after their transport returns them.
    pub(super) fn want_again(
        &mut self,
        range: &Range<Offset>,
        under_way: Vec<Range<Offset>>,
    ) -> Vec<Range<Offset>> {
        self.wanted.insert(range.clone());
        let mut fresh: RangeSet = self.unplaced.gaps(range.clone()).collect();
        self.unplaced.insert(range.clone());
        for part in under_way {
            // A hole that was withdrawn is not in `unplaced`, and its transport may still have it.
            fresh.remove(part.clone());
            self.resend.insert(part);
        }
        fresh.iter().collect()
    }

    /// Whether all of this range is requested and not verified.
    pub(super) fn is_wanted(&self, range: &Range<Offset>) -> bool {
        self.wanted.contains_range(range)
    }

    /// Whether any of this range is requested and not verified.
    pub(super) fn is_any_wanted(&self, range: &Range<Offset>) -> bool {
        self.wanted.overlaps(range)
    }

    /// This range was placed at the sink. Returns how many of its bytes were not placed before, and
    /// the parts that must be moved once more.
    pub(super) fn placed(&mut self, range: &Range<Offset>) -> (ByteCount, Vec<Range<Offset>>) {
        let bytes = self.unplaced.remove(range.clone());
        let resend: Vec<_> = self.resend.intersect(range.clone()).collect();
        for part in &resend {
            self.resend.remove(part.clone());
            self.unplaced.insert(part.clone());
        }
        (bytes, resend)
    }

    /// A transport returned this range without placing it.
    pub(super) fn returned(&mut self, range: &Range<Offset>) {
        self.resend.remove(range.clone());
    }

    /// Removes and returns the parts of this range that are not placed.
    pub(super) fn take_unplaced(&mut self, range: &Range<Offset>) -> Vec<Range<Offset>> {
        let parts: Vec<_> = self.unplaced.intersect(range.clone()).collect();
        self.unplaced.remove(range.clone());
        self.resend.remove(range.clone());
        parts
    }

    /// Ranges that are not placed.
    pub(super) fn unplaced(&self) -> &RangeSet {
        &self.unplaced
    }

    /// This range is verified. Returns how many of its bytes were wanted.
    pub(super) fn verified(&mut self, range: &Range<Offset>) -> ByteCount {
        self.unplaced.remove(range.clone());
        self.resend.remove(range.clone());
        self.wanted.remove(range.clone())
    }

    /// This range is no longer wanted.
    pub(super) fn forget(&mut self, range: &Range<Offset>) {
        self.unplaced.remove(range.clone());
        self.resend.remove(range.clone());
        self.wanted.remove(range.clone());
    }
}

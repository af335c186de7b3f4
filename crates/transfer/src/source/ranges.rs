//! What the sink wants, and how far that is.

use std::ops::Range;

use packtrain_units::{ByteCount, Offset, RangeSet};

/// The ranges a sink asked for.
#[derive(Debug, Default)]
pub(super) struct Needs {
    /// Asked for and not verified.
    wanted: RangeSet,
    /// Asked for and not placed.
    unplaced: RangeSet,
    /// Of those, under way from before the sink asked again.
    twice: RangeSet,
}

impl Needs {
    /// Ranges in all its sets.
    pub(super) fn held(&self) -> usize {
        [&self.wanted, &self.unplaced, &self.twice].iter().map(|set| set.iter().count()).sum()
    }

    /// The sink wants this range. Tells what of it is to be moved now.
    pub(super) fn want(&mut self, range: &Range<Offset>) -> Vec<Range<Offset>> {
        let fresh: Vec<_> = self.wanted.gaps(range.clone()).collect();
        for part in &fresh {
            self.wanted.insert(part.clone());
            self.unplaced.insert(part.clone());
        }
        fresh
    }

    /// The sink wants this range again, since it failed verification. Tells what of it is to be
    /// moved now; what transports have `under_way` from before is moved again after that.
    pub(super) fn want_again(
        &mut self,
        range: &Range<Offset>,
        under_way: Vec<Range<Offset>>,
    ) -> Vec<Range<Offset>> {
        self.wanted.insert(range.clone());
        let fresh = self.unplaced.gaps(range.clone()).collect();
        self.unplaced.insert(range.clone());
        for part in under_way {
            self.twice.insert(part);
        }
        fresh
    }

    /// Whether all of this range is asked for and not verified.
    pub(super) fn is_wanted(&self, range: &Range<Offset>) -> bool {
        self.wanted.contains_range(range)
    }

    /// These bytes are at the sink; tells how many of them were not before, and what of them has
    /// to be moved once more.
    pub(super) fn placed(&mut self, range: &Range<Offset>) -> (ByteCount, Vec<Range<Offset>>) {
        let bytes = self.unplaced.remove(range.clone());
        let twice: Vec<_> = self.twice.intersect(range.clone()).collect();
        for part in &twice {
            self.twice.remove(part.clone());
            self.unplaced.insert(part.clone());
        }
        (bytes, twice)
    }

    /// These bytes were not moved after all.
    pub(super) fn returned(&mut self, range: &Range<Offset>) {
        self.twice.remove(range.clone());
    }

    /// Takes out what of this range is not placed yet.
    pub(super) fn take_unplaced(&mut self, range: &Range<Offset>) -> Vec<Range<Offset>> {
        let parts: Vec<_> = self.unplaced.intersect(range.clone()).collect();
        self.unplaced.remove(range.clone());
        self.twice.remove(range.clone());
        parts
    }

    /// What is not placed.
    pub(super) fn unplaced(&self) -> &RangeSet {
        &self.unplaced
    }

    /// These bytes are verified; tells how many of them were wanted.
    pub(super) fn verified(&mut self, range: &Range<Offset>) -> ByteCount {
        self.unplaced.remove(range.clone());
        self.twice.remove(range.clone());
        self.wanted.remove(range.clone())
    }

    /// Nobody wants these bytes any more.
    pub(super) fn forget(&mut self, range: &Range<Offset>) {
        self.unplaced.remove(range.clone());
        self.twice.remove(range.clone());
        self.wanted.remove(range.clone());
    }
}

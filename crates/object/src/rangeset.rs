//! Sets of byte ranges: what is needed, placed, verified.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use packtrain_units::{ByteCount, Offset};

/// A set of offsets, kept as disjoint ranges that do not touch. Each operation takes O(log n)
/// and O(1) for each range it adds or takes away. A range that ends before it starts is empty.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// Start to end.
    ranges: BTreeMap<u64, u64>,
    bytes: u64,
}

impl RangeSet {
    /// The empty set.
    pub const fn new() -> Self {
        Self { ranges: BTreeMap::new(), bytes: 0 }
    }

    /// Adds a range; tells how many of its bytes were not in the set.
    pub fn insert(&mut self, range: Range<Offset>) -> ByteCount {
        let (mut start, mut end) = (range.start.0, range.end.0);
        if start >= end {
            return ByteCount::ZERO;
        }
        let before = self.bytes;
        // Swallow the range that reaches up to or over our start, then all that start in ours.
        if let Some((&s, &e)) = self.ranges.range(..=start).next_back()
            && e >= start
        {
            self.take(s, e);
            start = s;
            end = end.max(e);
        }
        while let Some((&s, &e)) = self.ranges.range(start..=end).next() {
            self.take(s, e);
            end = end.max(e);
        }
        self.put(start, end);
        ByteCount(self.bytes - before)
    }

    /// Takes a range out; tells how many of its bytes were in the set.
    pub fn remove(&mut self, range: Range<Offset>) -> ByteCount {
        let (start, end) = (range.start.0, range.end.0);
        if start >= end {
            return ByteCount::ZERO;
        }
        let before = self.bytes;
        if let Some((&s, &e)) = self.ranges.range(..start).next_back()
            && e > start
        {
            self.take(s, e);
            self.put(s, start);
            self.put(end, e);
        }
        while let Some((&s, &e)) = self.ranges.range(start..end).next() {
            self.take(s, e);
            self.put(end, e);
        }
        ByteCount(before - self.bytes)
    }

    /// Whether the byte at `offset` is in the set.
    pub fn contains(&self, offset: Offset) -> bool {
        self.ranges.range(..=offset.0).next_back().is_some_and(|(_, &end)| end > offset.0)
    }

    /// Whether every byte of `range` is in the set; true for an empty range.
    pub fn contains_range(&self, range: &Range<Offset>) -> bool {
        range.start >= range.end
            || self
                .ranges
                .range(..=range.start.0)
                .next_back()
                .is_some_and(|(_, &end)| end >= range.end.0)
    }

    /// Whether any byte of `range` is in the set.
    pub fn overlaps(&self, range: &Range<Offset>) -> bool {
        self.intersect(range.clone()).next().is_some()
    }

    /// The ranges of the set, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Range<Offset>> + '_ {
        self.ranges.iter().map(|(&start, &end)| Offset(start)..Offset(end))
    }

    /// The parts of `window` that are in the set, ascending.
    pub fn intersect(&self, window: Range<Offset>) -> impl Iterator<Item = Range<Offset>> + '_ {
        let end = window.end.0.max(window.start.0);
        let first = self
            .ranges
            .range(..window.start.0)
            .next_back()
            .map_or(window.start.0, |(&start, _)| start)
            .min(end);
        self.ranges.range(first..end).filter_map(move |(&s, &e)| {
            let part = s.max(window.start.0)..e.min(end);
            (part.start < part.end).then_some(Offset(part.start)..Offset(part.end))
        })
    }

    /// The parts of `window` that are not in the set, ascending.
    pub fn gaps(&self, window: Range<Offset>) -> impl Iterator<Item = Range<Offset>> + '_ {
        let mut at = window.start;
        let end = window.end;
        // A last, empty range at the end closes the last gap.
        let closing = std::iter::once(end..end);
        self.intersect(window).chain(closing).filter_map(move |held| {
            let gap = at..held.start;
            at = held.end;
            (gap.start < gap.end).then_some(gap)
        })
    }

    /// Adds everything in `other`.
    pub fn insert_all(&mut self, other: &Self) {
        for range in other.iter() {
            self.insert(range);
        }
    }

    /// Takes out everything in `other`.
    pub fn remove_all(&mut self, other: &Self) {
        for range in other.iter() {
            self.remove(range);
        }
    }

    /// How many bytes the set holds.
    pub const fn len_bytes(&self) -> ByteCount {
        ByteCount(self.bytes)
    }

    /// Whether the set holds nothing.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The first range.
    pub fn first(&self) -> Option<Range<Offset>> {
        self.ranges.first_key_value().map(|(&start, &end)| Offset(start)..Offset(end))
    }

    /// The last range.
    pub fn last(&self) -> Option<Range<Offset>> {
        self.ranges.last_key_value().map(|(&start, &end)| Offset(start)..Offset(end))
    }

    /// Takes the first range out, at most `max` bytes of it; none if the set is empty or `max`
    /// is zero.
    pub fn pop_front(&mut self, max: ByteCount) -> Option<Range<Offset>> {
        let first = self.first()?;
        let cut = first.end.min(first.start + max);
        if first.start == cut {
            return None;
        }
        self.take(first.start.0, first.end.0);
        self.put(cut.0, first.end.0);
        Some(first.start..cut)
    }

    /// Takes the end of the last range out, at most `max` bytes of it; none if the set is empty
    /// or `max` is zero.
    pub fn pop_back(&mut self, max: ByteCount) -> Option<Range<Offset>> {
        let last = self.last()?;
        let cut = last.start.0.max(last.end.0.saturating_sub(max.get()));
        if last.end.0 == cut {
            return None;
        }
        self.take(last.start.0, last.end.0);
        self.put(last.start.0, cut);
        Some(Offset(cut)..last.end)
    }

    /// Empties the set.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    fn put(&mut self, start: u64, end: u64) {
        if start < end {
            self.ranges.insert(start, end);
            self.bytes += end - start;
        }
    }

    fn take(&mut self, start: u64, end: u64) {
        self.ranges.remove(&start);
        self.bytes -= end - start;
    }
}

impl FromIterator<Range<Offset>> for RangeSet {
    fn from_iter<I: IntoIterator<Item = Range<Offset>>>(ranges: I) -> Self {
        let mut set = Self::new();
        set.extend(ranges);
        set
    }
}

impl Extend<Range<Offset>> for RangeSet {
    fn extend<I: IntoIterator<Item = Range<Offset>>>(&mut self, ranges: I) {
        for range in ranges {
            self.insert(range);
        }
    }
}

impl fmt::Debug for RangeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests;

//! Sets of numbers as ranges: bytes that are needed, placed or verified, packets that came.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use crate::{ByteCount, Offset};

/// What a set of ranges is over: a number under a name of its own.
pub trait Coordinate: Copy + Ord + fmt::Debug {
    /// How far two of them are apart.
    type Len: Copy + fmt::Debug;

    /// The number.
    fn to_number(self) -> u64;
    /// The coordinate of a number that came from one.
    fn from_number(number: u64) -> Self;
    /// A distance.
    fn len(number: u64) -> Self::Len;
    /// The number of a distance.
    fn count(len: Self::Len) -> u64;
}

impl Coordinate for Offset {
    type Len = ByteCount;

    fn to_number(self) -> u64 {
        self.0
    }

    fn from_number(number: u64) -> Self {
        Self(number)
    }

    fn len(number: u64) -> ByteCount {
        ByteCount(number)
    }

    fn count(len: ByteCount) -> u64 {
        len.0
    }
}

impl Coordinate for u64 {
    type Len = u64;

    fn to_number(self) -> u64 {
        self
    }

    fn from_number(number: u64) -> Self {
        number
    }

    fn len(number: u64) -> u64 {
        number
    }

    fn count(len: u64) -> u64 {
        len
    }
}

/// A set of offsets, or of other numbers, kept as disjoint ranges that do not touch. Each operation
/// takes O(log n) and O(1) for each range it adds or takes away; a range that grows at its end moves
/// nothing. A range that ends before it starts is empty.
#[derive(Clone, PartialEq, Eq)]
pub struct RangeSet<T = Offset> {
    /// Start to end.
    ranges: BTreeMap<u64, u64>,
    /// Sum of their lengths.
    total: u64,
    coordinate: PhantomData<T>,
}

impl<T: Coordinate> RangeSet<T> {
    /// The empty set.
    pub const fn new() -> Self {
        Self { ranges: BTreeMap::new(), total: 0, coordinate: PhantomData }
    }

    /// Adds a range; tells how much of it was not in the set.
    pub fn insert(&mut self, range: Range<T>) -> T::Len {
        let before = self.total;
        self.insert_numbers(range.start.to_number(), range.end.to_number());
        T::len(self.total - before)
    }

    fn insert_numbers(&mut self, start: u64, mut end: u64) {
        if start >= end {
            return;
        }
        // The common case first: the last range grows.
        if let Some(mut last) = self.ranges.last_entry()
            && *last.get() == start
        {
            *last.get_mut() = end;
            self.total += end - start;
            return;
        }
        // Swallow all that start behind our start, then join the one that reaches up to it.
        while let Some((&s, &e)) = self.ranges.range(start + 1..=end).next() {
            self.take(s, e);
            end = end.max(e);
        }
        match self.ranges.range_mut(..=start).next_back() {
            Some((_, e)) if *e >= start => {
                self.total += end.saturating_sub(*e);
                *e = end.max(*e);
            }
            _ => self.put(start, end),
        }
    }

    /// Takes a range out; tells how much of it was in the set.
    pub fn remove(&mut self, range: Range<T>) -> T::Len {
        let before = self.total;
        self.remove_with(range, |_| {});
        T::len(before - self.total)
    }

    /// Takes a range out, and calls `removed` with each part of it that was in the set, ascending.
    pub fn remove_with(&mut self, range: Range<T>, mut removed: impl FnMut(Range<T>)) {
        let (start, end) = (range.start.to_number(), range.end.to_number());
        if start >= end {
            return;
        }
        if let Some((_, e)) = self.ranges.range_mut(..start).next_back()
            && *e > start
        {
            let last = std::mem::replace(e, start);
            self.total -= last - start;
            self.put(end, last);
            removed(named(start, last.min(end)));
        }
        while let Some((&s, &e)) = self.ranges.range(start..end).next() {
            self.take(s, e);
            self.put(end, e);
            removed(named(s, e.min(end)));
        }
    }

    /// Whether `at` is in the set.
    pub fn contains(&self, at: T) -> bool {
        self.range_at(at).is_some()
    }

    /// The range of the set that `at` is in.
    pub fn range_at(&self, at: T) -> Option<Range<T>> {
        let at = at.to_number();
        let (&start, &end) = self.ranges.range(..=at).next_back()?;
        (at < end).then(|| named(start, end))
    }

    /// The last range that starts before `at`.
    pub fn last_before(&self, at: T) -> Option<Range<T>> {
        self.ranges.range(..at.to_number()).next_back().map(|(&start, &end)| named(start, end))
    }

    /// Whether all of `range` is in the set; true for an empty range.
    pub fn contains_range(&self, range: &Range<T>) -> bool {
        range.start >= range.end || self.range_at(range.start).is_some_and(|r| r.end >= range.end)
    }

    /// Whether anything of `range` is in the set.
    pub fn overlaps(&self, range: &Range<T>) -> bool {
        range.start < range.end && self.last_before(range.end).is_some_and(|r| r.end > range.start)
    }

    /// The ranges of the set, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Range<T>> + '_ {
        self.ranges.iter().map(|(&start, &end)| named(start, end))
    }

    /// The parts of `window` that are in the set, ascending.
    pub fn intersect(&self, window: Range<T>) -> impl Iterator<Item = Range<T>> + '_ {
        let start = window.start.to_number();
        let end = window.end.to_number().max(start);
        let first = self.ranges.range(..start).next_back().map_or(start, |(&start, _)| start);
        self.ranges.range(first.min(end)..end).filter_map(move |(&s, &e)| {
            let part = s.max(start)..e.min(end);
            (part.start < part.end).then(|| named(part.start, part.end))
        })
    }

    /// The parts of `window` that are not in the set, ascending.
    pub fn gaps(&self, window: Range<T>) -> impl Iterator<Item = Range<T>> + '_ {
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

    /// The first of [`RangeSet::gaps`].
    pub fn first_gap(&self, window: Range<T>) -> Option<Range<T>> {
        let from = self.range_at(window.start).map_or(window.start, |range| range.end);
        if from >= window.end {
            return None;
        }
        let end = window.end.to_number();
        let next = self.ranges.range(from.to_number()..end).next();
        Some(from..T::from_number(next.map_or(end, |(&start, _)| start)))
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

    /// Whether the set holds nothing.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The first range.
    pub fn first(&self) -> Option<Range<T>> {
        self.ranges.first_key_value().map(|(&start, &end)| named(start, end))
    }

    /// The last range.
    pub fn last(&self) -> Option<Range<T>> {
        self.ranges.last_key_value().map(|(&start, &end)| named(start, end))
    }

    /// Takes the first range out, at most `max` of it; none if the set is empty or `max` is zero.
    pub fn pop_front(&mut self, max: T::Len) -> Option<Range<T>> {
        let (&start, &end) = self.ranges.first_key_value()?;
        let cut = end.min(start.saturating_add(T::count(max)));
        if start == cut {
            return None;
        }
        self.take(start, end);
        self.put(cut, end);
        Some(named(start, cut))
    }

    /// Takes the end of the last range out, at most `max` of it; none if the set is empty or `max`
    /// is zero.
    pub fn pop_back(&mut self, max: T::Len) -> Option<Range<T>> {
        let mut last = self.ranges.last_entry()?;
        let (start, end) = (*last.key(), *last.get());
        let cut = start.max(end.saturating_sub(T::count(max)));
        if end == cut {
            return None;
        }
        self.total -= end - cut;
        if start == cut {
            last.remove();
        } else {
            *last.get_mut() = cut;
        }
        Some(named(cut, end))
    }

    /// Empties the set.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    fn put(&mut self, start: u64, end: u64) {
        if start < end {
            self.ranges.insert(start, end);
            self.total += end - start;
        }
    }

    fn take(&mut self, start: u64, end: u64) {
        self.ranges.remove(&start);
        self.total -= end - start;
    }
}

impl RangeSet<Offset> {
    /// How many bytes the set holds.
    pub const fn len_bytes(&self) -> ByteCount {
        ByteCount(self.total)
    }
}

impl RangeSet<u64> {
    /// How many numbers the set holds.
    pub const fn count(&self) -> u64 {
        self.total
    }
}

fn named<T: Coordinate>(start: u64, end: u64) -> Range<T> {
    T::from_number(start)..T::from_number(end)
}

impl<T: Coordinate> Default for RangeSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Coordinate> FromIterator<Range<T>> for RangeSet<T> {
    fn from_iter<I: IntoIterator<Item = Range<T>>>(ranges: I) -> Self {
        let mut set = Self::new();
        set.extend(ranges);
        set
    }
}

impl<T: Coordinate> Extend<Range<T>> for RangeSet<T> {
    fn extend<I: IntoIterator<Item = Range<T>>>(&mut self, ranges: I) {
        for range in ranges {
            self.insert(range);
        }
    }
}

impl<T: Coordinate> fmt::Debug for RangeSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests;

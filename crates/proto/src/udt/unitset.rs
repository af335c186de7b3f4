//! A set of unit numbers within a window: a circular bitmap with levels of summaries.
//!
//! Inserting, removing or finding a unit touches one word per level, and a million units need four
//! levels: the work per packet grows neither with the losses nor with the window. A range costs one
//! more word per 64 units. Memory is three bits for two units of the window. It is allocated as
//! needed and never beyond the owner's window.

/// Minimum size of the bitmap, in units.
const MIN_UNITS: u64 = 1 << 10;

/// Unit numbers, all of them in `floor..floor + window`; the owner moves the floor by removing the
/// lowest. Numbers in queries must be covered (`cover`) unless the set is empty: others would
/// alias.
#[derive(Clone, Debug)]
pub(crate) struct UnitSet {
    /// Bits, then a bit for each word that is not zero, and so on up to a single word.
    levels: Vec<Vec<u64>>,
    /// Number of units in the set.
    len: u64,
    /// Maximum size of the bitmap: the window, rounded up.
    max_units: u64,
    #[cfg(test)]
    steps: std::cell::Cell<u64>,
}

impl UnitSet {
    /// An empty set for numbers within a window of `window` units.
    pub(crate) fn new(window: u64) -> Self {
        let max_units = window.clamp(MIN_UNITS, 1 << 32).next_power_of_two();
        Self {
            levels: levels(MIN_UNITS),
            len: 0,
            max_units,
            #[cfg(test)]
            steps: std::cell::Cell::new(0),
        }
    }

    /// Number of units in the set.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Makes room for numbers in `floor..end`, which contains all members. It doubles the bitmap,
    /// so the cost per unit is constant.
    pub(crate) fn cover(&mut self, floor: u64, end: u64) {
        let wanted = end.saturating_sub(floor).min(self.max_units);
        if wanted <= self.size() {
            return;
        }
        let old_size = self.size();
        let new = Self { levels: levels(wanted.next_power_of_two()), ..Self::new(self.max_units) };
        let old = std::mem::replace(self, new);
        self.max_units = old.max_units;
        let (mut at, stop) = (floor, floor.saturating_add(old_size));
        while let Some(first) = old.first_in(at, stop) {
            at = old.run_end(first, stop);
            self.insert(first, at);
        }
    }

    /// Adds `first..end`; returns how many of them are new.
    pub(crate) fn insert(&mut self, first: u64, end: u64) -> u64 {
        let mut added = 0;
        for (from, to) in self.pieces(first, end).into_iter().flatten() {
            let mut at = from;
            while at < to {
                let stop = ((at | 63) + 1).min(to);
                let mask = mask(at & 63, stop - at);
                let word = &mut self.levels[0][(at / 64) as usize];
                let was = *word;
                *word |= mask;
                added += u64::from((mask & !was).count_ones());
                self.step();
                if was == 0 {
                    self.raise(at / 64);
                }
                at = stop;
            }
        }
        self.len += added;
        added
    }

    /// Removes `first..end`; returns how many of them were in the set.
    pub(crate) fn remove(&mut self, first: u64, end: u64) -> u64 {
        let mut removed = 0;
        for (from, to) in self.pieces(first, end).into_iter().flatten() {
            let mut at = from;
            while self.len > removed
                && let Some(found) = self.find(at, to)
            {
                let stop = ((found | 63) + 1).min(to);
                let mask = mask(found & 63, stop - found);
                let word = &mut self.levels[0][(found / 64) as usize];
                removed += u64::from((*word & mask).count_ones());
                *word &= !mask;
                self.step();
                if self.levels[0][(found / 64) as usize] == 0 {
                    self.lower(found / 64);
                }
                at = stop;
            }
        }
        self.len -= removed;
        removed
    }

    /// Whether this unit is in the set.
    pub(crate) fn contains(&self, unit: u64) -> bool {
        let at = unit & (self.size() - 1);
        self.levels[0][(at / 64) as usize] >> (at & 63) & 1 == 1
    }

    /// The first member in `first..end`.
    pub(crate) fn first_in(&self, first: u64, end: u64) -> Option<u64> {
        if self.len == 0 {
            return None;
        }
        let mut passed = 0;
        for (from, to) in self.pieces(first, end).into_iter().flatten() {
            if let Some(found) = self.find(from, to) {
                return Some(first + passed + (found - from));
            }
            passed += to - from;
        }
        None
    }

    /// The end of the run of members that begins at `first`: the first unit in `first..end` that is
    /// not in the set, else `end`.
    pub(crate) fn run_end(&self, first: u64, end: u64) -> u64 {
        let mut passed = 0;
        for (from, to) in self.pieces(first, end).into_iter().flatten() {
            let mut at = from;
            while at < to {
                let rest = self.levels[0][(at / 64) as usize] >> (at & 63);
                let ones = u64::from((!rest).trailing_zeros()).min(64 - (at & 63));
                self.step();
                if at + ones >= to {
                    break;
                }
                if ones < 64 - (at & 63) {
                    return first + passed + (at - from) + ones;
                }
                at += ones;
            }
            passed += to - from;
        }
        end.min(first + passed)
    }

    /// The members of `first..end` as runs.
    pub(crate) fn runs(&self, first: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        let mut at = first;
        std::iter::from_fn(move || {
            let from = self.first_in(at, end)?;
            at = self.run_end(from, end);
            Some((from, at))
        })
    }

    fn size(&self) -> u64 {
        self.levels[0].len() as u64 * 64
    }

    /// The position of `first..end` in the ring: one piece, or two.
    fn pieces(&self, first: u64, end: u64) -> [Option<(u64, u64)>; 2] {
        let size = self.size();
        let count = end.saturating_sub(first).min(size);
        if count == 0 {
            return [None, None];
        }
        let from = first & (size - 1);
        if from + count <= size {
            [Some((from, from + count)), None]
        } else {
            [Some((from, size)), Some((0, from + count - size))]
        }
    }

    /// The first bit set in `from..to` of the ring.
    fn find(&self, from: u64, to: u64) -> Option<u64> {
        let (mut level, mut at) = (0, from);
        // Go up until a word has a bit at or after `at`, then down to the first bit below it.
        loop {
            let words = &self.levels[level];
            let word = words.get((at / 64) as usize)?;
            self.step();
            let rest = word >> (at & 63);
            if rest != 0 {
                at += u64::from(rest.trailing_zeros());
                break;
            }
            level += 1;
            at = at / 64 + 1;
            if level == self.levels.len() {
                return None;
            }
        }
        while level > 0 {
            level -= 1;
            let word = self.levels[level][at as usize];
            self.step();
            at = at * 64 + u64::from(word.trailing_zeros());
        }
        (at < to).then_some(at)
    }

    /// Updates the summaries after a word of level 0 became non-zero.
    fn raise(&mut self, mut at: u64) {
        for level in &mut self.levels[1..] {
            let word = &mut level[(at / 64) as usize];
            let was = *word;
            *word |= 1 << (at & 63);
            if was != 0 {
                return;
            }
            at /= 64;
        }
    }

    /// Updates the summaries after a word of level 0 became zero.
    fn lower(&mut self, mut at: u64) {
        for level in &mut self.levels[1..] {
            let word = &mut level[(at / 64) as usize];
            *word &= !(1 << (at & 63));
            if *word != 0 {
                return;
            }
            at /= 64;
        }
    }

    #[inline]
    fn step(&self) {
        #[cfg(test)]
        self.steps.set(self.steps.get() + 1);
    }

    /// Number of words touched so far.
    #[cfg(test)]
    pub(crate) fn steps(&self) -> u64 {
        self.steps.get()
    }
}

fn levels(size: u64) -> Vec<Vec<u64>> {
    let mut levels = Vec::new();
    let mut bits = size;
    loop {
        let words = bits.div_ceil(64);
        levels.push(vec![0; words as usize]);
        if words == 1 {
            return levels;
        }
        bits = words;
    }
}

/// `count` bits from bit `from` on.
fn mask(from: u64, count: u64) -> u64 {
    (u64::MAX >> (64 - count)) << from
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const WINDOW: u64 = 5_000;

    #[derive(Clone, Debug)]
    enum Op {
        Insert(u64, u64),
        Remove(u64, u64),
        Move(u64),
    }

    fn op() -> impl Strategy<Value = Op> {
        let range = (0..WINDOW, prop_oneof![1..4u64, 1..200u64, 1..WINDOW]);
        prop_oneof![
            3 => range.clone().prop_map(|(a, n)| Op::Insert(a, n)),
            3 => range.prop_map(|(a, n)| Op::Remove(a, n)),
            1 => (0..WINDOW).prop_map(Op::Move),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn is_the_set_that_a_tree_is(
            start in prop_oneof![Just(0u64), 0..1u64 << 40],
            ops in prop::collection::vec(op(), 1..60),
        ) {
            let (mut set, mut tree, mut floor) = (UnitSet::new(WINDOW), BTreeSet::new(), start);
            for op in ops {
                match op {
                    Op::Insert(a, n) => {
                        let (a, b) = (floor + a, (floor + a + n).min(floor + WINDOW));
                        set.cover(floor, b);
                        let new = (a..b).filter(|u| tree.insert(*u)).count() as u64;
                        prop_assert_eq!(set.insert(a, b), new);
                    }
                    Op::Remove(a, n) => {
                        let (a, b) = (floor + a, (floor + a + n).min(floor + WINDOW));
                        set.cover(floor, b);
                        let gone = (a..b).filter(|u| tree.remove(u)).count() as u64;
                        prop_assert_eq!(set.remove(a, b), gone);
                    }
                    Op::Move(n) => {
                        let to = floor + n;
                        let gone = (floor..to).filter(|u| tree.remove(u)).count() as u64;
                        prop_assert_eq!(set.remove(floor, to), gone);
                        floor = to;
                    }
                }
                prop_assert_eq!(set.len(), tree.len() as u64);
                set.cover(floor, floor + WINDOW / 3 + 101);
                let end = floor + set.size();
                let found: Vec<_> = set.runs(floor, end).flat_map(|(a, b)| a..b).collect();
                prop_assert!(found.iter().eq(tree.iter()), "{:?} {:?}", found, tree);
                let middle = floor + WINDOW / 3;
                prop_assert_eq!(
                    set.first_in(middle, middle + 100),
                    tree.range(middle..middle + 100).next().copied()
                );
                prop_assert_eq!(set.contains(middle), tree.contains(&middle));
                prop_assert!(set.size() <= WINDOW.next_power_of_two());
            }
        }
    }

    #[test]
    fn work_per_unit_grows_neither_with_losses_nor_with_the_window() {
        let mut worst: f64 = 0.0;
        for window in [1u64 << 12, 1 << 16, 1 << 20] {
            for every in [100, 3, 2] {
                let mut set = UnitSet::new(window);
                set.cover(0, window);
                let before = set.steps();
                let mut ops = 0u64;
                for unit in (0..window).step_by(every) {
                    set.insert(unit, unit + 1);
                    ops += 1;
                }
                while let Some(unit) = set.first_in(0, window) {
                    set.remove(unit, unit + 1);
                    ops += 2;
                }
                worst = worst.max((set.steps() - before) as f64 / ops as f64);
            }
        }
        assert!(worst < 8.0, "{worst} words an operation");
    }
}

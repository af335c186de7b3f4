//! Sets of segment numbers as ranges.

use std::collections::BTreeMap;

/// Disjoint ranges with gaps between them.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranges {
    /// From the first of each to behind its last.
    map: BTreeMap<u64, u64>,
    len: u64,
}

impl Ranges {
    /// How many numbers are in it.
    #[inline]
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The lowest range.
    pub(super) fn first(&self) -> Option<(u64, u64)> {
        self.map.first_key_value().map(|(a, b)| (*a, *b))
    }

    /// Ranges from the highest down.
    pub(super) fn descending(&self) -> impl Iterator<Item = (u64, u64)> {
        self.map.iter().rev().map(|(a, b)| (*a, *b))
    }

    /// The range in which `n` is.
    pub(super) fn around(&self, n: u64) -> Option<(u64, u64)> {
        let (a, b) = self.map.range(..=n).next_back()?;
        (n < *b).then_some((*a, *b))
    }

    /// Adds the numbers from `a` to before `b`.
    pub(super) fn insert(&mut self, a: u64, b: u64) {
        if a >= b {
            return;
        }
        let (mut from, mut to) = (a, b);
        if let Some((&s, &e)) = self.map.range(..=a).next_back()
            && e >= a
        {
            if e >= b {
                return;
            }
            from = s;
            self.len -= e - s;
            self.map.remove(&s);
        }
        while let Some((&s, &e)) = self.map.range(from..=to).next() {
            to = to.max(e);
            self.len -= e - s;
            self.map.remove(&s);
        }
        self.len += to - from;
        self.map.insert(from, to);
    }

    /// Takes away the numbers from `a` to before `b`.
    pub(super) fn remove(&mut self, a: u64, b: u64) {
        if a >= b {
            return;
        }
        if let Some((&s, &e)) = self.map.range(..a).next_back()
            && e > a
        {
            self.map.insert(s, a);
            self.len -= e - a;
            if e > b {
                self.map.insert(b, e);
                self.len += e - b;
                return;
            }
        }
        while let Some((&s, &e)) = self.map.range(a..b).next() {
            self.map.remove(&s);
            self.len -= e - s;
            if e > b {
                self.map.insert(b, e);
                self.len += e - b;
            }
        }
    }

    /// Takes away everything below `n`.
    pub(super) fn remove_below(&mut self, n: u64) {
        while let Some((s, e)) = self.first()
            && s < n
        {
            self.map.remove(&s);
            self.len -= e - s;
            if e > n {
                self.map.insert(n, e);
                self.len += e - n;
            }
        }
    }

    /// The first run of numbers from `a` to before `b` that are not in the set.
    pub(super) fn gap(&self, a: u64, b: u64) -> Option<(u64, u64)> {
        let from = self.around(a).map_or(a, |(_, e)| e);
        if from >= b {
            return None;
        }
        let to = self.map.range(from..b).next().map_or(b, |(s, _)| *s);
        Some((from, to))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn behaves_as_a_set(ops in prop::collection::vec((0..3u8, 0..60u64, 0..12u64), 1..60)) {
            let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
            for (op, a, n) in ops {
                match op {
                    0 => { ranges.insert(a, a + n); set.extend(a..a + n); }
                    1 => { ranges.remove(a, a + n); set.retain(|x| !(a..a + n).contains(x)); }
                    _ => { ranges.remove_below(a); set.retain(|x| *x >= a); }
                }
                prop_assert_eq!(ranges.len(), set.len() as u64);
                let all: BTreeSet<u64> = ranges.descending().flat_map(|(a, b)| a..b).collect();
                prop_assert_eq!(&all, &set);
                for x in 0..80 {
                    prop_assert_eq!(ranges.around(x).is_some(), set.contains(&x));
                }
                let gap = ranges.gap(a, a + n);
                let first = (a..a + n).find(|x| !set.contains(x));
                prop_assert_eq!(gap.map(|g| g.0), first);
                if let Some((from, to)) = gap {
                    prop_assert!((from..to).all(|x| !set.contains(&x)) && to <= a + n);
                    prop_assert!(to == a + n || set.contains(&to));
                }
            }
        }
    }
}

//! A set of byte positions kept as disjoint ranges.

use std::collections::BTreeMap;

/// Disjoint, non-adjacent, non-empty half-open ranges.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges {
    by_start: BTreeMap<u64, u64>,
    total: u64,
}

impl Ranges {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    /// Sum of the lengths.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// The lowest range.
    pub(crate) fn first(&self) -> Option<(u64, u64)> {
        self.by_start.first_key_value().map(|(a, b)| (*a, *b))
    }

    /// Takes at most `n` positions off the front of the lowest range, which must exist.
    pub(crate) fn advance(&mut self, n: u64) {
        if let Some((a, b)) = self.by_start.pop_first() {
            let cut = n.min(b - a);
            self.total -= cut;
            if a + cut < b {
                self.by_start.insert(a + cut, b);
            }
        }
    }

    pub(crate) fn insert(&mut self, mut a: u64, mut b: u64) {
        if a >= b {
            return;
        }
        let next = self.next_start(a.saturating_add(1));
        if let Some((&s, e)) = self.by_start.range_mut(..=a).next_back() {
            if *e >= b {
                return;
            }
            // The common case first: a range grows and meets no other.
            if *e >= a && next.is_none_or(|next| next > b) {
                self.total += b - *e;
                *e = b;
                return;
            }
            if *e >= a {
                self.total -= *e - s;
                a = s;
                self.by_start.remove(&s);
            }
        }
        while let Some((&s, &e)) = self.by_start.range(a..=b).next() {
            self.total -= e - s;
            b = b.max(e);
            self.by_start.remove(&s);
        }
        self.total += b - a;
        self.by_start.insert(a, b);
    }

    /// Takes `a..b` out and calls `removed` with each part of it that was in.
    pub(crate) fn remove(&mut self, a: u64, b: u64, mut removed: impl FnMut(u64, u64)) {
        if a >= b {
            return;
        }
        if let Some((&s, e)) = self.by_start.range_mut(..a).next_back()
            && *e > a
        {
            let end = *e;
            *e = a;
            self.total -= end - a;
            debug_assert!(s < a, "the range starts below");
            if end > b {
                self.by_start.insert(b, end);
                self.total += end - b;
            }
            removed(a, end.min(b));
        }
        while let Some((&s, &e)) = self.by_start.range(a..b).next() {
            self.by_start.remove(&s);
            self.total -= e - s;
            if e > b {
                self.by_start.insert(b, e);
                self.total += e - b;
            }
            removed(s, e.min(b));
        }
    }

    /// The highest range that starts below `at`.
    pub(crate) fn below(&self, at: u64) -> Option<(u64, u64)> {
        self.by_start.range(..at).next_back().map(|(a, b)| (*a, *b))
    }

    /// Whether any position of `a..b` is in.
    pub(crate) fn touches(&self, a: u64, b: u64) -> bool {
        self.by_start.range(..b).next_back().is_some_and(|(_, e)| *e > a)
    }

    /// The end of the range that holds `at`, if one does.
    pub(crate) fn end_of(&self, at: u64) -> Option<u64> {
        self.by_start.range(..=at).next_back().map(|(_, e)| *e).filter(|e| *e > at)
    }

    /// The start of the first range that starts at or after `at`.
    pub(crate) fn next_start(&self, at: u64) -> Option<u64> {
        self.by_start.range(at..).next().map(|(s, _)| *s)
    }

    /// The ranges, ascending.
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.by_start.iter().map(|(a, b)| (*a, *b))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn listed(model: &[bool]) -> Vec<u64> {
        (0..model.len() as u64).filter(|i| model[*i as usize]).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn agrees_with_a_list_of_flags(
            steps in proptest::collection::vec((any::<bool>(), 0u64..64, 0u64..24), 0..60)
        ) {
            let mut model = [false; 96];
            let mut set = Ranges::default();
            for (insert, a, n) in steps {
                let b = a + n;
                let any = (a..b).any(|i| model[i as usize]);
                prop_assert_eq!(set.touches(a, b) && a < b, any);
                if insert {
                    set.insert(a, b);
                } else {
                    let mut out = [false; 96];
                    set.remove(a, b, |s, e| (s..e).for_each(|i| out[i as usize] = true));
                    let was: Vec<u64> = (a..b).filter(|i| model[*i as usize]).collect();
                    prop_assert_eq!(listed(&out), was);
                }
                (a..b).for_each(|i| model[i as usize] = insert);
                let have: Vec<u64> = set.iter().flat_map(|(s, e)| s..e).collect();
                prop_assert_eq!(&have, &listed(&model));
                prop_assert_eq!(set.total(), have.len() as u64);
                let ranges: Vec<_> = set.iter().collect();
                prop_assert!(ranges.windows(2).all(|w| w[0].1 < w[1].0), "adjacent: {:?}", ranges);
            }
        }
    }
}

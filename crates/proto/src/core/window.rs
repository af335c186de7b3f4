//! The packet numbers of one lane that have arrived: rejects replays and is the source of reports.

use crate::config::limits::WINDOW_PACKETS;

const WORDS: u64 = WINDOW_PACKETS / 64;

/// A ring with one bit per packet number below the largest seen.
pub(crate) struct Window {
    words: Box<[u64]>,
    next: u64,
    /// Numbers that were skipped.
    skipped: u64,
}

impl std::fmt::Debug for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Window").field("next", &self.next).finish_non_exhaustive()
    }
}

impl Window {
    pub(crate) fn new() -> Self {
        Self { words: vec![0; WORDS as usize].into_boxed_slice(), next: 0, skipped: 0 }
    }

    /// One past the largest number seen.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// How many numbers were missing when a larger one arrived; some may have arrived since.
    pub(crate) fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The lowest number whose state is still known.
    pub(crate) fn floor(&self) -> u64 {
        (self.next.div_ceil(64)).saturating_sub(WORDS) * 64
    }

    /// Whether `pn` is new: above all others, or within the window and not yet set.
    pub(crate) fn is_new(&self, pn: u64) -> bool {
        pn >= self.next || (pn >= self.floor() && !self.bit(pn))
    }

    /// Marks `pn`, which must be new.
    #[inline]
    pub(crate) fn set(&mut self, pn: u64) {
        if pn >= self.next {
            self.enter(pn / 64);
            self.skipped += pn - self.next;
            self.next = pn + 1;
        }
        self.words[(pn / 64 % WORDS) as usize] |= 1 << (pn % 64);
    }

    /// Marks `start..end`, which must not be empty and must be above all others.
    pub(crate) fn set_run(&mut self, start: u64, end: u64) {
        debug_assert!(self.next <= start && start < end, "a run is above all and not empty");
        self.enter((end - 1) / 64);
        self.skipped += start - self.next;
        self.next = end;
        let mut at = start.max(self.floor());
        while at < end {
            let to = end.min((at / 64 + 1) * 64);
            let bits = u64::MAX >> (64 - (to - at)) << (at % 64);
            self.words[(at / 64 % WORDS) as usize] |= bits;
            at = to;
        }
    }

    /// Clears the words that enter the window, up to word `last`.
    fn enter(&mut self, last: u64) {
        let entered = self.next.div_ceil(64);
        if last - entered.min(last) >= WORDS {
            self.words.fill(0);
        } else {
            (entered..=last).for_each(|w| self.words[(w % WORDS) as usize] = 0);
        }
    }

    fn bit(&self, pn: u64) -> bool {
        self.words[(pn / 64 % WORDS) as usize] >> (pn % 64) & 1 == 1
    }

    /// The numbers of `start..end` that arrived, as ascending ranges; `end` is at most `next` and
    /// `start` at least `floor`.
    pub(crate) fn runs(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut runs = Vec::new();
        let mut at = start.max(self.floor());
        let end = end.min(self.next);
        while at < end {
            let a = self.seek(at, end, true);
            if a >= end {
                break;
            }
            let b = self.seek(a, end, false);
            runs.push((a, b));
            at = b;
        }
        runs
    }

    /// The first number from `at` whose bit equals `set`, or `end`.
    fn seek(&self, mut at: u64, end: u64, set: bool) -> u64 {
        while at < end {
            let word = self.words[(at / 64 % WORDS) as usize];
            let word = if set { word } else { !word } >> (at % 64);
            if word != 0 {
                return (at + u64::from(word.trailing_zeros())).min(end);
            }
            at = (at / 64 + 1) * 64;
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn agrees_with_a_set(
            jumps in proptest::collection::vec(
                prop_oneof![8 => -200i64..200, 1 => 0i64..600_000], 1..120)
        ) {
            let mut window = Window::new();
            let mut seen = BTreeSet::new();
            for jump in jumps {
                let pn = window.next().saturating_add_signed(jump);
                let new = pn >= window.floor() && !seen.contains(&pn);
                prop_assert_eq!(window.is_new(pn), new, "pn {}", pn);
                if new {
                    window.set(pn);
                    seen.insert(pn);
                }
            }
            let mut run = Window::new();
            for (a, b) in window.runs(window.floor(), window.next()) {
                run.set_run(a, b);
            }
            prop_assert_eq!(&run.words, &window.words);
            let floor = window.floor();
            let told: Vec<u64> =
                window.runs(floor, window.next()).into_iter().flat_map(|(a, b)| a..b).collect();
            let known: Vec<u64> = seen.range(floor..).copied().collect();
            prop_assert_eq!(told, known);
        }
    }
}

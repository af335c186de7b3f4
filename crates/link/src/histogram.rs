//! Durations counted by their size.

use packtrain_units::Duration;

/// Sub-bins of an octave: bins are at most 1/128 of their value wide.
const OCTAVE_BITS: u32 = 7;

/// A histogram of durations with bins of less than 1 % of their value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    bins: Vec<u64>,
    count: u64,
    sum_nanos: u128,
    max: Duration,
}

fn bin(duration: Duration) -> usize {
    let nanos = duration.as_nanos();
    let shift = (64 - OCTAVE_BITS - 1).saturating_sub(nanos.leading_zeros());
    ((u64::from(shift) << OCTAVE_BITS) + (nanos >> shift)) as usize
}

/// The middle of a bin.
fn value(bin: usize) -> Duration {
    let bin = bin as u64;
    if bin < 2 << OCTAVE_BITS {
        return Duration::from_nanos(bin);
    }
    let shift = (bin >> OCTAVE_BITS) - 1;
    let low = (bin - (shift << OCTAVE_BITS)) << shift;
    Duration::from_nanos(low + (1 << shift) / 2)
}

impl Histogram {
    /// Counts `count` equal durations.
    pub fn add(&mut self, duration: Duration, count: u64) {
        self.add_run(duration, duration, count);
    }

    /// Counts `count` durations in equal steps.
    pub fn add_run(&mut self, first: Duration, last: Duration, count: u64) {
        let (low, high) = (first.as_nanos(), last.as_nanos());
        // An arithmetic run: exact, since the steps are equal.
        self.sum_nanos += (u128::from(low) + u128::from(high)) * u128::from(count) / 2;
        self.count += count;
        self.max = self.max.max(first).max(last);
        if count <= 1 || bin(first) == bin(last) {
            *self.bin_of(first) += count;
            return;
        }
        let step = (high as i64).wrapping_sub(low as i64) / (count as i64 - 1);
        for i in 0..count as i64 {
            *self.bin_of(Duration::from_nanos((low as i64 + step * i) as u64)) += 1;
        }
    }

    fn bin_of(&mut self, duration: Duration) -> &mut u64 {
        let bin = bin(duration);
        if bin >= self.bins.len() {
            self.bins.resize(bin + 1, 0);
        }
        &mut self.bins[bin]
    }

    /// Adds what another one counted.
    pub fn merge(&mut self, other: &Self) {
        if self.bins.len() < other.bins.len() {
            self.bins.resize(other.bins.len(), 0);
        }
        for (own, more) in self.bins.iter_mut().zip(&other.bins) {
            *own += more;
        }
        self.count += other.count;
        self.sum_nanos += other.sum_nanos;
        self.max = self.max.max(other.max);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The exact mean; zero if there is none.
    pub fn mean(&self) -> Duration {
        let mean = self.sum_nanos.checked_div(u128::from(self.count)).unwrap_or(0);
        Duration::from_nanos(mean as u64)
    }

    /// The exact maximum; zero if there is none.
    pub fn max(&self) -> Duration {
        self.max
    }

    /// The value below which a share `q` of all durations lies, within 0.4 %; zero if there is
    /// none.
    pub fn quantile(&self, q: f64) -> Duration {
        let rank = ((self.count as f64 * q).ceil() as u64).max(1);
        let mut below = 0;
        for (bin, count) in self.bins.iter().enumerate() {
            below += count;
            if below >= rank {
                return value(bin);
            }
        }
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NS: fn(u64) -> Duration = Duration::from_nanos;

    proptest! {
        #[test]
        fn bins_are_narrow_and_in_order(ns in 0..u64::MAX / 2) {
            let middle = value(bin(NS(ns))).as_nanos();
            prop_assert!(middle.abs_diff(ns) as f64 <= ns as f64 * 0.005, "{} {}", ns, middle);
            prop_assert!(bin(NS(ns)) <= bin(NS(ns + 1)));
        }

        #[test]
        fn a_run_counts_as_its_parts(first in 0..1u64 << 40, step in -900i64..900, n in 1..64u64) {
            let at = |i: u64| first.saturating_add_signed(step * i as i64);
            prop_assume!(first as i64 + step * n as i64 > 0);
            let (mut whole, mut parts) = (Histogram::default(), Histogram::default());
            whole.add_run(NS(at(0)), NS(at(n - 1)), n);
            let (few, more) = (0..n).partition::<Vec<u64>, _>(|i| i % 3 == 0);
            let mut others = Histogram::default();
            few.iter().for_each(|&i| parts.add(NS(at(i)), 1));
            more.iter().for_each(|&i| others.add(NS(at(i)), 1));
            parts.merge(&others);
            prop_assert_eq!(whole, parts);
        }
    }

    #[test]
    fn quantiles_are_ranks() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.99), Duration::ZERO);
        (1..=100).for_each(|ns| histogram.add(NS(ns), 1));
        assert_eq!(histogram.quantile(0.99), NS(99));
        assert_eq!(histogram.quantile(0.5), NS(50));
        assert_eq!((histogram.mean(), histogram.max()), (NS(50), NS(100)));
    }
}

//! The difference between actual deliveries and the times that the links computed.

use packtrain_units::Duration;

/// Buckets per power of two: a quantile is at most 1/16 too large.
const STEPS: u64 = 16;

/// A histogram of durations with constant relative resolution.
#[derive(Clone, Debug)]
pub(crate) struct Lateness {
    buckets: Vec<u64>,
    count: u64,
    sum: u128,
    max: u64,
}

impl Lateness {
    /// Empty.
    pub(crate) fn new() -> Self {
        Self { buckets: vec![0; 64 * STEPS as usize], count: 0, sum: 0, max: 0 }
    }

    /// Adds `count` deliveries that were `late` late.
    pub(crate) fn add(&mut self, late: Duration, count: u64) {
        let nanos = late.as_nanos();
        self.buckets[bucket(nanos)] += count;
        self.count += count;
        self.sum += u128::from(nanos) * u128::from(count);
        self.max = self.max.max(nanos);
    }

    /// Adds the samples of another histogram.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (own, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *own += more;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// The mean.
    pub(crate) fn mean(&self) -> Duration {
        Duration::from_nanos((self.sum / u128::from(self.count.max(1))) as u64)
    }

    /// The maximum.
    pub(crate) fn max(&self) -> Duration {
        Duration::from_nanos(self.max)
    }

    /// The quantile of this share.
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        let rank = (self.count as f64 * share).ceil() as u64;
        let mut covered = 0;
        for (i, count) in self.buckets.iter().enumerate() {
            covered += count;
            if covered >= rank && covered > 0 {
                return Duration::from_nanos(top(i as u64).min(self.max));
            }
        }
        Duration::ZERO
    }
}

/// The bucket of a value: below `2 * STEPS` one each, above that `STEPS` per power of two.
fn bucket(nanos: u64) -> usize {
    if nanos < 2 * STEPS {
        return nanos as usize;
    }
    let power = u64::from(nanos.ilog2());
    let shift = power - u64::from(STEPS.ilog2());
    (shift * STEPS + (nanos >> shift)) as usize
}

/// The largest value of a bucket.
fn top(bucket: u64) -> u64 {
    if bucket < 2 * STEPS {
        return bucket;
    }
    let shift = bucket / STEPS - 1;
    let base = bucket - shift * STEPS;
    ((base + 1) << shift).wrapping_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_and_hold_what_they_say() {
        let mut values: Vec<u64> = (0..200).collect();
        values.extend((0..64).flat_map(|p| [(1_u64 << p) - 1, 1 << p, (1 << p) + (1 << p) / 3]));
        values.push(u64::MAX);
        for value in values {
            let b = bucket(value);
            assert!(b < 64 * STEPS as usize, "{value}");
            assert!(top(b as u64) >= value, "{value}: top {}", top(b as u64));
            assert!(b == 0 || top(b as u64 - 1) < value, "{value}");
        }
    }

    #[test]
    fn quantiles_are_close() {
        let mut lateness = Lateness::new();
        for i in 1..=1_000 {
            lateness.add(Duration::from_nanos(i * 1_000), 1);
        }
        assert_eq!(lateness.mean().as_nanos(), 500_500);
        let p99 = lateness.quantile(0.99).as_nanos() as f64;
        assert!((p99 / 990_000.0 - 1.0).abs() < 0.07, "{p99}");
        assert_eq!(lateness.max().as_nanos(), 1_000_000);
        assert_eq!(Lateness::new().quantile(0.99), Duration::ZERO);
    }
}

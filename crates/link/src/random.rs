//! Random variables from the seeded generator. Logarithms and powers come from `libm`, which gives
//! the same bits on every machine, so a seed gives the same results everywhere.

use packtrain_units::{Duration, Rng};

/// A uniform number in (0, 1].
pub(crate) fn positive(rng: &mut Rng) -> f64 {
    1.0 - rng.unit()
}

/// The number of trials before the next hit, where each hits with the same probability.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometric {
    /// Logarithm of the probability of a miss; zero: hits never occur.
    log_miss: f64,
}

impl Geometric {
    /// Each trial hits with probability `p`.
    pub(crate) fn new(p: f64) -> Self {
        Self { log_miss: libm::log1p(-p.clamp(0.0, 1.0)) }
    }

    /// Misses before the next hit; `u64::MAX` if it never comes.
    pub(crate) fn misses(&self, rng: &mut Rng) -> u64 {
        if self.log_miss == 0.0 {
            return u64::MAX;
        }
        // Inversion: P(misses >= k) = (1-p)^k. The logarithm of a certain hit is infinite.
        (libm::log(positive(rng)) / self.log_miss) as u64
    }
}

/// Counts down to the next of independent hits, so that a train without one passes at once.
#[derive(Clone, Debug)]
pub(crate) struct Hits {
    law: Geometric,
    rng: Rng,
    misses: u64,
}

impl Hits {
    /// Each trial hits with probability `p`.
    pub(crate) fn new(p: f64, mut rng: Rng) -> Self {
        let law = Geometric::new(p);
        let misses = law.misses(&mut rng);
        Self { law, rng, misses }
    }

    /// The index of the first of the next `n` trials to hit. The trials up to it are consumed; all
    /// `n` if none hits.
    pub(crate) fn next_in(&mut self, n: u32) -> Option<u32> {
        if self.misses >= u64::from(n) {
            // A hit that never comes stays at infinity.
            if self.misses != u64::MAX {
                self.misses -= u64::from(n);
            }
            return None;
        }
        let at = self.misses as u32;
        self.misses = self.law.misses(&mut self.rng);
        Some(at)
    }
}

/// An exponential span with this mean.
pub(crate) fn exponential(rng: &mut Rng, mean: Duration) -> Duration {
    mean.mul_f64(-libm::log(positive(rng)))
}

/// A Pareto span with this mean and shape, which is above one.
pub(crate) fn pareto(rng: &mut Rng, mean: Duration, shape: f64) -> Duration {
    let minimum = (shape - 1.0) / shape;
    mean.mul_f64(minimum * libm::pow(positive(rng), -1.0 / shape))
}

/// A standard normal number (Box and Muller 1958; one of the pair, so that each costs the same two
/// draws).
pub(crate) fn normal(rng: &mut Rng) -> f64 {
    let radius = (-2.0 * libm::log(positive(rng))).sqrt();
    radius * libm::cos(2.0 * std::f64::consts::PI * rng.unit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_between_hits_are_geometric() {
        for p in [0.001, 0.1, 0.5, 0.9] {
            let (law, mut rng) = (Geometric::new(p), Rng::new(5));
            let n = 200_000;
            let sum: u64 = (0..n).map(|_| law.misses(&mut rng)).sum();
            let (mean, right) = (sum as f64 / f64::from(n), (1.0 - p) / p);
            assert!((mean - right).abs() < 0.02 * right + 0.005, "{p}: {mean} for {right}");
        }
        let mut rng = Rng::new(1);
        assert_eq!(Geometric::new(0.0).misses(&mut rng), u64::MAX);
        assert_eq!(Geometric::new(1.0).misses(&mut rng), 0);
    }

    #[test]
    fn hits_do_not_depend_on_how_trials_are_grouped() {
        let mut one = Hits::new(0.05, Rng::new(3));
        let mut all = Hits::new(0.05, Rng::new(3));
        let single: Vec<bool> = (0..10_000).map(|_| one.next_in(1).is_some()).collect();
        let (mut grouped, mut rng) = (Vec::new(), Rng::new(4));
        while grouped.len() < 10_000 {
            let mut n = 1 + rng.below(64) as u32;
            while let Some(at) = all.next_in(n) {
                grouped.extend((0..=at).map(|i| i == at));
                n -= at + 1;
            }
            grouped.extend((0..n).map(|_| false));
        }
        assert_eq!(single, grouped[..10_000]);
    }

    #[test]
    fn means_are_what_they_are_said_to_be() {
        let (mut rng, mean) = (Rng::new(8), Duration::from_millis(1));
        let n = 100_000;
        let average = |mut draw: Box<dyn FnMut() -> f64>| (0..n).map(|_| draw()).sum::<f64>();
        let mut other = rng.fork();
        let exp = average(Box::new(move || exponential(&mut other, mean).as_secs_f64()));
        let mut other = rng.fork();
        let par = average(Box::new(move || pareto(&mut other, mean, 2.5).as_secs_f64()));
        let square = average(Box::new(move || normal(&mut rng).powi(2)));
        let n = f64::from(n);
        assert!((exp / n - 0.001).abs() < 0.00002, "{exp}");
        assert!((par / n - 0.001).abs() < 0.00003, "{par}");
        assert!((square / n - 1.0).abs() < 0.02, "{square}");
    }
}

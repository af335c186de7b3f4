//! Draws from the seeded generator, by `libm`, so that a seed gives the same values on every
//! machine.

use packtrain_units::{Duration, Rng};

/// Uniform between `low` and `high`.
pub(super) fn even(rng: &mut Rng, low: f64, high: f64) -> f64 {
    low + (high - low) * rng.unit()
}

/// Log-uniform between `low` and `high`.
pub(super) fn scale(rng: &mut Rng, low: f64, high: f64) -> f64 {
    libm::exp(even(rng, libm::log(low), libm::log(high)))
}

/// A whole number from `low` to `high`, both included.
pub(super) fn whole(rng: &mut Rng, low: u64, high: u64) -> u64 {
    low + rng.below(high - low + 1)
}

/// One of these values.
pub(super) fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.below(from.len() as u64) as usize]
}

/// An exponential duration with this mean.
pub(super) fn exponential(rng: &mut Rng, mean: Duration) -> Duration {
    mean.mul_f64(-libm::log(1.0 - rng.unit()))
}

/// A duration in seconds.
pub(super) fn seconds(s: f64) -> Duration {
    Duration::from_secs_f64(s)
}

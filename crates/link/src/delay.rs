//! The delay of the wire, its jitter, and reordering.

use packtrain_units::{Duration, Rng, Time};

use crate::config::DelayVariation;
use crate::random::{normal, pareto};

/// Delay that varies between packets that keep their order: a packet that would overtake arrives
/// with the one before it.
#[derive(Clone, Debug)]
pub(crate) struct Jitter {
    variation: DelayVariation,
    delay: Duration,
    rng: Rng,
    latest: Time,
}

impl Jitter {
    pub(crate) fn new(variation: DelayVariation, delay: Duration, rng: Rng) -> Self {
        Self { variation, delay, rng, latest: Time::ZERO }
    }

    /// The arrival time of a packet that left at `left`.
    pub(crate) fn arrival(&mut self, left: Time) -> Time {
        let delay = match self.variation {
            DelayVariation::Uniform(max) => {
                let extra = self.rng.below(max.as_nanos().saturating_add(1));
                self.delay + Duration::from_nanos(extra)
            }
            DelayVariation::Normal(deviation) => {
                let z = normal(&mut self.rng);
                let extra = deviation.mul_f64(z.abs());
                if z < 0.0 { self.delay - extra } else { self.delay + extra }
            }
            DelayVariation::Pareto { mean, shape } => {
                self.delay + pareto(&mut self.rng, mean, shape)
            }
        };
        self.latest = self.latest.max(left + delay);
        self.latest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_keep_their_order_and_their_least_delay() {
        let ms = Duration::from_millis;
        for variation in [
            DelayVariation::Uniform(ms(3)),
            DelayVariation::Normal(ms(2)),
            DelayVariation::Pareto { mean: ms(1), shape: 1.5 },
        ] {
            let mut jitter = Jitter::new(variation, ms(5), Rng::new(1));
            let (mut last, mut sum) = (Time::ZERO, 0.0);
            for i in 0..20_000 {
                let left = Time::ZERO + ms(100) * i;
                let arrival = jitter.arrival(left);
                assert!(arrival >= last && arrival >= left, "{variation:?}");
                (last, sum) = (arrival, sum + arrival.since(left).as_secs_f64());
            }
            let mean = sum / 20_000.0;
            assert!((0.0045..0.0070).contains(&mean), "{variation:?}: {mean}");
        }
    }

    #[test]
    fn one_that_would_overtake_arrives_with_the_one_before() {
        let all = Duration::from_secs(1);
        let mut jitter = Jitter::new(DelayVariation::Uniform(all), Duration::ZERO, Rng::new(2));
        let times: Vec<Time> = (0..100).map(|i| jitter.arrival(Time::from_nanos(i))).collect();
        assert!(times.is_sorted());
        assert!(times.windows(2).any(|w| w[0] == w[1]));
    }
}

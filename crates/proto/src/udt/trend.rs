//! Detects a growing delay with Pathload's tests (section III.C, its reference [7]).

use packtrain_units::Duration;

/// N3: number of samples.
const SAMPLES: usize = 16;

/// Minimum rise on hosts that send trains or coalesce packets. Ticks and threads cause smaller
/// rises; on an idle path of 0.1 ms they caused one warning after another.
const MIN_BLURRED_RISE: Duration = Duration::from_micros(250);

/// The newest delays.
#[derive(Clone, Debug)]
pub(crate) struct Trend {
    ring: [u64; SAMPLES],
    count: usize,
    /// Minimum rise that counts.
    min_rise: Duration,
}

impl Trend {
    /// For delays that are exact per packet, or for a sender of `trains`.
    pub(crate) fn new(trains: bool) -> Self {
        let min_rise = if trains { MIN_BLURRED_RISE } else { Duration::ZERO };
        Self { ring: [0; SAMPLES], count: 0, min_rise }
    }

    /// Takes a sample; returns whether the last 16 rise.
    pub(crate) fn sample(&mut self, delay: Duration) -> bool {
        self.ring[self.count % SAMPLES] = delay.as_nanos();
        self.count += 1;
        self.rises()
    }

    /// Pairwise comparison test, PCT = #(r_i > r_(i-1)) / 15, and pairwise difference test, PDT =
    /// (r_last - r_first) / sum |r_i - r_(i-1)|. The delay rises if one test exceeds its threshold
    /// and the other comes near: PCT > 0.66 and PDT > 0.45, or PCT > 0.54 and PDT > 0.55.
    fn rises(&self) -> bool {
        if self.count < SAMPLES {
            return false;
        }
        let newest = |i: usize| self.ring[(self.count + i) % SAMPLES];
        let (mut ups, mut sum) = (0u32, 0u64);
        for i in 1..SAMPLES {
            ups += u32::from(newest(i) > newest(i - 1));
            sum = sum.saturating_add(newest(i).abs_diff(newest(i - 1)));
        }
        let rise = newest(SAMPLES - 1).saturating_sub(newest(0));
        if sum == 0 || rise < self.min_rise.as_nanos() {
            return false;
        }
        let pct = f64::from(ups) / (SAMPLES - 1) as f64;
        let pdt = (newest(SAMPLES - 1) as f64 - newest(0) as f64) / sum as f64;
        (pct > 0.66 && pdt > 0.45) || (pct > 0.54 && pdt > 0.55)
    }
}

#[cfg(test)]
mod tests {
    use packtrain_units::Rng;

    use super::*;

    fn feed(trend: &mut Trend, us: impl IntoIterator<Item = u64>) -> bool {
        us.into_iter().fold(false, |_, us| trend.sample(Duration::from_micros(us)))
    }

    #[test]
    fn a_growing_delay_rises_and_a_still_or_falling_one_does_not() {
        assert!(!feed(&mut Trend::new(false), (0..15).map(|i| 100 + i)), "too few");
        assert!(feed(&mut Trend::new(false), (0..16).map(|i| 100 + i)));
        assert!(!feed(&mut Trend::new(false), [100; 32]));
        assert!(!feed(&mut Trend::new(false), (0..16).map(|i| 200 - i)));
    }

    #[test]
    fn the_thresholds_are_the_checklists() {
        // Nine of 15 steps up by 20, six down by 5: PCT 0.6, PDT 150 / 210 = 0.71.
        let steps = [20i64, 20, -5, 20, -5, 20, -5, 20, -5, 20, -5, 20, -5, 20, 20];
        let mut at = 1_000i64;
        let mut values = vec![at as u64];
        values.extend(steps.map(|step| {
            at += step;
            at as u64
        }));
        assert!(feed(&mut Trend::new(false), values.iter().copied()));
        // The same with steps down by 20: PDT 60 / 300 = 0.2.
        let mut at = 1_000i64;
        let mut values = vec![at as u64];
        values.extend(steps.map(|step| {
            at += if step < 0 { -20 } else { step };
            at as u64
        }));
        assert!(!feed(&mut Trend::new(false), values));
    }

    #[test]
    fn what_threads_make_is_no_rise_on_a_host_of_trains() {
        assert!(!feed(&mut Trend::new(true), (0..16).map(|i| 100 + i * 10)));
        assert!(feed(&mut Trend::new(true), (0..16).map(|i| 100 + i * 20)));
    }

    #[test]
    fn noise_seldom_rises() {
        let (mut trend, mut rng, mut rises) = (Trend::new(false), Rng::new(7), 0);
        for _ in 0..100_000 {
            rises += u32::from(trend.sample(Duration::from_nanos(rng.below(1_000))));
        }
        assert!(rises < 500, "{rises} of 100000");
    }
}

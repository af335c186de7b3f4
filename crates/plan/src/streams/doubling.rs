//! The numbers of streams to try: 1, 2, 4, 8 ... (section 6.3).

use std::num::NonZeroU32;

use super::Sample;

/// Conditions that end the doubling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DoublingOptions {
    /// Maximum number of streams.
    pub max_streams: NonZeroU32,
    /// Minimum growth for another try, as a share of the previous throughput: the paper's
    /// "increases very slowly", which it does not quantify.
    pub min_growth: f64,
    /// Maximum number of samples.
    pub max_samples: u32,
}

impl Default for DoublingOptions {
    /// Up to 64 streams in at most seven samples; a minimum growth of 5 %, the noise of a sample of
    /// a few seconds.
    fn default() -> Self {
        Self { max_streams: NonZeroU32::MIN.saturating_add(63), min_growth: 0.05, max_samples: 7 }
    }
}

/// Doubles the number of streams until throughput falls, grows slowly, or a limit is reached.
///
/// It has no clock: the caller measures for any duration and passes in the result.
#[derive(Clone, Debug)]
pub struct Doubling {
    options: DoublingOptions,
    next: Option<NonZeroU32>,
    samples: Vec<Sample>,
}

impl Doubling {
    /// Starts with one stream.
    pub fn new(options: DoublingOptions) -> Self {
        let next = (options.max_samples > 0).then_some(NonZeroU32::MIN);
        Self { options, next, samples: Vec::new() }
    }

    /// The number of streams to try now; `None` when enough is known.
    pub fn next(&self) -> Option<NonZeroU32> {
        self.next
    }

    /// Takes a measurement, with its actual number of streams.
    pub fn on_sample(&mut self, sample: Sample) {
        let before = self.samples.last().copied();
        self.samples.push(sample);
        let enough = self.samples.len() >= self.options.max_samples as usize;
        let grew = before.is_none_or(|before| {
            let min = before.throughput.as_bps() as f64 * (1.0 + self.options.min_growth);
            sample.throughput.as_bps() as f64 > min
        });
        let doubled = sample.streams.saturating_mul(NonZeroU32::MIN.saturating_add(1));
        let room = doubled <= self.options.max_streams && doubled > sample.streams;
        self.next = (grew && room && !enough).then_some(doubled);
    }

    /// All measurements, in order.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }
}

#[cfg(test)]
mod tests {
    use packtrain_units::DataRate;

    use super::*;

    fn play(curve: impl Fn(u32) -> u64) -> Vec<u32> {
        let mut doubling = Doubling::new(DoublingOptions::default());
        while let Some(streams) = doubling.next() {
            let throughput = DataRate::from_mbps(curve(streams.get()));
            doubling.on_sample(Sample { streams, throughput });
        }
        doubling.samples().iter().map(|sample| sample.streams.get()).collect()
    }

    #[test]
    fn it_stops_one_step_after_growth_ends() {
        assert_eq!(play(|n| 100 * u64::from(n)), [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!(play(|n| 100 * u64::from(n.min(6))), [1, 2, 4, 8, 16]);
        assert_eq!(play(|_| 100), [1, 2]);
        assert_eq!(play(|n| 100 / u64::from(n)), [1, 2]);
        assert_eq!(play(|_| 0), [1, 2]);
    }
}

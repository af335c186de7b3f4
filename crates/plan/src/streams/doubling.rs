//! Which numbers of streams to try: 1, 2, 4, 8 ... (section 6.3).

use std::num::NonZeroU32;

use super::Sample;

/// When doubling ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DoublingOptions {
    /// No more streams than these are ever tried.
    pub max_streams: NonZeroU32,
    /// The least growth that pays for another try, as a share of the throughput before: the
    /// paper's "increases very slowly", to which it gives no number.
    pub least_growth: f64,
    /// No more samples than these are taken.
    pub max_samples: u32,
}

impl Default for DoublingOptions {
    /// Up to 64 streams in at most seven samples; 5 %, the noise of a sample of some seconds: what
    /// grows less cannot be told from standing still.
    fn default() -> Self {
        Self { max_streams: NonZeroU32::MIN.saturating_add(63), least_growth: 0.05, max_samples: 7 }
    }
}

/// Doubles the number of streams until throughput falls, grows slowly, or a limit is met.
///
/// It holds no clock: the caller measures as long as it likes and hands in what it saw.
#[derive(Clone, Debug)]
pub struct Doubling {
    options: DoublingOptions,
    next: Option<NonZeroU32>,
    samples: Vec<Sample>,
}

impl Doubling {
    /// Nothing measured yet; the first try is one stream.
    pub fn new(options: DoublingOptions) -> Self {
        let next = (options.max_samples > 0).then_some(NonZeroU32::MIN);
        Self { options, next, samples: Vec::new() }
    }

    /// The number of streams to try now; nothing when enough is known.
    pub fn next(&self) -> Option<NonZeroU32> {
        self.next
    }

    /// A measurement, with whatever number of streams it really had.
    pub fn on_sample(&mut self, sample: Sample) {
        let before = self.samples.last().copied();
        self.samples.push(sample);
        let enough = self.samples.len() >= self.options.max_samples as usize;
        let grew = before.is_none_or(|before| {
            let least = before.throughput.as_bps() as f64 * (1.0 + self.options.least_growth);
            sample.throughput.as_bps() as f64 > least
        });
        let doubled = sample.streams.saturating_mul(NonZeroU32::MIN.saturating_add(1));
        let room = doubled <= self.options.max_streams && doubled > sample.streams;
        self.next = (grew && room && !enough).then_some(doubled);
    }

    /// All that was measured, in order.
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

//! Round trip and retransmission timeout (RFC 6298).

use packtrain_cc::RttSample;
use packtrain_units::Duration;

/// Initial value (RFC 6298 section 2.1).
const INITIAL_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum after backoff (RFC 6298 section 2.5).
const MAX_TIMEOUT: Duration = Duration::from_secs(60);

/// The estimator.
#[derive(Clone, Debug)]
pub(super) struct Rto {
    min_timeout: Duration,
    /// Whether the minimum applies to four times the variation (Linux) or to the whole timeout.
    floor_on_variation: bool,
    sample: Option<RttSample>,
    backoff: u32,
}

impl Rto {
    pub(super) fn new(min_timeout: Duration, floor_on_variation: bool) -> Self {
        Self { min_timeout, floor_on_variation, sample: None, backoff: 0 }
    }

    /// Takes a round-trip sample; integer arithmetic with gains 1/8 and 1/4.
    #[inline]
    pub(super) fn measured(&mut self, latest: Duration) {
        let sample = match self.sample {
            None => RttSample { latest, smoothed: latest, variation: latest / 2, min: latest },
            Some(old) => {
                let (m, s) = (latest.as_nanos() as i64, old.smoothed.as_nanos() as i64);
                let v = old.variation.as_nanos() as i64;
                RttSample {
                    latest,
                    smoothed: Duration::from_nanos((s + ((m - s) >> 3)) as u64),
                    variation: Duration::from_nanos((v + (((m - s).abs() - v) >> 2)) as u64),
                    min: old.min.min(latest),
                }
            }
        };
        self.sample = Some(sample);
    }

    /// The newest sample with its averages.
    #[inline]
    pub(super) fn rtt(&self) -> Option<RttSample> {
        self.sample
    }

    /// The minimum round trip; zero before the first sample.
    pub(super) fn min(&self) -> Duration {
        self.sample.map_or(Duration::ZERO, |sample| sample.min)
    }

    /// The retransmission timeout.
    #[inline]
    pub(super) fn timeout(&self) -> Duration {
        let plain = match self.sample {
            None => INITIAL_TIMEOUT.max(self.min_timeout),
            Some(rtt) if self.floor_on_variation => {
                rtt.smoothed + (rtt.variation * 4).max(self.min_timeout)
            }
            Some(rtt) => (rtt.smoothed + rtt.variation * 4).max(self.min_timeout),
        };
        if self.backoff == 0 {
            plain
        } else {
            (plain * (1 << self.backoff.min(16))).min(MAX_TIMEOUT)
        }
    }

    /// The timer expired: the next timeout is twice as long (section 5.5).
    pub(super) fn back_off(&mut self) {
        self.backoff += 1;
    }

    /// New data was acknowledged.
    #[inline]
    pub(super) fn reset_backoff(&mut self) {
        self.backoff = 0;
    }
}

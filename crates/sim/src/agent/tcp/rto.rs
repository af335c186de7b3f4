//! Round trip and retransmission timeout (RFC 6298).

use packtrain_cc::RttSample;
use packtrain_units::Duration;

/// Before anything was measured (RFC 6298 section 2.1).
const INITIAL: Duration = Duration::from_secs(1);
/// The most that backing off leads to (RFC 6298 section 2.5).
const MAX: Duration = Duration::from_secs(60);

/// The estimator.
#[derive(Clone, Debug)]
pub(super) struct Rto {
    least: Duration,
    /// Whether the floor is under four times the variation (Linux) or under the whole.
    floor_on_variation: bool,
    sample: Option<RttSample>,
    backoff: u32,
}

impl Rto {
    pub(super) fn new(least: Duration, floor_on_variation: bool) -> Self {
        Self { least, floor_on_variation, sample: None, backoff: 0 }
    }

    /// A round trip was measured; integer arithmetic with gains 1/8 and 1/4.
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

    /// The least round trip; zero before one was measured.
    pub(super) fn min(&self) -> Duration {
        self.sample.map_or(Duration::ZERO, |sample| sample.min)
    }

    /// How long to wait for an acknowledgement.
    #[inline]
    pub(super) fn timeout(&self) -> Duration {
        let plain = match self.sample {
            None => INITIAL.max(self.least),
            Some(rtt) if self.floor_on_variation => {
                rtt.smoothed + (rtt.variation * 4).max(self.least)
            }
            Some(rtt) => (rtt.smoothed + rtt.variation * 4).max(self.least),
        };
        if self.backoff == 0 { plain } else { (plain * (1 << self.backoff.min(16))).min(MAX) }
    }

    /// It ran out: the next is twice as long (section 5.5).
    pub(super) fn ran_out(&mut self) {
        self.backoff += 1;
    }

    /// Something new was acknowledged.
    #[inline]
    pub(super) fn heard(&mut self) {
        self.backoff = 0;
    }
}

//! The round-trip estimator of RFC 9002 section 5.

use packtrain_units::{Duration, Time};

use crate::stats::FlowStats;

/// The minimum round trip is kept over two such spans.
const HALF_SPAN: Duration = Duration::from_secs(5);

/// Estimates the round trip of one flow. The caller subtracts the receiver's delay.
#[derive(Debug)]
pub(crate) struct Rtt {
    /// The round trip that is assumed before the first sample.
    guess: Duration,
    pub(crate) latest: Duration,
    pub(crate) smoothed: Option<Duration>,
    pub(crate) variation: Duration,
    minima: [Duration; 2],
    since: Time,
    samples: u64,
    total: Duration,
}

impl Default for Rtt {
    fn default() -> Self {
        Self::guessed(Duration::from_millis(100))
    }
}

impl Rtt {
    /// No sample yet; until then it is assumed to be `guess`.
    pub(crate) fn guessed(guess: Duration) -> Self {
        Self {
            guess,
            latest: Duration::ZERO,
            smoothed: None,
            variation: Duration::ZERO,
            minima: [Duration::ZERO; 2],
            since: Time::ZERO,
            samples: 0,
            total: Duration::ZERO,
        }
    }

    /// Takes a sample; zero counts as one microsecond.
    pub(crate) fn sample(&mut self, now: Time, latest: Duration) {
        let latest = latest.max(Duration::from_micros(1));
        self.latest = latest;
        self.samples += 1;
        self.total += latest;
        match self.smoothed {
            None => {
                self.smoothed = Some(latest);
                self.variation = latest / 2;
                self.minima = [latest; 2];
                self.since = now;
            }
            Some(smoothed) => {
                let off = latest.max(smoothed) - latest.min(smoothed);
                self.variation = (self.variation * 3 + off) / 4;
                self.smoothed = Some((smoothed * 7 + latest) / 8);
                if now.since(self.since) > HALF_SPAN {
                    self.minima = [latest, self.minima[0]];
                    self.since = now;
                }
                self.minima[0] = self.minima[0].min(latest);
            }
        }
    }

    /// Forgets all samples but this one.
    pub(crate) fn restart(&mut self, now: Time, latest: Duration) {
        *self = Self::guessed(self.guess);
        self.sample(now, latest);
    }

    /// The smoothed round trip, or the guess before the first sample.
    pub(crate) fn smoothed_or_guess(&self) -> Duration {
        self.smoothed.unwrap_or(self.guess)
    }

    /// The minimum round trip of the last five to ten seconds, if any was measured.
    pub(crate) fn min(&self) -> Option<Duration> {
        self.smoothed.map(|_| self.minima[0].min(self.minima[1]))
    }

    /// Writes its gauges.
    pub(crate) fn gauges(&self, stats: &mut FlowStats) {
        stats.rtt = self.smoothed;
        stats.min_rtt = self.min();
        stats.rtt_latest = self.smoothed.map(|_| self.latest);
        (stats.rtt_samples, stats.rtt_total) = (self.samples, self.total);
    }

    /// Time after sending a packet at which its report is overdue, the receiver's `delay` included.
    pub(crate) fn overdue(&self, delay: Duration) -> Duration {
        let smoothed = self.smoothed_or_guess();
        smoothed + (smoothed / 2).max(self.variation * 4) + delay * 2 + Duration::from_millis(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_rfc_9002_and_forgets_old_minima() {
        let mut rtt = Rtt::default();
        let ms = Duration::from_millis;
        rtt.sample(Time::ZERO, ms(100));
        assert_eq!((rtt.smoothed, rtt.variation), (Some(ms(100)), ms(50)));
        rtt.sample(Time::ZERO, ms(60));
        assert_eq!(rtt.smoothed, Some(ms(95)));
        assert_eq!(rtt.variation, Duration::from_micros(47_500));
        assert_eq!(rtt.min(), Some(ms(60)));
        for s in 1..4 {
            rtt.sample(Time::ZERO + Duration::from_secs(6 * s), ms(90));
        }
        assert_eq!(rtt.min(), Some(ms(90)));
    }
}

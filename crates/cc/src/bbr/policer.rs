//! Long-term sampling: two intervals with the same rate and many losses indicate a token bucket
//! policer, whose rate is then used as the path's rate.
//! draft-cardwell-iccrg-bbr-congestion-control-00 only names it; this follows Linux.

use packtrain_units::{Duration, Time};

/// Minimum and maximum rounds of an interval.
const MIN_INTERVAL_ROUNDS: u32 = 4;
const MAX_INTERVAL_ROUNDS: u32 = 16;
/// An interval with this share lost may have been policed (Linux: 50/256).
const MIN_LOSS_SHARE: f64 = 50.0 / 256.0;
/// Two intervals are equal within an eighth, or within 4 kbit/s.
const MAX_DIFFERENCE: f64 = 1.0 / 8.0;
const ALIKE_BYTES: f64 = 500.0;
/// Rounds for which the detected rate is used.
const MAX_DETECTED_ROUNDS: u32 = 48;

/// The sampling and its result.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Policer {
    sampling: bool,
    detected: bool,
    /// Rate of the last interval, in bytes per second; zero for none.
    rate: f64,
    rounds: u32,
    start: Totals,
}

/// The counters of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) now: Time,
    /// In bytes.
    pub(super) delivered: f64,
    pub(super) lost: f64,
}

/// The contents of one feedback.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) losses: bool,
    pub(super) app_limited: bool,
    pub(super) round_start: bool,
    pub(super) probing: bool,
}

impl Policer {
    /// The policer's rate in bytes per second, while one is assumed.
    pub(super) fn rate(&self) -> Option<f64> {
        self.detected.then_some(self.rate)
    }

    /// Returns true when the use of the policer's rate ends and probing restarts.
    pub(super) fn on_sample(&mut self, sample: Sample, totals: Totals) -> bool {
        if self.detected {
            return self.is_expired(sample, totals);
        }
        // Sampling begins at the first loss, which shows that the bucket is empty; earlier bursts
        // would distort the rate.
        if !self.sampling {
            if !sample.losses {
                return false;
            }
            self.begin(totals);
            self.sampling = true;
        }
        if sample.app_limited {
            self.reset(totals);
            return false;
        }
        self.rounds += u32::from(sample.round_start);
        if self.rounds > MAX_INTERVAL_ROUNDS {
            self.reset(totals);
        } else if self.rounds >= MIN_INTERVAL_ROUNDS && sample.losses {
            self.on_interval(totals);
        }
        false
    }

    fn is_expired(&mut self, sample: Sample, totals: Totals) -> bool {
        if !(sample.probing && sample.round_start) {
            return false;
        }
        self.rounds += 1;
        if self.rounds < MAX_DETECTED_ROUNDS {
            return false;
        }
        self.reset(totals);
        true
    }

    fn on_interval(&mut self, totals: Totals) {
        let (lost, delivered) =
            (totals.lost - self.start.lost, totals.delivered - self.start.delivered);
        let span = totals.now.since(self.start.now);
        if delivered <= 0.0 || lost < MIN_LOSS_SHARE * delivered || span < Duration::from_millis(1)
        {
            return;
        }
        let rate = delivered / span.as_secs_f64();
        let apart = (rate - self.rate).abs();
        if self.rate > 0.0 && (apart <= MAX_DIFFERENCE * self.rate || apart <= ALIKE_BYTES) {
            self.rate = (rate + self.rate) / 2.0;
            self.detected = true;
            self.rounds = 0;
        } else {
            self.rate = rate;
            self.begin(totals);
        }
    }

    fn begin(&mut self, totals: Totals) {
        self.start = totals;
        self.rounds = 0;
    }

    pub(super) fn reset(&mut self, totals: Totals) {
        *self = Self::default();
        self.begin(totals);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(round: u32, lost: f64) -> Totals {
        let delivered = 1e5 * f64::from(round);
        let now = Time::ZERO + Duration::from_millis(100) * u64::from(round);
        Totals { now, delivered, lost: lost * delivered }
    }

    const LOSS: Sample =
        Sample { losses: true, app_limited: false, round_start: true, probing: true };

    #[test]
    fn two_lossy_intervals_of_one_rate_are_believed_for_a_while() {
        let mut policer = Policer::default();
        assert!((1..9).all(|i| !policer.on_sample(LOSS, at(i, 0.25))));
        let rate = policer.rate().expect("policed");
        assert!((rate - 1e6).abs() < 1.0, "{rate}");
        assert!((9..56).all(|i| !policer.on_sample(LOSS, at(i, 0.25))));
        assert!(policer.on_sample(LOSS, at(56, 0.25)));
        assert_eq!(policer.rate(), None);
    }

    #[test]
    fn few_losses_or_a_pause_are_no_policer() {
        let mut policer = Policer::default();
        assert!((1..100).all(|i| !policer.on_sample(LOSS, at(i, 0.1))));
        assert_eq!(policer.rate(), None);
        let mut policer = Policer::default();
        for i in 1..100 {
            policer.on_sample(Sample { app_limited: i % 7 == 0, ..LOSS }, at(i, 0.25));
        }
        assert_eq!(policer.rate(), None);
    }
}

//! Queueing delay on the forward path and its growth, from the receiver's arrival marks.

use packtrain_units::{Duration, Time};

use crate::udt::Trend;

/// Buckets of the running minimum, one second each.
const BUCKETS: usize = 10;
const BUCKET: Duration = Duration::from_secs(1);
/// UDT's SYN: the minimum interval between its round-trip samples.
const SAMPLE_EVERY: Duration = Duration::from_millis(10);
/// A shorter queueing delay is noise of threads and batches.
const VISIBLE_QUEUE: Duration = Duration::from_micros(300);
/// Maximum clock skew accepted: 200 parts per million.
const SKEW_LIMIT: f64 = 200e-6;

/// One-way delay less its minimum of the last ten seconds. The two clocks share no epoch, so only
/// differences are meaningful. Their skew is estimated from the drift of the minima.
#[derive(Debug, Default)]
pub(crate) struct Delay {
    /// Minimum one-way delay of each second, oldest first, with the time of that sample.
    buckets: Vec<(Time, f64)>,
    opened: Time,
    skew: f64,
    /// The minimum of the newest report with a sample, and of the one before, with the time of the
    /// newer.
    reports: Option<(Time, Duration, Duration)>,
}

impl Delay {
    /// A packet sent at `sent` on the local clock arrived at `at` on the receiver's clock.
    pub(crate) fn sample(&mut self, sent: Time, at: Time) -> Duration {
        let raw = at.as_nanos() as f64 - sent.as_nanos() as f64;
        if self.buckets.is_empty() || sent.since(self.opened) > BUCKET {
            if self.buckets.len() == BUCKETS {
                self.buckets.remove(0);
            }
            self.opened = sent;
            self.buckets.push((sent, raw));
            self.skew = self.drift();
        }
        if let Some(last) = self.buckets.last_mut()
            && raw < last.1
        {
            *last = (sent, raw);
        }
        let now = sent.as_nanos() as f64;
        let level = |(t, d): &(Time, f64)| d + self.skew * (now - t.as_nanos() as f64);
        let base = self.buckets.iter().map(level).fold(f64::INFINITY, f64::min);
        Duration::from_nanos((raw - base).max(0.0) as u64)
    }

    /// The minimum of the samples of a report.
    pub(crate) fn on_report(&mut self, now: Time, min: Duration) {
        let before = self.reports.map_or(min, |(_, newest, _)| newest);
        self.reports = Some((now, min, before));
    }

    /// The delay in the last two reports with a sample, if the newer came at `since` or later.
    /// Threads and batches delay single packets, so the lower counts.
    pub(crate) fn recent(&self, since: Time) -> Option<Duration> {
        let (at, newest, before) = self.reports?;
        (at >= since).then_some(newest.min(before))
    }

    /// Slope of the lower envelope: the median of the slopes between minima of the first and of the
    /// second half. A queue that stands for a few seconds does not change it.
    fn drift(&self) -> f64 {
        if self.buckets.len() < BUCKETS {
            return self.skew;
        }
        let half = BUCKETS / 2;
        let mut slopes: Vec<f64> = (0..half)
            .map(|i| {
                let ((t0, d0), (t1, d1)) = (self.buckets[i], self.buckets[i + half]);
                (d1 - d0) / (t1.as_nanos() as f64 - t0.as_nanos() as f64).max(1.0)
            })
            .collect();
        slopes.sort_by(f64::total_cmp);
        slopes[half / 2].clamp(-SKEW_LIMIT, SKEW_LIMIT)
    }
}

/// The queue of the path as far as losses show its size: the longest queueing delay around the
/// last losses.
#[derive(Debug, Default)]
pub(crate) struct LearnedQueue {
    peak: Duration,
    learned: Option<Duration>,
}

impl LearnedQueue {
    /// A queueing delay was measured.
    pub(crate) fn on_delay(&mut self, queueing: Duration) {
        self.peak = self.peak.max(queueing);
    }

    /// A round of losses began. Without a visible queue it says nothing.
    pub(crate) fn on_loss_round(&mut self) {
        let peak = std::mem::take(&mut self.peak);
        if peak >= VISIBLE_QUEUE {
            self.learned = Some(self.learned.map_or(peak, |old| peak.max((old * 7 + peak) / 8)));
        }
    }

    /// How much of it a burst may fill: a quarter.
    pub(crate) fn burst(&self) -> Option<Duration> {
        self.learned.map(|queue| queue / 4)
    }
}

/// UDT's delay warning (paper section III.C) for a feedback without ACK2: the same tests over
/// queueing delays, which do not contain thread delays of the return path.
#[derive(Debug)]
pub(crate) struct Rising {
    trend: Trend,
    sampled_at: Option<Time>,
    warned_at: Option<Time>,
}

impl Default for Rising {
    fn default() -> Self {
        Self { trend: Trend::new(true), sampled_at: None, warned_at: None }
    }
}

impl Rising {
    /// Takes the queueing delay of a report. Returns true if a warning is due, at most once in two
    /// round trips.
    pub(crate) fn sample(&mut self, now: Time, queueing: Duration, srtt: Duration) -> bool {
        if self.sampled_at.is_some_and(|at| now < at + SAMPLE_EVERY) {
            return false;
        }
        self.sampled_at = Some(now);
        let rises = self.trend.sample(queueing);
        let warns = rises && self.warned_at.is_none_or(|at| now >= at + srtt * 2);
        if warns {
            self.warned_at = Some(now);
        }
        warns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_shows_and_an_offset_does_not() {
        let mut delay = Delay::default();
        let base = Time::ZERO + Duration::from_secs(1_000);
        for i in 0..100u64 {
            let sent = Time::ZERO + Duration::from_millis(i * 10);
            let queue = Duration::from_millis(if i < 50 { 0 } else { 7 });
            let arrived = base + Duration::from_millis(i * 10 + 20) + queue;
            assert_eq!(delay.sample(sent, arrived).as_micros(), queue.as_micros());
        }
    }

    #[test]
    fn a_skewed_clock_is_not_a_queue() {
        let mut delay = Delay::default();
        let mut worst = Duration::ZERO;
        for i in 0..60_000u64 {
            let sent = Time::ZERO + Duration::from_millis(i);
            let drift = Duration::from_nanos(i * 50);
            let queueing = delay.sample(sent, sent + Duration::from_secs(7) + drift);
            if i > 20_000 {
                worst = worst.max(queueing);
            }
        }
        assert!(worst < Duration::from_micros(100), "{worst}");
    }

    #[test]
    fn a_growing_queue_warns_once_in_two_round_trips() {
        let (mut rising, mut warned) = (Rising::default(), Vec::new());
        let ms = Duration::from_millis;
        for i in 0..100u64 {
            // Reports each 5 ms, with a queue that grows by a tenth of that.
            let now = Time::ZERO + ms(i * 5);
            if rising.sample(now, Duration::from_micros(i * 500), ms(50)) {
                warned.push(i * 5);
            }
        }
        assert_eq!(warned, [150, 250, 350, 450]);
    }
}

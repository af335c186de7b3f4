//! Queueing delay on the forward path and its growth, from the receiver's arrival marks.

use packtrain_cc::ReverseQueue;
use packtrain_units::{Duration, Time};

use crate::udt::Trend;

/// Seconds of the running minimum: of data, and of reports. That of reports outlives the minimum round
/// trip, or its queue would count as a part of that for a moment.
const SECONDS: usize = 10;
const REPORT_SECONDS: usize = 12;
const BUCKET: Duration = Duration::from_secs(1);
/// UDT's SYN: the minimum interval between its round-trip samples.
const SAMPLE_EVERY: Duration = Duration::from_millis(10);
/// A shorter queueing delay is noise of threads and batches.
const VISIBLE_QUEUE: Duration = Duration::from_micros(300);
/// Maximum clock skew accepted: 200 parts per million.
const SKEW_LIMIT: f64 = 200e-6;

/// Minimum one-way delay of each of the last seconds, oldest first, with the time of that sample.
/// In nanoseconds; the two clocks share no epoch, so only differences are meaningful.
#[derive(Debug, Default)]
struct Minima<const SECONDS: usize> {
    buckets: Vec<(Time, f64)>,
    opened: Time,
}

impl<const SECONDS: usize> Minima<SECONDS> {
    /// Takes the delay of a packet that was sent or received at `now` on the local clock. Returns
    /// true if a second has begun.
    fn sample(&mut self, now: Time, delay: f64) -> bool {
        if now.since(self.opened) > BUCKET * SECONDS as u64 {
            self.buckets.clear();
        }
        let begins = self.buckets.is_empty() || now.since(self.opened) > BUCKET;
        if begins {
            if self.buckets.len() == SECONDS {
                self.buckets.remove(0);
            }
            self.opened = now;
            self.buckets.push((now, delay));
        }
        if let Some(last) = self.buckets.last_mut()
            && delay < last.1
        {
            *last = (now, delay);
        }
        begins
    }

    /// The minimum of all, as it would be at `now` with this skew.
    fn least(&self, now: Time, skew: f64) -> f64 {
        let level = |(at, delay): &(Time, f64)| delay + skew * nanos(*at, now);
        self.buckets.iter().map(level).fold(f64::INFINITY, f64::min)
    }

    /// Slope of the lower envelope: the median of the slopes between minima of the first and of the
    /// second half. A queue that stands for a few seconds does not change it. `None` before as many
    /// seconds have passed.
    fn slope(&self) -> Option<f64> {
        if self.buckets.len() < SECONDS {
            return None;
        }
        let half = SECONDS / 2;
        let mut slopes: Vec<f64> = (0..half)
            .map(|i| {
                let ((t0, d0), (t1, d1)) = (self.buckets[i], self.buckets[i + half]);
                (d1 - d0) / nanos(t0, t1).max(1.0)
            })
            .collect();
        slopes.sort_by(f64::total_cmp);
        Some(slopes[half / 2].clamp(-SKEW_LIMIT, SKEW_LIMIT))
    }
}

/// From `a` to `b`, in nanoseconds.
fn nanos(a: Time, b: Time) -> f64 {
    b.as_nanos() as f64 - a.as_nanos() as f64
}

/// One-way delay less its minimum of the last ten seconds. The skew of the clocks is estimated from
/// the drift of the minima.
#[derive(Debug, Default)]
pub(crate) struct Delay {
    minima: Minima<SECONDS>,
    skew: f64,
    /// The minimum of the newest report with a sample, and of the one before, with the time of the
    /// newer.
    reports: Option<(Time, Duration, Duration)>,
}

impl Delay {
    /// A packet sent at `sent` on the local clock arrived at `at` on the receiver's clock.
    pub(crate) fn sample(&mut self, sent: Time, at: Time) -> Duration {
        let raw = nanos(sent, at);
        if self.minima.sample(sent, raw) {
            self.skew = self.minima.slope().unwrap_or(self.skew);
        }
        Duration::from_nanos((raw - self.minima.least(sent, self.skew)).max(0.0) as u64)
    }

    /// How fast the delay grows, in seconds a second: by the skew of the clocks, and by a queue. `None`
    /// in the first seconds.
    fn slope(&self) -> Option<f64> {
        self.minima.slope()
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
}

/// Queueing delay of the reports, which take the reverse direction: their one-way delay less the lowest
/// ever. That moves with the skew of the clocks at each moment, and begins again after a pause of some
/// seconds, over which an error of the skew would add up.
#[derive(Debug, Default)]
pub(crate) struct ReportDelay {
    minima: Minima<REPORT_SECONDS>,
    /// The slopes of the delays of reports and of data.
    slopes: [f64; 2],
    skew: f64,
    /// The lowest delay, as it would be at a time.
    lowest: Option<(Time, f64)>,
}

impl ReportDelay {
    /// A report sent at `at` on the receiver's clock arrived at `now`. `data` is the delay on the lane
    /// of its newest packet; its slope is computed once a second.
    pub(crate) fn sample(&mut self, at: Time, now: Time, data: Option<&Delay>) -> ReverseQueue {
        let raw = nanos(at, now);
        if self.minima.sample(now, raw) {
            let [back_before, there_before] = self.slopes;
            let back = self.minima.slope().unwrap_or(back_before);
            let there = data.and_then(Delay::slope).unwrap_or(there_before);
            self.slopes = [back, there];
            self.skew = skew_of_both(self.slopes);
        }
        let least = self.minima.least(now, self.skew);
        let paused = BUCKET * REPORT_SECONDS as u64;
        let lowest = match self.lowest.filter(|(at, _)| now.since(*at) < paused) {
            Some((at, delay)) => least.min(delay + self.skew * nanos(at, now)),
            None => least,
        };
        self.lowest = Some((now, lowest));
        let above = |delay: f64| Duration::from_nanos((delay - lowest).max(0.0) as u64);
        ReverseQueue { newest: above(raw), least: above(least) }
    }
}

/// The skew of the two clocks, from the slopes of the delays of reports and of data. It changes both
/// by the same amount in opposite directions; a queue that grows changes one.
fn skew_of_both([back, there]: [f64; 2]) -> f64 {
    if (back > 0.0) == (there > 0.0) { 0.0 } else { back.abs().min(there.abs()).copysign(back) }
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

    /// Each 10 ms the queueing delay of the data, and the newest and the least of reports, in
    /// microseconds, for a receiver whose clock is fast by `ppm`. `queues` are those there and back at
    /// a time in seconds, in milliseconds.
    fn measure(ppm: i64, queues: impl Fn(f64) -> (f64, f64)) -> Vec<[f64; 3]> {
        let (mut delay, mut reports) = (Delay::default(), ReportDelay::default());
        let step = |i: u64| {
            let sent = Time::ZERO + Duration::from_millis(i * 10);
            let (there, back) = queues(i as f64 / 100.0);
            let epoch = Duration::from_nanos((7_000_000_000 + i as i64 * 10 * ppm) as u64);
            let arrived = sent + epoch + Duration::from_secs_f64(there / 1e3);
            let passed = Duration::from_secs_f64((there + back) / 1e3);
            let queueing = delay.sample(sent, arrived);
            let reported = sent + Duration::from_millis(40) + passed;
            let reverse = reports.sample(arrived, reported, Some(&delay));
            [queueing, reverse.newest, reverse.least].map(|delay| delay.as_secs_f64() * 1e6)
        };
        (0..12_000).map(step).collect()
    }

    #[test]
    fn a_skewed_clock_is_not_a_queue() {
        for ppm in [-50, 50] {
            for [queueing, newest, least] in &measure(ppm, |_| (0.0, 0.0))[2_000..] {
                assert!(*queueing < 100.0, "{queueing}");
                // Before it is known, 50 millionths of twelve seconds pass.
                assert!(*newest < 700.0 && *least < 700.0, "{newest} {least}");
            }
        }
    }

    #[test]
    fn a_queue_of_the_reverse_direction_shows_in_the_reports_as_long_as_it_stands() {
        let stands = |t: f64| (30.0..100.0).contains(&t);
        for ppm in [-50, 0, 50] {
            let delays = measure(ppm, |t| (0.0, if stands(t) { 7.0 } else { 0.0 }));
            let off = |from: usize, to: usize, field: usize, delay: f64| {
                let off = |delays: &[f64; 3]| (delays[field] - delay).abs();
                delays[from..to].iter().map(off).fold(0.0, f64::max)
            };
            assert!(off(0, 3_000, 1, 0.0) < 600.0, "before: {}", off(0, 3_000, 1, 0.0));
            assert!(off(3_000, 10_000, 1, 7_000.0) < 1_500.0, "newest");
            assert!(off(4_200, 10_000, 2, 7_000.0) < 1_500.0, "least");
            assert!(off(10_200, 12_000, 1, 0.0) < 1_000.0, "after");
        }
    }

    #[test]
    fn a_queue_that_grows_slowly_is_not_a_skew() {
        let grows = |t: f64| (0.1 * t, 0.0);
        let most = |[_, newest, _]: [f64; 3]| newest;
        let there = measure(0, grows).into_iter().map(most).fold(0.0, f64::max);
        assert!(there < 100.0, "one of the data is none of the reports: {there}");
        let back = measure(0, |t| (0.0, 0.1 * t));
        assert!(back[9_000..].iter().all(|delays| delays[2] > 7_900.0), "{:?}", back[9_000]);
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

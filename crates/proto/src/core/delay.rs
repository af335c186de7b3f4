//! Signals from the receiver's arrival marks: queueing delay on the way out, and capacity from
//! the dispersion of trains.

use packtrain_units::{ByteCount, DataRate, Duration, Time};

/// Buckets of the running minimum, one second each.
const BUCKETS: usize = 10;
const BUCKET: Duration = Duration::from_secs(1);
/// Fewer packets than this disperse too little to measure.
const DISPERSION_PACKETS: u64 = 8;
/// Faster clocks than this do not exist: 200 parts in a million.
const SKEW_LIMIT: f64 = 200e-6;

/// One-way delay less its minimum of ten seconds. The two clocks share no epoch: only
/// differences mean something. Their skew is taken from the drift of the minima.
#[derive(Debug, Default)]
pub(crate) struct Delay {
    /// Least one-way delay of each second, oldest first, with the time of that sample.
    buckets: Vec<(Time, f64)>,
    opened: Time,
    skew: f64,
    newest: Option<Duration>,
}

impl Delay {
    /// A packet sent at `sent` on our clock arrived at `at` on the receiver's.
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
        let queueing = Duration::from_nanos((raw - base).max(0.0) as u64);
        self.newest = Some(queueing);
        queueing
    }

    /// The newest sample.
    pub(crate) fn newest(&self) -> Option<Duration> {
        self.newest
    }

    /// Slope of the lower envelope: the median of the slopes between minima of the two halves,
    /// which a standing queue in a few seconds does not move.
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

/// Capacity of the narrowest link, from how far it spreads trains.
#[derive(Debug, Default)]
pub(crate) struct Capacity {
    recent: [u64; 16],
    count: usize,
}

impl Capacity {
    /// `packets` of `wire` bytes each, sent back to back, arrived over `span`.
    pub(crate) fn sample(&mut self, packets: u64, wire: ByteCount, span: Duration) {
        if packets < DISPERSION_PACKETS || span < Duration::from_micros(20) {
            return;
        }
        let rate = DataRate::from_bytes_over(ByteCount(packets * wire.get()), span);
        self.recent[self.count % self.recent.len()] = rate.as_bps();
        self.count += 1;
    }

    /// The median of the newest samples, once there are four.
    pub(crate) fn estimate(&self) -> Option<DataRate> {
        if self.count < 4 {
            return None;
        }
        let mut recent = self.recent;
        let known = &mut recent[..self.count.min(16)];
        known.sort_unstable();
        Some(DataRate::from_bps(known[known.len() / 2]))
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
    fn capacity_is_the_median_of_dispersions() {
        let mut capacity = Capacity::default();
        for i in 0..8u64 {
            let span = Duration::from_nanos(16 * 11_776 * if i == 3 { 10 } else { 1 });
            capacity.sample(16, ByteCount(1472), span);
        }
        let mbit = capacity.estimate().unwrap().as_bps() / 1_000_000;
        assert_eq!(mbit, 1000);
    }
}

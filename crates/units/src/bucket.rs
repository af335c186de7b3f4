//! A token bucket, stored as the time from which the next piece may be sent (the generic cell rate
//! algorithm of ITU-T I.371). Time is an argument.

use crate::{ByteCount, DataRate, Duration, Time};

/// Minimum interval over which utilisation is measured.
const INTERVAL: Duration = Duration::from_millis(250);
/// Share of an interval's bytes above which the bucket was the limit.
const FULL: f64 = 0.9;

/// A rate limit.
///
/// In any time span, at most `rate x (span + burst)` plus one piece passes. Unused credit is lost
/// after `burst`: a longer pause gives no more credit.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    rate: DataRate,
    burst: Duration,
    /// The next piece may be sent from this time on.
    due: Time,
    usage: Usage,
}

impl TokenBucket {
    /// A bucket that passes `rate`, and after a pause the bytes of `burst` at once. A rate of zero
    /// counts as one bit per second.
    pub fn new(rate: DataRate, burst: Duration) -> Self {
        let rate = rate.max(DataRate::from_bps(1));
        Self { rate, burst, due: Time::ZERO, usage: Usage::default() }
    }

    /// Its rate.
    pub fn rate(&self) -> DataRate {
        self.rate
    }

    /// When the next piece may be sent.
    pub fn due(&self) -> Time {
        self.due
    }

    /// Takes `bytes` at `now` even if they exceed the rate; later pieces are delayed.
    pub fn charge(&mut self, now: Time, bytes: ByteCount) {
        self.due = self.due.max(now - self.burst) + self.rate.time_for(bytes);
        self.usage.add(now, bytes, self.rate);
    }

    /// Takes `bytes` at `now` and returns from when on they may be sent.
    pub fn reserve(&mut self, now: Time, bytes: ByteCount) -> Time {
        let at = self.due.max(now);
        self.charge(now, bytes);
        at
    }

    /// Takes `bytes` if they may be sent at `now`.
    pub fn try_take(&mut self, now: Time, bytes: ByteCount) -> bool {
        let may = now >= self.due;
        if may {
            self.charge(now, bytes);
        }
        may
    }

    /// The share, 0 to 1, of the time with traffic in which the bucket was the limit: at least 90 %
    /// of its rate was used.
    pub fn limited(&self, now: Time) -> f64 {
        self.usage.limited(now, self.rate)
    }
}

/// Utilisation of the rate, per interval.
#[derive(Clone, Debug, Default)]
struct Usage {
    /// The current interval: its start and its bytes.
    open: Option<(Time, u64)>,
    limited: Duration,
    active: Duration,
}

impl Usage {
    fn add(&mut self, now: Time, bytes: ByteCount, rate: DataRate) {
        if let Some((begun, used)) = self.open
            && now.since(begun) >= INTERVAL
        {
            (self.limited, self.active) = self.closed(now, begun, used, rate);
            self.open = None;
        }
        let (_, used) = self.open.get_or_insert((now, 0));
        *used = used.saturating_add(bytes.get());
    }

    /// The sums with an interval that ends at `now`. A pause at its end does not belong to it.
    fn closed(&self, now: Time, begun: Time, used: u64, rate: DataRate) -> (Duration, Duration) {
        let span = now.since(begun);
        let needed = rate.time_for(ByteCount(used));
        let full = needed.as_secs_f64() >= span.as_secs_f64() * FULL;
        let limited = if full { self.limited + span } else { self.limited };
        (limited, self.active + span.min(needed.max(INTERVAL)))
    }

    fn limited(&self, now: Time, rate: DataRate) -> f64 {
        let (limited, active) = match self.open {
            Some((begun, used)) if now > begun => self.closed(now, begun, used, rate),
            _ => (self.limited, self.active),
        };
        let active = active.as_secs_f64();
        if active > 0.0 { (limited.as_secs_f64() / active).min(1.0) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BURST: Duration = Duration::from_millis(20);

    /// The bytes of pieces passed in any span never exceed the rate over span and burst, plus one
    /// piece.
    fn check(pieces: &[(Time, u64)], rate: DataRate) {
        for (n, (first, _)) in pieces.iter().enumerate() {
            let mut sum = 0;
            for (at, bytes) in &pieces[n..] {
                sum += bytes;
                // Each time is rounded down by up to a nanosecond.
                let rounding = Duration::from_nanos((pieces.len() as u64) + 1);
                let span = at.since(*first) + BURST + rounding;
                let max = rate.bytes_in(span).get() + bytes + 1;
                assert!(sum <= max, "{sum} > {max} bytes from {first:?} to {at:?}");
            }
        }
    }

    proptest! {
        /// Some pieces wait for their time, some are tried and refused, some come after long
        /// pauses.
        #[test]
        fn no_span_has_more_than_the_rate_and_a_burst(
            mbps in 1u64..2_000,
            steps in proptest::collection::vec(
                (0u64..40_000_000, 1u64..300_000, any::<bool>(), 0u8..20), 1..120,
            ),
        ) {
            let rate = DataRate::from_mbps(mbps);
            let mut bucket = TokenBucket::new(rate, BURST);
            let (mut now, mut gone) = (Time::ZERO + Duration::from_secs(1), Vec::new());
            for (gap, bytes, waits, pause) in steps {
                now += Duration::from_nanos(gap);
                if pause == 0 {
                    now += Duration::from_secs(90);
                }
                if waits {
                    gone.push((bucket.reserve(now, ByteCount(bytes)), bytes));
                } else if bucket.try_take(now, ByteCount(bytes)) {
                    gone.push((now, bytes));
                }
            }
            gone.sort();
            check(&gone, rate);
        }
    }

    #[test]
    fn a_pause_gives_no_more_than_a_burst() {
        let rate = DataRate::from_mbps(60);
        let mut bucket = TokenBucket::new(rate, BURST);
        let mut now = Time::ZERO + Duration::from_secs(100);
        bucket.charge(now, ByteCount(1_000));
        now += Duration::from_secs(90);
        let mut taken = 0;
        while bucket.try_take(now, ByteCount(1_500)) {
            taken += 1_500;
        }
        assert!(taken <= rate.bytes_in(BURST).get() + 1_500, "{taken}");
        assert!(taken >= rate.bytes_in(BURST).get(), "{taken}");
    }

    #[test]
    fn all_of_the_rate_can_be_used() {
        let rate = DataRate::from_mbps(100);
        let mut bucket = TokenBucket::new(rate, BURST);
        let mut now = Time::ZERO + Duration::from_secs(1);
        let mut bytes = 0;
        for _ in 0..1_000 {
            now = now.max(bucket.reserve(now, ByteCount(64_000)));
            bytes += 64_000;
        }
        let got = DataRate::from_bytes_over(ByteCount(bytes), now.since(Time::from_nanos(1)));
        assert!(got.as_bps() > 80_000_000, "{got}");
        assert!(bucket.limited(now) > 0.95, "{}", bucket.limited(now));
    }

    #[test]
    fn a_bucket_that_is_never_empty_did_not_limit() {
        let mut bucket = TokenBucket::new(DataRate::from_mbps(100), BURST);
        let mut now = Time::ZERO + Duration::from_secs(1);
        // 40 Mbit/s, and pauses.
        for n in 0..2_000u64 {
            now += Duration::from_millis(if n % 500 == 0 { 3_000 } else { 10 });
            bucket.charge(now, ByteCount(50_000));
        }
        assert!(bucket.limited(now) < 0.01, "{}", bucket.limited(now));
        // Then the bucket is the limit, for two thirds of the time with traffic.
        for _ in 0..8_000 {
            now = now.max(bucket.reserve(now, ByteCount(50_000)));
        }
        let limited = bucket.limited(now);
        assert!((0.5..0.8).contains(&limited), "{limited}");
    }

    #[test]
    fn the_rate_zero_lets_next_to_nothing_through() {
        let mut bucket = TokenBucket::new(DataRate::ZERO, BURST);
        let now = Time::ZERO + Duration::from_secs(1);
        assert!(bucket.try_take(now, ByteCount(1)));
        assert!(!bucket.try_take(now + Duration::from_secs(1), ByteCount(1)));
    }
}

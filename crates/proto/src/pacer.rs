//! Paces sending without support of the kernel.

use packtrain_units::{ByteCount, DataRate, Duration, Time};

/// How far a late sender may catch up: threads at times wake this much too late.
const CATCH_UP: Duration = Duration::from_millis(1);

/// Longest wait for one batch.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Determines when the next batch may be sent.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    next: Time,
    /// The rate that `next` was computed with.
    rate: Option<DataRate>,
}

impl Pacer {
    /// When the next batch may be sent.
    pub(crate) fn next(&self) -> Time {
        self.next
    }

    /// The rate became `rate`. At a higher one the rest of the wait is shorter.
    pub(crate) fn set_rate(&mut self, now: Time, rate: Option<DataRate>) {
        let Some(before) = self.rate.filter(|before| rate.is_none_or(|rate| rate > *before)) else {
            return;
        };
        if now < self.next {
            let owed = before.bytes_in(self.next.since(now));
            self.next = now + rate.map_or(Duration::ZERO, |rate| rate.time_for(owed));
            self.rate = rate;
        }
    }

    /// Records that `bytes` were sent at `now`. `rate` is the pacing rate; `None` means unlimited.
    pub(crate) fn sent(&mut self, now: Time, bytes: ByteCount, rate: Option<DataRate>) {
        self.next = match rate {
            Some(rate) => self.next.max(now - CATCH_UP) + rate.time_for(bytes).min(MAX_WAIT),
            None => now,
        };
        self.rate = rate;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_higher_rate_ends_the_wait_of_the_lower_one() {
        let (mut pacer, now) = (Pacer::default(), Time::ZERO + CATCH_UP);
        let (slow, fast) = (DataRate::from_mbps(8), DataRate::from_mbps(80));
        pacer.sent(now, ByteCount(20_000), Some(slow));
        pacer.sent(now, ByteCount(20_000), Some(slow));
        let waits = pacer.next();
        pacer.set_rate(now, Some(DataRate::from_mbps(4)));
        assert_eq!(pacer.next(), waits, "a lower rate holds for the next batch");
        pacer.set_rate(now, Some(fast));
        assert_eq!(pacer.next().since(now) * 10, waits.since(now));
        pacer.set_rate(now, None);
        assert!(pacer.next() <= now);
    }

    #[test]
    fn keeps_the_rate_through_late_wakeups() {
        let rate = DataRate::from_mbps(1000);
        let (mut pacer, mut now, mut sent) = (Pacer::default(), Time::ZERO + CATCH_UP, 0u64);
        for i in 0..10_000u64 {
            pacer.sent(now, ByteCount(62_500), Some(rate));
            sent += 62_500;
            now = now.max(pacer.next()) + Duration::from_micros(i % 7 * 50);
        }
        let got = DataRate::from_bytes_over(ByteCount(sent), now.since(Time::ZERO));
        assert!(got.as_bps() > 990_000_000 && got.as_bps() < 1_005_000_000, "{got}");
    }
}

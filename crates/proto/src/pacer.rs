//! Paces sending without support of the kernel.

use packtrain_units::{ByteCount, DataRate, Duration, Time};

/// How far a late sender may catch up: threads at times wake this much too late.
const CATCH_UP: Duration = Duration::from_millis(1);

/// Determines when the next batch may be sent.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    next: Time,
}

impl Pacer {
    /// When the next batch may be sent.
    pub(crate) fn next(&self) -> Time {
        self.next
    }

    /// Records that `bytes` were sent at `now`. `rate` is the pacing rate; `None` means unlimited.
    pub(crate) fn sent(&mut self, now: Time, bytes: ByteCount, rate: Option<DataRate>) {
        let Some(rate) = rate else {
            self.next = now;
            return;
        };
        self.next =
            self.next.max(now - CATCH_UP) + rate.time_for(bytes).min(Duration::from_secs(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

//! Pacing of units: nominal times with a resolution of a picosecond.

use packtrain_units::{ByteCount, DataRate, Duration, Time};

/// How far a sender that woke late may catch up.
const CATCH_UP: Duration = Duration::from_millis(1);
/// Maximum wait for one train, at rates near zero.
const MAX_TRAIN_WAIT: Duration = Duration::from_secs(1);

/// The pacer. Times are nominal: a sender that wakes late sends the next train at its planned time,
/// not relative to its wake-up. A sender that had no data, or was not allowed to send, does not
/// accumulate credit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// When the next train may leave, rounded up.
    next: Time,
    /// How much earlier than `next` the nominal time is, in picoseconds.
    early: u64,
    /// Something other than the pace limited the sender.
    held: bool,
}

impl Default for Pace {
    /// The first train is sent at once, without catch-up.
    fn default() -> Self {
        Self { next: Time::ZERO, early: 0, held: true }
    }
}

impl Pace {
    /// When the next train may leave.
    pub(crate) fn next(&self) -> Time {
        self.next
    }

    /// Something other than the pace limits the sender.
    pub(crate) fn hold(&mut self) {
        self.held = true;
    }

    /// Records that `bytes` were sent at `now`. `rate` is the pacing rate; `None` means unlimited.
    pub(crate) fn sent(&mut self, now: Time, bytes: ByteCount, rate: Option<DataRate>) {
        let from = if std::mem::take(&mut self.held) { now } else { now - CATCH_UP };
        if self.next < from {
            (self.next, self.early) = (from, 0);
        }
        let Some(rate) = rate else {
            (self.next, self.early) = (now, 0);
            return;
        };
        let bps = u128::from(rate.as_bps().max(1));
        let ps = u128::from(bytes.get()) * 8 * 1_000_000_000_000 / bps;
        let ps = ps.min(u128::from(MAX_TRAIN_WAIT.as_nanos()) * 1_000) as u64;
        // The nominal time is `next` less `early`.
        let (ns, over) = match ps.checked_sub(self.early) {
            Some(rest) => (rest.div_ceil(1_000), rest.div_ceil(1_000) * 1_000 - rest),
            None => (0, self.early - ps),
        };
        self.next += Duration::from_nanos(ns);
        self.early = over;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_to_a_millionth() {
        // 7.3 Gbit/s: 1613.15 ns a packet.
        let rate = DataRate::from_mbps(7_300);
        let mut pace = Pace::default();
        let (mut now, mut sent) = (Time::ZERO, 0u64);
        while now < Time::ZERO + Duration::from_secs(6) {
            pace.sent(now, ByteCount(1_472), Some(rate));
            sent += 1;
            now = pace.next();
        }
        let meant = rate.bytes_in(Duration::from_secs(6)).get() / 1_472;
        assert!(sent.abs_diff(meant) <= meant / 1_000_000 + 1, "{sent} {meant}");
    }

    #[test]
    fn late_wakeups_do_not_slow_it_and_idle_times_are_not_made_up() {
        let rate = DataRate::from_mbps(1_000);
        let (mut pace, mut now, mut sent) = (Pace::default(), Time::ZERO, 0u64);
        for i in 0..10_000u64 {
            pace.sent(now, ByteCount(14_720), Some(rate));
            sent += 14_720;
            now = now.max(pace.next()) + Duration::from_micros(i % 5 * 20);
        }
        let got = DataRate::from_bytes_over(ByteCount(sent), now.since(Time::ZERO));
        assert!(got.as_bps().abs_diff(1_000_000_000) < 2_000_000, "{got}");
        pace.hold();
        now += Duration::from_secs(1);
        pace.sent(now, ByteCount(14_720), Some(rate));
        assert!(pace.next() > now + Duration::from_micros(100));
    }
}

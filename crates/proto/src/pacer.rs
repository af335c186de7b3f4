//! Paces sending without support of the kernel.

use packtrain_units::{ByteCount, DataRate, Duration, Time};

/// How far a sender may catch up after a wait for the window, for credit or for data.
const CATCH_UP: Duration = Duration::from_millis(1);
/// How far it may catch up when it wakes too late from a wait for the pacer: two fifths of the round
/// trip, within these limits. On a busy machine a thread often waits this long for a processor, and
/// the delay that is not made up lowers the rate. A longer round trip usually has a longer queue,
/// which takes a larger burst.
const MAX_LATENESS: [Duration; 2] = [Duration::from_millis(8), Duration::from_millis(24)];

/// Longest wait for one batch.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Determines when the next batch may be sent.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    next: Time,
    /// The rate that `next` was computed with.
    rate: Option<DataRate>,
    /// The sender last waited for `next`, and for nothing else.
    waited: bool,
    srtt: Duration,
}

impl Pacer {
    /// The round trip of the path.
    pub(crate) fn on_path(&mut self, srtt: Duration) {
        self.srtt = srtt;
    }

    /// When the next batch may be sent.
    pub(crate) fn next(&self) -> Time {
        self.next
    }

    /// The sender has to wait: for `next` if `paced`, otherwise for something else, after which the
    /// time until then is not made up.
    pub(crate) fn wait(&mut self, paced: bool) {
        self.waited = paced;
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
    /// `queue` is how much of the path's queue a burst may take, in time at its rate, if a queue is
    /// known.
    pub(crate) fn sent(
        &mut self,
        now: Time,
        bytes: ByteCount,
        rate: Option<DataRate>,
        queue: Option<Duration>,
    ) {
        let [least, most] = MAX_LATENESS;
        let most = if self.waited { (self.srtt * 2 / 5).clamp(least, most) } else { CATCH_UP };
        let catch_up = queue.map_or(most, |queue| most.min(queue));
        self.next = match rate {
            Some(rate) => self.next.max(now - catch_up) + rate.time_for(bytes).min(MAX_WAIT),
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
        pacer.sent(now, ByteCount(20_000), Some(slow), None);
        pacer.sent(now, ByteCount(20_000), Some(slow), None);
        let waits = pacer.next();
        pacer.set_rate(now, Some(DataRate::from_mbps(4)));
        assert_eq!(pacer.next(), waits, "a lower rate holds for the next batch");
        pacer.set_rate(now, Some(fast));
        assert_eq!(pacer.next().since(now) * 10, waits.since(now));
        pacer.set_rate(now, None);
        assert!(pacer.next() <= now);
    }

    /// Sends batches of 3 kB at 80 Mbit/s from a thread that wakes up to `late` too late; returns
    /// the rate and the longest burst in bytes.
    fn drive(late: Duration, queue: Option<Duration>) -> (DataRate, u64) {
        let rate = DataRate::from_mbps(80);
        let (mut pacer, mut now) = (Pacer::default(), Time::ZERO + MAX_LATENESS[1]);
        let (start, mut sent, mut burst, mut longest) = (now, 0, 0, 0);
        pacer.next = now;
        for i in 0..100_000u64 {
            if pacer.next() > now {
                pacer.wait(true);
                now = pacer.next() + late.mul_f64((i % 7) as f64 / 6.0);
                burst = 0;
            }
            pacer.sent(now, ByteCount(3_000), Some(rate), queue);
            (sent, burst) = (sent + 3_000, burst + 3_000);
            longest = burst.max(longest);
        }
        (DataRate::from_bytes_over(ByteCount(sent), now.since(start)), longest)
    }

    #[test]
    fn lateness_is_made_up() {
        for us in [0, 350, 3_000, 7_000] {
            let (rate, longest) = drive(Duration::from_micros(us), None);
            let mbps = rate.as_bps() as f64 / 1e6;
            assert!(mbps > 79.5 && mbps < 80.5, "{us} us late: {mbps}");
            assert!(longest <= us * 10 + 6_000, "{us} us late: {longest}");
        }
    }

    #[test]
    fn no_more_than_the_limits_is_made_up() {
        let ms = Duration::from_millis;
        let (_, longest) = drive(ms(40), None);
        assert_eq!(longest, 8 * 10_000 / 3_000 * 3_000 + 3_000, "of 8 ms on a short path");
        let (_, longest) = drive(ms(40), Some(ms(2)));
        assert!(longest <= 2 * 10_000 + 3_000, "of the queue: {longest}");
    }

    #[test]
    fn a_wait_for_the_window_is_not_made_up() {
        let rate = DataRate::from_mbps(80);
        let (mut pacer, now) = (Pacer::default(), Time::ZERO + MAX_LATENESS[1]);
        pacer.sent(now, ByteCount(3_000), Some(rate), None);
        pacer.wait(false);
        let later = now + Duration::from_millis(500);
        pacer.sent(later, ByteCount(10_000), Some(rate), None);
        assert_eq!(pacer.next(), later, "one millisecond is");
    }
}

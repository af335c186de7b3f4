//! Caps the pace at the rate that the receiving host drains, when that host drops datagrams. It
//! applies to all controllers.
//!
//! Drops in a host are not congestion: no other flow gains from a reduction, and a controller that
//! reads `Feedback::host_drops` does not reduce its rate. Sending faster than the host drains only
//! wastes work at both ends. The pace is therefore held at the rate that arrives, and released when
//! the drops end. A host that stalls now and then, but is not slow, loses the same share at any
//! pace. A cap that does not reduce the losses is therefore released too; otherwise it would follow
//! the arriving rate down to nothing.
//!
//! The cap only lowers the pace. A false drop counter cannot raise it above what the controller,
//! the owner's ceiling and the breaker allow.

use packtrain_units::{ByteCount, DataRate, Duration, Time};

/// Round trips for which the pace is held after drops.
const HOLD_ROUNDS: u32 = 4;
/// Growth per round trip afterwards, until the cap no longer limits. While it holds, the cap is
/// this factor above the drain rate; otherwise a growing drain rate would remain invisible.
const RISE: f64 = 1.05;
/// The drain rate is the highest rate that arrived in one of this many rounds: a short stall does
/// not make a host slow.
const RECENT_ROUNDS: usize = 8;
/// Rounds with drops under a cap after which it must have reduced the losses.
const TRIAL_ROUNDS: u32 = 2 * RECENT_ROUNDS as u32;
/// The cap has helped if the lost share fell to this fraction of what it was, or to about the loss
/// that `RISE` causes.
const MAX_REMAINING_LOSS: f64 = 0.5;
const HARMLESS: f64 = 0.08;
/// Rounds without a cap after one that has not helped.
const REST_ROUNDS: u32 = 32;
/// Minimum length of a round: reports and threads run in steps.
const MIN_ROUND: Duration = Duration::from_millis(4);
/// Minimum of the cap; the breaker has the same floor.
const FLOOR: DataRate = DataRate::from_bps(100_000);

/// The cap, if there is one, and the measurements that decide on it.
#[derive(Debug)]
pub(crate) struct ReceiverRateCap {
    cap: Option<Cap>,
    /// Rounds left in which no cap is set.
    rest: u32,
    started: Time,
    round: Arrived,
    /// The drops of this round belong to the previous one.
    early: bool,
    /// Delivery rates of the last rounds, newest first.
    recent: [DataRate; RECENT_ROUNDS],
}

#[derive(Clone, Copy, Debug)]
struct Cap {
    rate: DataRate,
    hold: u32,
    /// Rounds with drops since the cap was set.
    rounds: u32,
    /// Highest loss share of a round in the first half of the trial, and mean of the second half.
    before: f64,
    after: f64,
}

/// Counters of one report.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrived {
    /// Wire bytes that arrived.
    pub(crate) bytes: ByteCount,
    /// Packets that arrived, and packets that were lost.
    pub(crate) packets: u64,
    pub(crate) lost: u64,
    /// Datagrams, or coalesced buffers, that the host counted as dropped.
    pub(crate) dropped: u64,
}

impl ReceiverRateCap {
    pub(crate) fn new(now: Time) -> Self {
        let recent = [DataRate::ZERO; RECENT_ROUNDS];
        Self { cap: None, rest: 0, started: now, round: Arrived::default(), early: false, recent }
    }

    /// The maximum pace.
    pub(crate) fn rate(&self) -> Option<DataRate> {
        self.cap.map(|cap| cap.rate)
    }

    /// Takes a report. `wanted` is the controller's own pace.
    pub(crate) fn on_report(
        &mut self,
        now: Time,
        srtt: Duration,
        arrived: Arrived,
        wanted: Option<DataRate>,
    ) {
        self.round.bytes += arrived.bytes;
        self.round.packets += arrived.packets;
        self.round.lost += arrived.lost;
        self.round.dropped = self.round.dropped.saturating_add(arrived.dropped);
        let span = now.since(self.started);
        if span < srtt.max(MIN_ROUND) {
            return;
        }
        self.started = now;
        let round = std::mem::take(&mut self.round);
        if round.lost == 0 && round.dropped > 0 && !std::mem::replace(&mut self.early, true) {
            // The losses may be reported a round later than the drops. If they are not, the drops
            // are ignored.
            self.round.dropped = round.dropped;
        } else {
            self.early = false;
        }
        self.recent.rotate_right(1);
        self.recent[0] = DataRate::from_bytes_over(round.bytes, span);
        if self.rest > 0 {
            self.rest -= 1;
        } else if round.dropped > 0 && round.lost > 0 {
            self.hold(round.lost as f64 / (round.packets + round.lost).max(1) as f64);
        } else {
            self.ease(wanted);
        }
    }

    fn hold(&mut self, lost: f64) {
        let drain = self.recent.into_iter().max().unwrap_or(FLOOR);
        let rate = drain.mul_f64(RISE).max(FLOOR);
        let new = Cap { rate, hold: 0, rounds: 0, before: 0.0, after: 0.0 };
        let cap = self.cap.get_or_insert(new);
        (cap.rate, cap.hold) = (rate, HOLD_ROUNDS);
        cap.rounds += 1;
        if cap.rounds <= TRIAL_ROUNDS / 2 {
            cap.before = cap.before.max(lost);
        } else {
            cap.after += lost / f64::from(TRIAL_ROUNDS / 2);
        }
        if cap.rounds == TRIAL_ROUNDS {
            let helped = cap.after <= (MAX_REMAINING_LOSS * cap.before).max(HARMLESS);
            (cap.rounds, cap.before, cap.after) = (0, 0.0, 0.0);
            if !helped {
                (self.cap, self.rest) = (None, REST_ROUNDS);
            }
        }
    }

    fn ease(&mut self, wanted: Option<DataRate>) {
        let Some(cap) = &mut self.cap else { return };
        if cap.hold > 0 {
            cap.hold -= 1;
            return;
        }
        cap.rate = cap.rate.mul_f64(RISE);
        // With a controller that does not pace, the cap is released when it is twice the arriving
        // rate.
        let limits = match wanted {
            Some(wanted) => cap.rate < wanted,
            None => cap.rate < self.recent[0].mul_f64(2.0),
        };
        if !limits {
            self.cap = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(50);
    const WANTED: DataRate = DataRate::from_mbps(1_000);

    /// Simulates a receiver of one flow, round by round.
    struct Receiver {
        cap: ReceiverRateCap,
        now: Time,
    }

    impl Receiver {
        fn new() -> Self {
            Self { cap: ReceiverRateCap::new(Time::ZERO), now: Time::ZERO }
        }

        /// Simulates one round with this rate and loss share; returns the cap after it.
        fn round(&mut self, mbps: f64, lost: f64, dropped: u64) -> Option<DataRate> {
            self.now += RTT;
            let bytes = DataRate::from_bps((mbps * 1e6) as u64).bytes_in(RTT);
            let packets = ((1.0 - lost) * 10_000.0) as u64;
            let arrived = Arrived { bytes, packets, lost: 10_000 - packets, dropped };
            self.cap.on_report(self.now, RTT, arrived, Some(WANTED));
            self.cap.rate()
        }

        /// The pace in force, in Mbit/s.
        fn pace(&self) -> f64 {
            self.cap.rate().map_or(WANTED, |cap| cap.min(WANTED)).as_bps() as f64 / 1e6
        }
    }

    #[test]
    fn a_slow_host_caps_at_its_drain_rate_and_the_end_of_drops_lets_go() {
        let mut host = Receiver::new();
        for _ in 0..200 {
            let pace = host.pace();
            host.round(pace.min(400.0), (1.0 - 400.0 / pace).max(0.0), 9);
            assert!(host.pace() <= 421.0, "{}", host.pace());
        }
        let held = host.cap.rate();
        for _ in 0..HOLD_ROUNDS {
            assert_eq!(host.round(400.0, 0.0, 0), held);
        }
        let rounds = (1..100).find(|_| host.round(400.0, 0.0, 0).is_none());
        // 420 to 1000 Mbit/s at 5 % a round.
        assert_eq!(rounds, Some(18));
    }

    #[test]
    fn a_host_that_sleeps_is_not_followed_down() {
        for lost in [0.02, 0.1, 0.19] {
            let (mut host, mut sum) = (Receiver::new(), 0.0);
            for _ in 0..500 {
                let through = host.pace() * (1.0 - lost);
                host.round(through, lost, 9);
                sum += through / 500.0;
            }
            let may = 1_000.0 * (1.0 - lost);
            assert!(sum > 0.85 * may, "{sum} of {may}");
        }
    }

    #[test]
    fn the_counter_only_lowers_and_the_floor_holds() {
        let mut host = Receiver::new();
        for _ in 0..RECENT_ROUNDS {
            host.round(0.0, 1.0, u64::MAX);
        }
        assert_eq!(host.cap.rate(), Some(FLOOR));
        let mut host = Receiver::new();
        for _ in 0..100 {
            assert_eq!(host.round(100.0, 0.0, 9), None, "drops without losses are none");
        }
    }
}

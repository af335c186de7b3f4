//! The receiving host's own drops cap the pace at what that host drains, whatever the controller.
//!
//! A host that drops is no congested path: nobody else gains by a cut, and the controller, if it
//! looks at `Feedback::host_drops`, makes none. But what leaves faster than the host drains it
//! only costs both ends. So the pace is held at the rate that came through, and let go when the
//! drops have ceased. A host that sleeps now and then, rather than is slow, loses the same share
//! at any pace: a cap that does not make the losses fewer is let go, too, or it would follow
//! what comes through down to nothing.
//!
//! The cap only ever lowers the pace: a false counter cannot buy more than the controller, the
//! owner's ceiling and the breaker allow.

use packtrain_units::{ByteCount, DataRate, Duration, Time};

/// After drops the pace is held for this many round trips.
const HOLD_ROUNDS: u32 = 4;
/// Then it rises by this a round trip, until it is no longer what limits. While it holds it is
/// this much above the drain rate, or that could never be seen to grow.
const RISE: f64 = 1.05;
/// The drain rate is the most that came through in one of so many round trips: one short sleep
/// is no slow host.
const RECENT: usize = 8;
/// After so many rounds with drops under a cap it must have helped.
const TRIAL: u32 = 2 * RECENT as u32;
/// It has if the share lost fell to this much of what it was, or to about what `RISE` costs.
const HELPED: f64 = 0.5;
const HARMLESS: f64 = 0.08;
/// One that has not helped is not tried again for so many rounds.
const REST: u32 = 32;
/// A round is at least this long: reports and threads come in steps.
const SHORTEST: Duration = Duration::from_millis(4);
/// The cap is never below this, the breaker's own floor.
const FLOOR: DataRate = DataRate::from_bps(100_000);

/// The cap, if there is one, and what it is judged by.
#[derive(Debug)]
pub(crate) struct ReceiverRateCap {
    cap: Option<Cap>,
    /// Rounds for which none is tried.
    rest: u32,
    started: Time,
    round: Arrived,
    /// The drops of the round are the last one's.
    early: bool,
    /// Delivered in the last rounds, newest first.
    recent: [DataRate; RECENT],
}

#[derive(Clone, Copy, Debug)]
struct Cap {
    rate: DataRate,
    hold: u32,
    /// Rounds with drops since it was set.
    rounds: u32,
    /// The most lost of a round in the first half of the trial, and the mean of the second half.
    before: f64,
    after: f64,
}

/// What feedback said.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrived {
    /// Wire bytes that came through.
    pub(crate) bytes: ByteCount,
    /// Packets that did, and that did not.
    pub(crate) packets: u64,
    pub(crate) lost: u64,
    /// Datagrams, or joined buffers, that the host counted as dropped.
    pub(crate) dropped: u64,
}

impl ReceiverRateCap {
    pub(crate) fn new(now: Time) -> Self {
        let recent = [DataRate::ZERO; RECENT];
        Self { cap: None, rest: 0, started: now, round: Arrived::default(), early: false, recent }
    }

    /// The most that may leave.
    pub(crate) fn rate(&self) -> Option<DataRate> {
        self.cap.map(|cap| cap.rate)
    }

    /// Feedback came. `wanted` is the controller's own pace.
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
        if span < srtt.max(SHORTEST) {
            return;
        }
        self.started = now;
        let round = std::mem::take(&mut self.round);
        if round.lost == 0 && round.dropped > 0 && !std::mem::replace(&mut self.early, true) {
            // The losses may be told a round later than the drops. If not, nothing is amiss.
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
        if cap.rounds <= TRIAL / 2 {
            cap.before = cap.before.max(lost);
        } else {
            cap.after += lost / f64::from(TRIAL / 2);
        }
        if cap.rounds == TRIAL {
            let helped = cap.after <= (HELPED * cap.before).max(HARMLESS);
            (cap.rounds, cap.before, cap.after) = (0, 0.0, 0.0);
            if !helped {
                (self.cap, self.rest) = (None, REST);
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
        // A controller without a pace of its own is let go when the cap is twice what arrives.
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

    /// A receiver of one flow, round by round.
    struct Receiver {
        cap: ReceiverRateCap,
        now: Time,
    }

    impl Receiver {
        fn new() -> Self {
            Self { cap: ReceiverRateCap::new(Time::ZERO), now: Time::ZERO }
        }

        /// One round of which so much comes through and such a share is lost; the cap after it.
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
        for _ in 0..RECENT {
            host.round(0.0, 1.0, u64::MAX);
        }
        assert_eq!(host.cap.rate(), Some(FLOOR));
        let mut host = Receiver::new();
        for _ in 0..100 {
            assert_eq!(host.round(100.0, 0.0, 9), None, "drops without losses are none");
        }
    }
}

//! The measured capacity of the path, for flows without a requested rate.
//!
//! A rate that was measured once has a small error, which grows when other flows start or end. A
//! rate below the capacity grows after clean windows, as in HighSpeed TCP. A rate above it fills
//! the queue before packets are lost: when a queue stands for three measurements of the delivery
//! rate, the rate falls below that delivery rate. If two such corrections do not shorten the queue,
//! another flow causes it; then only losses limit the rate.

use packtrain_units::{Duration, Time};

use super::launch::LANDING;
use crate::highspeed::increase;

/// Maximum growth in one window.
const GROWTH: f64 = 1.0 / 8.0;
/// Windows without growth after growth that caused a queue or a loss.
const PAUSE: u32 = 4;
/// A queue stands when the round trip exceeds its minimum by an eighth and this.
const QUEUE: Duration = Duration::from_millis(3);
/// Spans of delivery that are averaged; each is about a round trip, cut by the times of reports.
const SPANS: u32 = 3;
/// Time for the queue to drain after a correction, in multiples of its length: at [`LANDING`] of
/// the rate it drains in twenty times its length, and twice that is allowed. It is at least
/// `MIN_CALM_ROUND_TRIPS`.
const DRAIN: u64 = 2 * 20;
const MIN_CALM_ROUND_TRIPS: u64 = 4;
/// One measurement of the delivery rate lowers the rate at most to this fraction.
pub(super) const MIN_STEP: f64 = 0.85;
/// Corrections after which a remaining queue is attributed to other flows.
const CORRECTIONS: u32 = 2;

/// The estimated capacity of the path, in bytes per second.
#[derive(Debug)]
pub(super) struct CapacityEstimate {
    rate: f64,
    /// The value before it grew in this window, while that growth is on trial.
    before: Option<f64>,
    /// When it last grew.
    grown: Time,
    /// Windows left without growth.
    pause: u32,
    /// Delivery while a queue stands: number of spans, and the sum of their rates.
    standing: Option<(u32, f64)>,
    /// No further correction before this time.
    calm: Time,
    /// Corrections since there was last no queue.
    corrections: u32,
}

impl CapacityEstimate {
    /// An estimate made now; the smoothed round trip still contains the queue that showed it.
    pub(super) fn new(now: Time, rtt: Duration, rate: f64) -> Self {
        let (grown, calm) = (now, now + rtt * MIN_CALM_ROUND_TRIPS);
        Self { rate, before: None, grown, pause: 1, standing: None, calm, corrections: 0 }
    }

    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    /// Whether a queue stands, of this flow or of others.
    pub(super) fn queued(rtt: Duration, min_rtt: Duration) -> bool {
        rtt > min_rtt + min_rtt / 8 + QUEUE
    }

    /// Takes the round trip and, at the end of a span, the delivery rate. Returns true if the rate
    /// was too high.
    pub(super) fn on_feedback(
        &mut self,
        now: Time,
        (rtt, min_rtt): (Duration, Duration),
        delivered: Option<f64>,
    ) -> bool {
        if !Self::queued(rtt, min_rtt) {
            (self.standing, self.corrections) = (None, 0);
            return false;
        }
        if now < self.calm || self.corrections >= CORRECTIONS {
            return false;
        }
        let Some((spans, sum)) = &mut self.standing else {
            self.standing = Some((0, 0.0));
            return false;
        };
        let Some(delivered) = delivered else { return false };
        (*spans, *sum) = (*spans + 1, *sum + delivered);
        // The first span began before the queue stood.
        if self.before.is_none() && *spans < SPANS + 1 {
            return false;
        }
        let rate = *sum / f64::from(*spans);
        self.standing = None;
        self.calm = now + ((rtt - min_rtt) * DRAIN).max(rtt * MIN_CALM_ROUND_TRIPS);
        self.corrections += 1;
        // The value before the growth had been reached before, and a single measurement may be
        // wrong.
        let grown = self.revert_growth();
        let min_rtt = if grown { self.rate * MIN_STEP } else { 0.0 };
        self.lower((rate * LANDING).max(min_rtt)) || grown
    }

    /// Grows while growth has caused no queue: by `increase` of RFC 3649 per round trip, in packets
    /// of `mtu` bytes.
    pub(super) fn climb(&mut self, now: Time, rtt: f64, mtu: f64, ceiling: f64) {
        let rounds = (now.since(self.grown).as_secs_f64() / rtt).min(1.0);
        self.grown = now;
        let Some(before) = self.before.filter(|_| self.standing.is_none()) else { return };
        let step = increase(self.rate * rtt / mtu) * mtu / rtt * rounds;
        self.rate = (self.rate + step).min(before * (1.0 + GROWTH)).min(ceiling).max(before);
    }

    /// Ends a window without losses in the network that used the full rate.
    pub(super) fn grow(&mut self) {
        self.before = (self.pause == 0).then_some(self.rate);
        self.pause = self.pause.saturating_sub(1);
    }

    /// Ends a window in which the rate was not the limit.
    pub(super) fn settle(&mut self) {
        self.before = None;
    }

    /// Reverts the growth on trial; returns true if there was one.
    pub(super) fn revert_growth(&mut self) -> bool {
        let Some(before) = self.before.take() else { return false };
        (self.rate, self.pause) = (before, PAUSE);
        true
    }

    /// Lowers the estimate to `rate`; returns true if that changes it.
    pub(super) fn lower(&mut self, rate: f64) -> bool {
        // With a queue of another flow the estimate is uncertain, and the other flow's share
        // changes.
        self.pause = if self.corrections >= CORRECTIONS { 1 } else { PAUSE };
        let lower = self.rate.min(rate);
        std::mem::replace(&mut self.rate, lower) > lower
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN_RTT: Duration = Duration::from_millis(40);

    /// Takes `count` spans of a round trip with this queue and this delivery rate.
    fn spans(
        capacity: &mut CapacityEstimate,
        now: &mut Time,
        count: u32,
        queue: u64,
        delivered: f64,
    ) -> u32 {
        (0..count)
            .map(|_| {
                *now += MIN_RTT;
                let rtts = (MIN_RTT + Duration::from_millis(queue), MIN_RTT);
                u32::from(capacity.on_feedback(*now, rtts, Some(delivered)))
            })
            .sum()
    }

    #[test]
    fn a_standing_queue_shows_what_the_path_has_and_is_given_time_to_drain() {
        let (mut capacity, mut now) =
            (CapacityEstimate::new(Time::ZERO, Duration::ZERO, 110.0), Time::ZERO);
        assert_eq!(spans(&mut capacity, &mut now, 50, 5, 100.0), 0, "no queue to speak of");
        assert_eq!(spans(&mut capacity, &mut now, SPANS + 2, 20, 100.0), 1);
        assert_eq!(capacity.rate(), 95.0);
        // 20 ms at a twentieth of the rate are 400 ms, twice that 800.
        assert_eq!(spans(&mut capacity, &mut now, 19, 20, 95.0), 0);
        assert_eq!(capacity.rate(), 95.0);
        assert_eq!(spans(&mut capacity, &mut now, 20, 0, 95.0), 0);
        assert_eq!(spans(&mut capacity, &mut now, 20, 20, 120.0), 0, "never up");
        assert_eq!(capacity.rate(), 95.0);
    }

    #[test]
    fn a_queue_that_outlives_two_corrections_is_somebody_elses() {
        let (mut capacity, mut now) =
            (CapacityEstimate::new(Time::ZERO, Duration::ZERO, 100.0), Time::ZERO);
        assert_eq!(spans(&mut capacity, &mut now, 20, 30, 80.0), 1);
        assert_eq!(capacity.rate(), 76.0);
        assert_eq!(spans(&mut capacity, &mut now, 30, 30, 60.0), 1);
        assert_eq!(capacity.rate(), 57.0);
        assert_eq!(spans(&mut capacity, &mut now, 400, 30, 40.0), 0);
        assert_eq!(capacity.rate(), 57.0);
        // The queue disappears and returns.
        spans(&mut capacity, &mut now, 1, 0, 50.0);
        assert_eq!(spans(&mut capacity, &mut now, 6, 30, 50.0), 1);
    }

    #[test]
    fn it_grows_as_highspeed_does_and_takes_back_what_made_a_queue() {
        let rate = 100e6;
        let (mut capacity, mut now) =
            (CapacityEstimate::new(Time::ZERO, Duration::ZERO, rate), Time::ZERO);
        let round = |capacity: &mut CapacityEstimate, now: &mut Time| {
            *now += MIN_RTT;
            capacity.climb(*now, MIN_RTT.as_secs_f64(), 1_500.0, 1e9);
        };
        capacity.grow();
        round(&mut capacity, &mut now);
        assert_eq!(capacity.rate(), rate, "not at once");
        capacity.grow();
        round(&mut capacity, &mut now);
        // 2,667 packets in flight; a(w) is 14 there (RFC 3649 appendix B: at 2,699).
        let more = (capacity.rate() - rate) * MIN_RTT.as_secs_f64() / 1_500.0;
        assert!((13.5..14.5).contains(&more), "{more}");
        for _ in 0..1_000 {
            round(&mut capacity, &mut now);
        }
        assert_eq!(capacity.rate(), rate * (1.0 + GROWTH), "in one window");
        assert_eq!(spans(&mut capacity, &mut now, 2, 20, rate * 1.1), 1);
        assert_eq!(capacity.rate(), rate);
        for _ in 0..PAUSE {
            capacity.grow();
            round(&mut capacity, &mut now);
            assert_eq!(capacity.rate(), rate);
        }
        spans(&mut capacity, &mut now, 1, 0, 110.0);
        capacity.grow();
        round(&mut capacity, &mut now);
        assert!(capacity.rate() > rate);
    }
}

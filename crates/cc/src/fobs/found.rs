//! What the path was found to have, where nobody asked for a rate.
//!
//! A rate that was measured once is a little wrong, and wrong by more when somebody comes or
//! leaves. What is below what the path has grows after clean windows, as HighSpeed TCP does. What is
//! above it fills the queue before it loses anything: a queue that stands for three measurements of
//! the delivery has shown what the path has, and the rate goes below that. A queue that two such
//! steps do not move is somebody else's: then losses alone say what may be sent.

use packtrain_units::{Duration, Time};

use super::launch::LANDING;
use crate::highspeed::increase;

/// In one window it grows by no more than this.
const GROWTH: f64 = 1.0 / 8.0;
/// After growth that made a queue or a loss so many windows pass without growth.
const PAUSE: u32 = 4;
/// A queue stands when the round trip is longer than its least by an eighth and this.
const QUEUE: Duration = Duration::from_millis(3);
/// Spans of delivery that are averaged: each is a round trip or so, cut by when reports come.
const SPANS: u32 = 3;
/// After a correction the queue is given twice the time it takes to drain, which at
/// [`LANDING`] of the rate is twenty times its length, and at least so many round trips.
const DRAIN: u64 = 2 * 20;
const MIN_CALM_ROUND_TRIPS: u64 = 4;
/// One measurement of the delivery lowers the rate to this share at most.
pub(super) const LEAST_STEP: f64 = 0.85;
/// So many corrections in a row that a queue outlives, and it is not ours.
const CORRECTIONS: u32 = 2;

/// The most that the path is believed to have, in bytes a second.
#[derive(Debug)]
pub(super) struct Found {
    most: f64,
    /// What it was before it grew in this window, while that is on trial.
    before: Option<f64>,
    /// When it grew last.
    grown: Time,
    /// Windows without growth to come.
    pause: u32,
    /// Delivered while a queue stands: spans, and the sum of their rates.
    standing: Option<(u32, f64)>,
    /// Until then the last correction is given time.
    calm: Time,
    /// Corrections since there was no queue.
    corrections: u32,
}

impl Found {
    /// It was found just now; the smoothed round trip still has the queue in it that told.
    pub(super) fn new(now: Time, rtt: Duration, most: f64) -> Self {
        let (grown, calm) = (now, now + rtt * MIN_CALM_ROUND_TRIPS);
        Self { most, before: None, grown, pause: 1, standing: None, calm, corrections: 0 }
    }

    pub(super) fn most(&self) -> f64 {
        self.most
    }

    /// Whether a queue stands, ours or not.
    pub(super) fn queued(rtt: Duration, least: Duration) -> bool {
        rtt > least + least / 8 + QUEUE
    }

    /// Takes what is told of the round trip and, where a span ended, of the rate of delivery.
    /// True if the rate was found to be too high.
    pub(super) fn on_feedback(
        &mut self,
        now: Time,
        (rtt, least): (Duration, Duration),
        delivered: Option<f64>,
    ) -> bool {
        if !Self::queued(rtt, least) {
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
        self.calm = now + ((rtt - least) * DRAIN).max(rtt * MIN_CALM_ROUND_TRIPS);
        self.corrections += 1;
        // What it grew from was grown to before, and one measurement may be a bad one.
        let grown = self.ungrow();
        let least = if grown { self.most * LEAST_STEP } else { 0.0 };
        self.lower((rate * LANDING).max(least)) || grown
    }

    /// Growth has brought no queue so far: `increase` of RFC 3649 a round trip, of packets of
    /// so many bytes.
    pub(super) fn climb(&mut self, now: Time, rtt: f64, mtu: f64, ceiling: f64) {
        let rounds = (now.since(self.grown).as_secs_f64() / rtt).min(1.0);
        self.grown = now;
        let Some(before) = self.before.filter(|_| self.standing.is_none()) else { return };
        let step = increase(self.most * rtt / mtu) * mtu / rtt * rounds;
        self.most = (self.most + step).min(before * (1.0 + GROWTH)).min(ceiling).max(before);
    }

    /// A window without losses of the network's was used to the full.
    pub(super) fn grow(&mut self) {
        self.before = (self.pause == 0).then_some(self.most);
        self.pause = self.pause.saturating_sub(1);
    }

    /// A window passed in which it was not what limited.
    pub(super) fn settle(&mut self) {
        self.before = None;
    }

    /// The growth on trial is taken back; true if there was one.
    pub(super) fn ungrow(&mut self) -> bool {
        let Some(before) = self.before.take() else { return false };
        (self.most, self.pause) = (before, PAUSE);
        true
    }

    /// The path was seen to have no more than this; true if that is news.
    pub(super) fn lower(&mut self, most: f64) -> bool {
        // Beside somebody else's queue there is no telling, and his share changes.
        self.pause = if self.corrections >= CORRECTIONS { 1 } else { PAUSE };
        let lower = self.most.min(most);
        std::mem::replace(&mut self.most, lower) > lower
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Duration = Duration::from_millis(40);

    /// So many spans of a round trip, with such a queue and such a delivery.
    fn spans(found: &mut Found, now: &mut Time, count: u32, queue: u64, delivered: f64) -> u32 {
        (0..count)
            .map(|_| {
                *now += LEAST;
                let rtts = (LEAST + Duration::from_millis(queue), LEAST);
                u32::from(found.on_feedback(*now, rtts, Some(delivered)))
            })
            .sum()
    }

    #[test]
    fn a_standing_queue_shows_what_the_path_has_and_is_given_time_to_drain() {
        let (mut found, mut now) = (Found::new(Time::ZERO, Duration::ZERO, 110.0), Time::ZERO);
        assert_eq!(spans(&mut found, &mut now, 50, 5, 100.0), 0, "no queue to speak of");
        assert_eq!(spans(&mut found, &mut now, SPANS + 2, 20, 100.0), 1);
        assert_eq!(found.most(), 95.0);
        // 20 ms at a twentieth of the rate are 400 ms, twice that 800.
        assert_eq!(spans(&mut found, &mut now, 19, 20, 95.0), 0);
        assert_eq!(found.most(), 95.0);
        assert_eq!(spans(&mut found, &mut now, 20, 0, 95.0), 0);
        assert_eq!(spans(&mut found, &mut now, 20, 20, 120.0), 0, "never up");
        assert_eq!(found.most(), 95.0);
    }

    #[test]
    fn a_queue_that_outlives_two_corrections_is_somebody_elses() {
        let (mut found, mut now) = (Found::new(Time::ZERO, Duration::ZERO, 100.0), Time::ZERO);
        assert_eq!(spans(&mut found, &mut now, 20, 30, 80.0), 1);
        assert_eq!(found.most(), 76.0);
        assert_eq!(spans(&mut found, &mut now, 30, 30, 60.0), 1);
        assert_eq!(found.most(), 57.0);
        assert_eq!(spans(&mut found, &mut now, 400, 30, 40.0), 0);
        assert_eq!(found.most(), 57.0);
        // It went, and comes back.
        spans(&mut found, &mut now, 1, 0, 50.0);
        assert_eq!(spans(&mut found, &mut now, 6, 30, 50.0), 1);
    }

    #[test]
    fn it_grows_as_highspeed_does_and_takes_back_what_made_a_queue() {
        let rate = 100e6;
        let (mut found, mut now) = (Found::new(Time::ZERO, Duration::ZERO, rate), Time::ZERO);
        let round = |found: &mut Found, now: &mut Time| {
            *now += LEAST;
            found.climb(*now, LEAST.as_secs_f64(), 1_500.0, 1e9);
        };
        found.grow();
        round(&mut found, &mut now);
        assert_eq!(found.most(), rate, "not at once");
        found.grow();
        round(&mut found, &mut now);
        // 2,667 packets in flight; a(w) is 14 there (RFC 3649 appendix B: at 2,699).
        let more = (found.most() - rate) * LEAST.as_secs_f64() / 1_500.0;
        assert!((13.5..14.5).contains(&more), "{more}");
        for _ in 0..1_000 {
            round(&mut found, &mut now);
        }
        assert_eq!(found.most(), rate * (1.0 + GROWTH), "in one window");
        assert_eq!(spans(&mut found, &mut now, 2, 20, rate * 1.1), 1);
        assert_eq!(found.most(), rate);
        for _ in 0..PAUSE {
            found.grow();
            round(&mut found, &mut now);
            assert_eq!(found.most(), rate);
        }
        spans(&mut found, &mut now, 1, 0, 110.0);
        found.grow();
        round(&mut found, &mut now);
        assert!(found.most() > rate);
    }
}

//! What the path was found to have, where nobody asked for a rate.
//!
//! A rate that was measured once is a little wrong, and wrong by more when somebody comes or
//! leaves. What is below what the path has grows after clean windows. What is above it fills the
//! queue before it loses anything: a queue that stands for three measurements of the delivery
//! has shown what the path has, and the rate goes below that.

use packtrain_units::{Duration, Time};

use super::launch::LANDING;

/// It grows by this after a window without losses and without a queue, and by twice as much
/// when it grew in the window before, up to that.
const GROWTH: (f64, f64) = (1.0 / 16.0, 1.0 / 8.0);
/// After growth that made a queue so many windows pass without growth.
const PAUSE: u32 = 8;
/// A queue stands when the round trip is longer than its least by an eighth and this.
const QUEUE: Duration = Duration::from_millis(3);
/// Spans of delivery that are averaged: each is a round trip or so, cut by when reports come.
const SPANS: u32 = 3;
/// After a correction the queue is given twice the time it takes to drain, which at
/// [`LANDING`] of the rate is twenty times its length, and at least so many round trips.
const DRAIN: u64 = 2 * 20;
const PATIENCE: u64 = 4;

/// The most that the path is believed to have, in bytes a second.
#[derive(Debug)]
pub(super) struct Found {
    most: f64,
    /// What growth will add next, as a share.
    growth: f64,
    /// What it was before it grew last, while that is on trial.
    before: Option<f64>,
    /// Windows without growth to come.
    pause: u32,
    /// Delivered while a queue stands: spans, and the sum of their rates.
    standing: Option<(u32, f64)>,
    /// Until then the last correction is given time.
    calm: Time,
}

impl Found {
    /// It was found just now; the smoothed round trip still has the queue in it that told.
    pub(super) fn new(now: Time, rtt: Duration, most: f64) -> Self {
        let (growth, calm) = (GROWTH.0, now + rtt * PATIENCE);
        Self { most, growth, before: None, pause: 1, standing: None, calm }
    }

    pub(super) fn most(&self) -> f64 {
        self.most
    }

    /// Takes what is told of the round trip and, where a span ended, of the rate of delivery.
    /// True if the rate was found to be too high.
    pub(super) fn on_feedback(
        &mut self,
        now: Time,
        (rtt, least): (Duration, Duration),
        delivered: Option<f64>,
    ) -> bool {
        if rtt <= least + least / 8 + QUEUE {
            self.standing = None;
            return false;
        }
        if now < self.calm {
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
        self.calm = now + ((rtt - least) * DRAIN).max(rtt * PATIENCE);
        if self.ungrow() {
            return true;
        }
        self.pause = PAUSE;
        let lower = self.most.min(rate * LANDING);
        std::mem::replace(&mut self.most, lower) > lower
    }

    /// A window without losses of the network's was used to the full.
    pub(super) fn grow(&mut self, ceiling: f64) {
        let went_well = self.before.take().is_some();
        self.growth = if went_well { (self.growth * 2.0).min(GROWTH.1) } else { GROWTH.0 };
        if self.pause > 0 {
            self.pause -= 1;
        } else if self.standing.is_none() && self.most < ceiling {
            self.before = Some(self.most);
            self.most = (self.most * (1.0 + self.growth)).min(ceiling);
        }
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
    fn it_grows_faster_when_that_went_well_and_takes_back_what_made_a_queue() {
        let (mut found, mut now) = (Found::new(Time::ZERO, Duration::ZERO, 100.0), Time::ZERO);
        let mut seen = Vec::new();
        for _ in 0..4 {
            found.grow(1e9);
            seen.push(found.most());
        }
        assert_eq!(seen[..2], [100.0, 106.25]);
        assert!((seen[3] / seen[2] - 1.125).abs() < 1e-9, "{seen:?}");
        assert_eq!(spans(&mut found, &mut now, 2, 20, 110.0), 1);
        assert_eq!(found.most(), seen[2]);
        for _ in 0..PAUSE {
            found.grow(1e9);
            assert_eq!(found.most(), seen[2]);
        }
        spans(&mut found, &mut now, 1, 0, 110.0);
        found.grow(120.0);
        assert_eq!(found.most(), 120.0, "never above the ceiling");
    }
}

//! Empties the queue to measure the base delay.
//!
//! A flow alone drains after ten seconds without an empty queue. Flows that share the capacity drain
//! together, at the same times of the clock: a flow that began while others held a queue has never
//! seen an empty one, takes their queue for a part of the path, and gets more than its share. If one
//! of many flows drained alone, the queue of the others would stay.

use packtrain_units::Time;

use crate::native::signals::{Round, seconds};

/// Interval of drains in seconds. Those of all flows begin at multiples of it; it divides 160 s,
/// modulo which the clocks of all processes agree (`clock::now` of packtrain-os).
const DRAIN_INTERVAL: f64 = 10.0;
const GAIN: f64 = 0.75;
/// The length of a common drain in base round trips, and its minimum in seconds: flows of other
/// round trips drain at the same time.
const COMMON_ROUNDS: f64 = 1.5;
const MIN_COMMON_TIME: f64 = 0.1;
/// A share of the capacity below this is shared with others.
const SHARED: f64 = 0.9;

/// When to drain, and whether a drain is active.
#[derive(Debug)]
pub(super) struct Drain {
    drained_at: f64,
    /// Of a flow alone.
    active: bool,
    /// Whether others have a part of the capacity.
    shared: bool,
    /// Together with the others.
    common: bool,
}

impl Drain {
    pub(super) fn new(now: Time) -> Self {
        Self { drained_at: seconds(now), active: false, shared: false, common: false }
    }

    /// Factor on the window.
    pub(super) fn gain(&self) -> f64 {
        if self.active || self.common { GAIN } else { 1.0 }
    }

    /// Takes the time; `base` is the base round trip in seconds.
    pub(super) fn on_time(&mut self, now: Time, base: f64) {
        let length = (COMMON_ROUNDS * base).max(MIN_COMMON_TIME);
        let is_time = seconds(now) % DRAIN_INTERVAL < length;
        self.common = is_time && self.shared;
    }

    /// Ends a round. `seen_at` is when the queue was last empty, in seconds; `share` is the delivered
    /// part of the capacity.
    pub(super) fn on_round(&mut self, round: &Round, seen_at: f64, share: f64) {
        if !self.common {
            self.shared = share < SHARED && !round.app_limited;
        }
        if self.active {
            self.active = false;
            self.drained_at = round.at;
        } else if round.at - seen_at.max(self.drained_at) > DRAIN_INTERVAL {
            self.active = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Time {
        Time::from_nanos((seconds * 1e9) as u64)
    }

    /// When a drain was active, of every tenth of a second of half a minute.
    fn drains(share: f64, seen_at: impl Fn(f64) -> f64) -> Vec<u32> {
        let mut drain = Drain::new(at(3.0));
        let mut active = Vec::new();
        for i in 30..330u32 {
            let now = f64::from(i) / 10.0;
            drain.on_round(&Round { at: now, ..Round::default() }, seen_at(now), share);
            drain.on_time(at(now), 0.2);
            if drain.gain() < 1.0 {
                active.push(i);
            }
        }
        active
    }

    #[test]
    fn flows_that_share_drain_at_the_same_times_for_one_and_a_half_round_trips() {
        assert_eq!(drains(0.4, |now| now), [100, 101, 102, 200, 201, 202, 300, 301, 302]);
    }

    #[test]
    fn a_flow_alone_drains_only_without_an_empty_queue() {
        assert!(drains(0.97, |now| now).is_empty());
        assert_eq!(drains(0.97, |_| 0.0), [131, 233]);
    }
}

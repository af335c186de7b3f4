//! Empties the queue to measure the base delay: after ten seconds without an empty queue, one round
//! at three quarters of the rate.

use packtrain_units::Time;

use crate::native::signals::Round;

const DRAIN_INTERVAL: f64 = 10.0;
const GAIN: f64 = 0.75;

/// When to drain, and whether a drain is active.
#[derive(Debug)]
pub(super) struct Drain {
    drained_at: f64,
    active: bool,
}

impl Drain {
    pub(super) fn new(now: Time) -> Self {
        Self { drained_at: now.as_nanos() as f64 / 1e9, active: false }
    }

    /// Factor on the window.
    pub(super) fn gain(&self) -> f64 {
        if self.active { GAIN } else { 1.0 }
    }

    /// Ends a round. `seen_at` is when the queue was last empty, in seconds.
    pub(super) fn on_round(&mut self, round: &Round, seen_at: f64) {
        if self.active {
            self.active = false;
            self.drained_at = round.at;
        } else if round.at - seen_at.max(self.drained_at) > DRAIN_INTERVAL {
            self.active = true;
        }
    }
}

//! The launch: measures the capacity in a few round trips instead of doubling from ten packets.

use crate::native::signals::Round;
use crate::native::verdict::Cause;

/// Packets of the first round trip: four trains of sixteen.
const FIRST_PACKETS: f64 = 64.0;
/// Minimum round trip used, in seconds.
const MIN_RTT: f64 = 2e-3;
/// Loss above this ends the launch at once.
const RETREAT_LOSS: f64 = 0.05;
/// The delivery rate has reached its limit when it grows by less than this factor.
const GROWTH: f64 = 1.25;
/// Maximum growth of the rate in one round when the capacity was measured.
const MAX_LEAP: f64 = 32.0;
/// Rounds without growth and without a queue, after which an end host counts as the limit.
const FLAT_ROUNDS_LIMIT: u32 = 3;

/// The launch of one flow.
#[derive(Debug)]
pub(super) struct Launch {
    rate: f64,
    rounds: u32,
    delivered: f64,
    /// Bytes sent in the previous round: those delivered now were sent then.
    sent_before: f64,
    flat: u32,
    queued: u32,
    retreating: bool,
}

impl Launch {
    /// Starts with `FIRST_PACKETS` per round trip of `rtt` seconds.
    pub(super) fn new(mtu: f64, rtt: f64) -> Self {
        Self {
            rate: FIRST_PACKETS * mtu / rtt.max(MIN_RTT),
            rounds: 0,
            delivered: 0.0,
            sent_before: 0.0,
            flat: 0,
            queued: 0,
            retreating: false,
        }
    }

    /// Bytes per second.
    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    /// The queue, in seconds, that ends a round at once.
    pub(super) fn alarm(&self, base: f64) -> Option<f64> {
        (!self.retreating).then(|| overfull(base))
    }

    /// Takes a round; returns true when the launch is over and `rate` is the cruising rate.
    pub(super) fn on_round(&mut self, round: &Round, cause: Cause) -> bool {
        self.rounds += 1;
        if self.retreating {
            let near = |c: &f64| *c > self.delivered && *c < 2.0 * self.delivered;
            self.rate = 0.95 * round.capacity.filter(near).unwrap_or(self.delivered);
            return true;
        }
        let before = self.delivered;
        let sent_before = std::mem::replace(&mut self.sent_before, round.sent);
        self.delivered = before.max(round.delivered);
        let overfull = round.queue > overfull(round.base);
        let lossy = round.loss() > RETREAT_LOSS && cause != Cause::Random;
        if overfull || lossy || cause == Cause::Backstop {
            // The queue of the overshoot drains while half the rate is sent.
            self.retreating = true;
            self.rate = self.delivered / 2.0;
            return false;
        }
        if cause == Cause::Host {
            self.rate = self.delivered;
            return true;
        }
        if round.app_limited {
            // The application, or this host's processor, sends less than allowed.
            self.flat += u32::from(round.sent < 0.7 * round.rate);
            self.rate = self.rate.min(round.sent * 4.0).max(self.rate / 2.0);
            return self.flat > 4 * FLAT_ROUNDS_LIMIT;
        }
        self.judge_growth(round, before, sent_before)
    }

    fn judge_growth(&mut self, round: &Round, before: f64, sent_before: f64) -> bool {
        let flat = round.delivered < before * GROWTH;
        let queued = round.queue > (round.base / 16.0).max(2e-3);
        self.flat = if flat { self.flat + 1 } else { 0 };
        self.queued = if flat && queued { self.queued + 1 } else { 0 };
        if self.queued >= 2 || self.flat > FLAT_ROUNDS_LIMIT {
            self.rate = self.delivered * 0.95;
            return true;
        }
        let queued = round.queue > round.base / 8.0 + 2e-3;
        let keeps_up = round.delivered >= 0.8 * sent_before.min(round.sent) && !queued;
        // Trains are spread by the narrowest link: use half of the measured capacity now, most of
        // it next.
        let capacity = round.capacity.filter(|c| *c > self.delivered);
        if let Some(capacity) = capacity
            && keeps_up
        {
            if self.rate > 0.9 * capacity {
                self.rate = 0.95 * capacity;
                return true;
            }
            let next = if self.rate < 0.4 * capacity { 0.5 } else { 0.95 };
            self.rate = (capacity * next).min(self.rate * MAX_LEAP).max(self.rate);
            return false;
        }
        if keeps_up {
            self.rate *= if self.rounds == 1 { 3.0 } else { 2.0 };
        }
        false
    }
}

/// The queue, in seconds, that counts as too long.
fn overfull(base: f64) -> f64 {
    (base / 4.0).max(5e-3)
}

//! Competition with flows that fill the queue, beside which a delay-based window starves. The
//! window then follows CUBIC (RFC 9438); only congestive losses cut it, and never below the
//! cruising window.

use crate::cubic::{BETA, Curve};
use crate::native::signals::Round;
use crate::native::verdict::Cause;

/// Rounds with a growing queue and a shrinking window that indicate a competitor.
const MIN_PRESSED_ROUNDS: u32 = 5;
/// Number of rounds for a trend.
const TREND_ROUNDS: usize = 6;
/// Bytes of the packets that CUBIC counts.
const UNIT: f64 = 1448.0;
/// The competition ends when the queue was empty in this many of the last eight rounds.
const MIN_EMPTY_ROUNDS: u32 = 2;

/// The state of the competition.
#[derive(Debug, Default)]
pub(super) struct Compete {
    pressed: u32,
    /// Queue and window of the last rounds, newest first.
    past: [(f64, f64); TREND_ROUNDS],
    cubic: Option<Cubic>,
    /// The last eight rounds: a one bit for each with an empty queue.
    empty: u8,
}

#[derive(Clone, Copy, Debug)]
struct Cubic {
    /// In packets of `UNIT` bytes.
    window: f64,
    w_max: f64,
    epoch: f64,
    deaf_until: f64,
}

impl Compete {
    /// The window in bytes during a competition.
    pub(super) fn window(&self) -> Option<f64> {
        self.cubic.map(|cubic| cubic.window * UNIT)
    }

    pub(super) fn on_round(&mut self, round: &Round, cause: Cause, cruising: f64) {
        if let Some(cubic) = &mut self.cubic {
            self.empty = self.empty << 1 | u8::from(round.queue < 1e-3);
            cubic.on_round(round, cause, cruising);
            if self.empty.count_ones() >= MIN_EMPTY_ROUNDS {
                *self = Self::default();
            }
            return;
        }
        let (queue, window) = self.past[TREND_ROUNDS - 1];
        let pressed = round.queue > queue && round.queue > 2e-3 && cruising < 0.98 * window;
        self.pressed = if pressed { self.pressed + 1 } else { 0 };
        self.past.rotate_right(1);
        self.past[0] = (round.queue, cruising);
        if self.pressed >= MIN_PRESSED_ROUNDS {
            // The window before the competitor arrived.
            let window = self.past.iter().fold(cruising, |max, p| max.max(p.1)) / UNIT;
            let deaf_until = round.at;
            self.cubic = Some(Cubic { window, w_max: window, epoch: round.at, deaf_until });
            self.empty = 0;
        }
    }
}

impl Cubic {
    fn on_round(&mut self, round: &Round, cause: Cause, cruising: f64) {
        if matches!(cause, Cause::Congestion | Cause::Backstop) && round.at >= self.deaf_until {
            self.w_max = self.window;
            self.window *= BETA;
            self.epoch = round.at;
            self.deaf_until = round.at + round.base + round.queue;
        } else if !round.app_limited {
            let curve = Curve::new(BETA * self.w_max, self.w_max);
            let target = curve.at(round.at - self.epoch + round.base);
            self.window = target.clamp(self.window, self.window * 1.5);
        }
        let max = 2.0 * round.delivered * (round.span() + round.queue) / UNIT;
        self.window = self.window.min(max).max(cruising / UNIT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(at: f64, queue: f64) -> Round {
        Round { at, queue, base: 0.05, delivered: 1e7, ..Round::default() }
    }

    #[test]
    fn a_queue_that_swings_does_not_start_it() {
        let mut compete = Compete::default();
        for i in 0..400u32 {
            let swing = (f64::from(i) / 4.0).sin();
            let window = 1e6 + 1e5 * swing;
            compete.on_round(&round(f64::from(i), 3e-3 + 1e-3 * swing), Cause::None, window);
        }
        assert_eq!(compete.window(), None, "our own window moves it");
    }

    #[test]
    fn a_filled_queue_starts_it_and_an_empty_one_ends_it() {
        let mut compete = Compete::default();
        // The cruising window changes only every other round.
        for i in 1..14u32 {
            let window = 1e6 - f64::from(i / 2) * 1e4;
            compete.on_round(&round(f64::from(i), f64::from(i) * 4e-3), Cause::None, window);
        }
        let before = compete.window().expect("pressed");
        compete.on_round(&round(15.0, 0.03), Cause::Random, 1e5);
        assert!(compete.window().unwrap() >= before, "random loss does not reduce");
        let before = compete.window().unwrap();
        compete.on_round(&round(16.0, 0.03), Cause::Congestion, 1e5);
        assert!(compete.window().unwrap() < before);
        (17..19).for_each(|i| compete.on_round(&round(f64::from(i), 0.0), Cause::None, 1e5));
        assert_eq!(compete.window(), None);
    }
}

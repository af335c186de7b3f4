//! Beside flows that fill the queue a delay-based window starves: then CUBIC (RFC 9438), cut
//! only by congestive losses and never below the cruising window.

use crate::cubic::{BETA, Curve};
use crate::native::signals::Round;
use crate::native::verdict::Cause;

/// Rounds of a rising queue and a falling window that show a competitor.
const PRESSED: u32 = 5;
/// Rounds over which a trend shows.
const TREND: usize = 6;
/// Bytes of the packets that CUBIC counts in.
const UNIT: f64 = 1448.0;
/// An empty queue in this many of the last eight rounds ends the competition.
const EMPTY: u32 = 2;

/// The competition, if there is one.
#[derive(Debug, Default)]
pub(super) struct Compete {
    pressed: u32,
    /// Queue and window of the last rounds, newest first.
    past: [(f64, f64); TREND],
    cubic: Option<Cubic>,
    /// The last eight rounds: a one for each with an empty queue.
    empty: u8,
}

#[derive(Clone, Copy, Debug)]
struct Cubic {
    /// All in units.
    window: f64,
    w_max: f64,
    epoch: f64,
    deaf_until: f64,
}

impl Compete {
    /// The window in bytes while it competes.
    pub(super) fn window(&self) -> Option<f64> {
        self.cubic.map(|cubic| cubic.window * UNIT)
    }

    pub(super) fn on_round(&mut self, round: &Round, cause: Cause, cruising: f64) {
        if let Some(cubic) = &mut self.cubic {
            self.empty = self.empty << 1 | u8::from(round.queue < 1e-3);
            cubic.on_round(round, cause, cruising);
            if self.empty.count_ones() >= EMPTY {
                *self = Self::default();
            }
            return;
        }
        let (queue, window) = self.past[TREND - 1];
        let pressed = round.queue > queue && round.queue > 2e-3 && cruising < 0.98 * window;
        self.pressed = if pressed { self.pressed + 1 } else { 0 };
        self.past.rotate_right(1);
        self.past[0] = (round.queue, cruising);
        if self.pressed >= PRESSED {
            // What it had before it was pressed.
            let window = self.past.iter().fold(cruising, |most, p| most.max(p.1)) / UNIT;
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
        let most = 2.0 * round.delivered * (round.span() + round.queue) / UNIT;
        self.window = self.window.min(most).max(cruising / UNIT);
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
        // The cruising window moves every other round only.
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

//! Losses of the wire. Every model answers one question: which of the next n packets is the first
//! to be lost? A train without a loss therefore passes at once and at no cost.

use packtrain_units::Rng;

use crate::config::LossConfig;
use crate::random::{Geometric, Hits};

/// A loss model with its state.
#[derive(Clone, Debug)]
pub(crate) enum Loss {
    None,
    Independent(Hits),
    BitError(BitError),
    TwoStates(Box<TwoStates>),
    Trace(Trace),
}

impl Loss {
    pub(crate) fn new(config: &LossConfig, rng: Rng) -> Self {
        match *config {
            LossConfig::None => Self::None,
            LossConfig::Independent(p) => Self::Independent(Hits::new(p, rng)),
            LossConfig::BitError(p) => Self::BitError(BitError::new(p, rng)),
            LossConfig::GilbertElliott { to_bad, to_good, loss_good, loss_bad } => Self::TwoStates(
                Box::new(TwoStates::new([to_bad, to_good], [loss_good, loss_bad], rng)),
            ),
            LossConfig::Trace(ref outcomes) => Self::Trace(Trace::new(outcomes)),
        }
    }

    /// The index of the first of the next `n` packets of `size` bytes to be lost. The packets up to
    /// it are consumed; all `n` if none is lost.
    pub(crate) fn next_in(&mut self, n: u32, size: u32) -> Option<u32> {
        match self {
            Self::None => None,
            Self::Independent(hits) => hits.next_in(n),
            Self::BitError(model) => model.next_in(n, size),
            Self::TwoStates(model) => model.next_in(n),
            Self::Trace(trace) => trace.next_in(n),
        }
    }
}

/// Independent bit errors: a packet is lost with probability 1 - (1 - p)^(8 size). It counts the
/// bits to the next error, so packets of different sizes mix exactly.
#[derive(Clone, Debug)]
pub(crate) struct BitError {
    law: Geometric,
    rng: Rng,
    good: u64,
}

impl BitError {
    fn new(p: f64, mut rng: Rng) -> Self {
        let law = Geometric::new(p);
        let good = law.misses(&mut rng);
        Self { law, rng, good }
    }

    fn next_in(&mut self, n: u32, size: u32) -> Option<u32> {
        let each = 8 * u64::from(size);
        let all = each * u64::from(n);
        if self.good >= all {
            if self.good != u64::MAX {
                self.good -= all;
            }
            return None;
        }
        let at = (self.good / each) as u32;
        // Bit errors are memoryless: the packet after the lost one starts anew.
        self.good = self.law.misses(&mut self.rng);
        Some(at)
    }
}

/// The Gilbert-Elliott model: the current state decides on a packet, then the state may change. It
/// starts in the good state.
#[derive(Clone, Debug)]
pub(crate) struct TwoStates {
    leave: [Geometric; 2],
    lose: [Geometric; 2],
    rng: Rng,
    bad: usize,
    /// Packets left in this state; the change follows the last one.
    stay: u64,
    /// Packets that pass before the next loss, if the state lasts.
    pass: u64,
}

impl TwoStates {
    fn new(leave: [f64; 2], lose: [f64; 2], rng: Rng) -> Self {
        let (leave, lose) = (leave.map(Geometric::new), lose.map(Geometric::new));
        let mut this = Self { leave, lose, rng, bad: 0, stay: 0, pass: 0 };
        this.enter(0);
        this
    }

    fn enter(&mut self, state: usize) {
        self.bad = state;
        self.stay = self.leave[state].misses(&mut self.rng).saturating_add(1);
        self.pass = self.lose[state].misses(&mut self.rng);
    }

    fn next_in(&mut self, n: u32) -> Option<u32> {
        let (mut passed, mut left) = (0, u64::from(n));
        while left > 0 {
            let step = left.min(self.stay);
            if self.pass < step {
                let at = self.pass;
                self.use_up(at + 1);
                if self.stay > 0 {
                    self.pass = self.lose[self.bad].misses(&mut self.rng);
                }
                self.change();
                return Some((passed + at) as u32);
            }
            if self.pass != u64::MAX {
                self.pass -= step;
            }
            self.use_up(step);
            self.change();
            passed += step;
            left -= step;
        }
        None
    }

    fn use_up(&mut self, n: u64) {
        if self.stay != u64::MAX {
            self.stay -= n;
        }
    }

    fn change(&mut self) {
        if self.stay == 0 {
            self.enter(1 - self.bad);
        }
    }
}

/// Recorded outcomes of packets, repeated from the start after the last.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    /// Numbers of the lost packets, ascending.
    lost: Vec<u64>,
    length: u64,
    /// Number of the next packet, and index of the first loss not before it.
    at: u64,
    next: usize,
}

impl Trace {
    fn new(outcomes: &[bool]) -> Self {
        let lost = (0u64..).zip(outcomes).filter(|(_, lost)| **lost).map(|(i, _)| i).collect();
        Self { lost, length: outcomes.len() as u64, at: 0, next: 0 }
    }

    fn next_in(&mut self, n: u32) -> Option<u32> {
        if self.lost.is_empty() {
            return None;
        }
        let ahead = match self.lost.get(self.next) {
            Some(number) => number - self.at,
            None => self.length - self.at + self.lost[0],
        };
        if ahead >= u64::from(n) {
            self.walk(u64::from(n));
            return None;
        }
        self.walk(ahead + 1);
        Some(ahead as u32)
    }

    fn walk(&mut self, n: u64) {
        self.at += n;
        if self.at >= self.length {
            self.at %= self.length;
            self.next = 0;
        }
        while self.lost.get(self.next).is_some_and(|number| *number < self.at) {
            self.next += 1;
        }
    }
}

#[cfg(test)]
#[path = "loss_tests.rs"]
mod tests;

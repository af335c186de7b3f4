//! How wrong a forecaster was, and the selectors that go by it.

use std::collections::VecDeque;
use std::fmt;

/// What is made of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Its square.
    Squared,
    /// Its size.
    Absolute,
}

/// Which errors count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// All there were.
    All,
    /// The last few.
    Last(usize),
}

/// Picks the method whose mean error is smallest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selector {
    /// What is made of an error.
    pub measure: Measure,
    /// Which errors count.
    pub span: Span,
}

/// Over how many errors selectors look back.
pub(super) const SPANS: [Span; 8] = [
    Span::All,
    Span::Last(1),
    Span::Last(5),
    Span::Last(10),
    Span::Last(20),
    Span::Last(30),
    Span::Last(50),
    Span::Last(100),
];

/// Errors that are kept one by one.
const KEPT: usize = 100;

impl Selector {
    /// All of them.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        [Measure::Squared, Measure::Absolute]
            .into_iter()
            .flat_map(|measure| SPANS.map(|span| Self { measure, span }))
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let measure = match self.measure {
            Measure::Squared => "squared",
            Measure::Absolute => "absolute",
        };
        match self.span {
            Span::All => write!(f, "{measure}-all"),
            Span::Last(count) => write!(f, "{measure}-{count}"),
        }
    }
}

/// The errors that something made.
#[derive(Clone, Debug, Default)]
pub(super) struct Score {
    last: VecDeque<f64>,
    absolute: f64,
    squared: f64,
    count: u64,
}

impl Score {
    pub(super) fn add(&mut self, error: f64) {
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        self.last.push_back(error);
        self.absolute += error.abs();
        self.squared += error * error;
        self.count += 1;
    }

    /// The mean error; infinite before the first. Of the last few, as many as there are.
    pub(super) fn mean(&self, selector: Selector) -> f64 {
        let of = |error: f64| match selector.measure {
            Measure::Squared => error * error,
            Measure::Absolute => error.abs(),
        };
        match selector.span {
            _ if self.count == 0 => f64::INFINITY,
            Span::All => {
                let sum = match selector.measure {
                    Measure::Squared => self.squared,
                    Measure::Absolute => self.absolute,
                };
                // By all that were summed: see the module about the original.
                sum / self.count as f64
            }
            Span::Last(count) => {
                let taken = count.min(self.last.len());
                let newest = self.last.range(self.last.len() - taken..);
                newest.map(|&error| of(error)).sum::<f64>() / taken as f64
            }
        }
    }
}

//! Errors of forecasters, and the selectors that compare them.

use std::collections::VecDeque;
use std::fmt;

/// The function of an error that is averaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Its square.
    Squared,
    /// Its absolute value.
    Absolute,
}

/// The errors that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// All errors.
    All,
    /// The last few.
    Last(usize),
}

/// Selects the method with the smallest mean error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selector {
    /// The function of an error that is averaged.
    pub measure: Measure,
    /// The errors that count.
    pub span: Span,
}

/// Numbers of errors that selectors use.
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

/// Number of errors kept individually.
const KEPT: usize = 100;

impl Selector {
    /// All selectors.
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

/// The errors of a method or selector.
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

    /// The mean error; infinite before the first. A span longer than the number of errors uses all.
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
                // Divided by the number of all summed errors: see the module about the original.
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

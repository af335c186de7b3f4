//! The battery at work: methods, selectors, the answer and its interval.

use std::collections::VecDeque;

use super::method::{ALL, Forecaster, MAX_WINDOW, Method};
use super::score::{Measure, Score, Selector, Span};

/// A number that cannot have been measured: negative, infinite or none.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{0} is no measurement: it must be a finite number, not below zero")]
pub struct NotAMeasurement(pub f64);

/// What is expected next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// In the unit of the measurements.
    pub value: f64,
    /// The next measurement is expected between these four times in five.
    pub interval: (f64, f64),
    /// One standard deviation of the answers' errors, as a part of what was measured.
    pub relative_error: f64,
    /// What answered.
    pub method: Method,
    /// What chose it.
    pub selector: Selector,
    /// How many measurements there were.
    pub measurements: u64,
}

/// A measurement beside what had been expected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// What had been expected; nothing before the first measurement.
    pub expected: Option<f64>,
    /// What was measured.
    pub measured: f64,
}

/// The forecasters of one series.
#[derive(Clone, Debug)]
pub struct Battery {
    past: VecDeque<f64>,
    methods: Vec<(Forecaster, Score)>,
    selectors: Vec<(Selector, Score)>,
    /// Ratios of measured to expected, of the answers: newest last.
    ratios: VecDeque<f64>,
    measurements: u64,
}

/// Ratios that the interval is made of.
const RATIOS: usize = 100;
/// As long as there are fewer, the interval is widened: by 1 + 2 / how many.
const WIDENING: f64 = 2.0;
/// What an interval has on either side before anything was expected: a factor of two.
const UNKNOWN: f64 = 2.0;
/// The interval leaves out this part on either side.
const TAIL: f64 = 0.1;
/// A measurement is above this many standard deviations less than one time in ten.
const TENTH: f64 = 1.281_551_565_544_600_4;

impl Default for Battery {
    fn default() -> Self {
        Self::new()
    }
}

impl Battery {
    /// Nothing measured yet.
    pub fn new() -> Self {
        let methods = ALL.map(|method| (Forecaster::new(method), Score::default())).to_vec();
        let selectors = Selector::all().map(|selector| (selector, Score::default())).collect();
        Self {
            past: VecDeque::with_capacity(MAX_WINDOW),
            methods,
            selectors,
            ratios: VecDeque::new(),
            measurements: 0,
        }
    }

    /// Scores what had been expected, then learns.
    ///
    /// # Errors
    /// The number cannot have been measured; nothing changes.
    pub fn learn(&mut self, value: f64) -> Result<Outcome, NotAMeasurement> {
        if !value.is_finite() || value < 0.0 {
            return Err(NotAMeasurement(value));
        }
        let expected = self.forecast().map(|forecast| forecast.value);
        if !self.past.is_empty() {
            self.score(value);
        }
        if let Some(expected) = expected.filter(|&expected| expected > 0.0) {
            if self.ratios.len() == RATIOS {
                self.ratios.pop_front();
            }
            self.ratios.push_back(value / expected);
        }
        for (method, _) in &mut self.methods {
            method.learn(value, &self.past);
        }
        if self.past.len() == MAX_WINDOW {
            self.past.pop_front();
        }
        self.past.push_back(value);
        self.measurements += 1;
        Ok(Outcome { expected, measured: value })
    }

    /// What comes next; nothing before the first measurement.
    pub fn forecast(&self) -> Option<Forecast> {
        if self.past.is_empty() {
            return None;
        }
        // Selectors by their error over all time; the first one (all squared errors) among equals.
        let over_all = Selector { measure: Measure::Squared, span: Span::All };
        let (selector, _) = least(&self.selectors, |(_, score)| score.mean(over_all));
        let (forecaster, _) = self.chosen(*selector);
        let value = forecaster.forecast(&self.past);
        let (interval, relative_error) = self.spread(value);
        Some(Forecast {
            value,
            interval,
            relative_error,
            method: forecaster.method,
            selector: *selector,
            measurements: self.measurements,
        })
    }

    /// Mean size of each method's errors, over all time: what `forecast --explain` shows.
    pub fn methods(&self) -> impl Iterator<Item = (Method, f64)> {
        let all = Selector { measure: Measure::Absolute, span: Span::All };
        self.methods.iter().map(move |(forecaster, score)| (forecaster.method, score.mean(all)))
    }

    /// The method that a selector picks.
    fn chosen(&self, selector: Selector) -> &(Forecaster, Score) {
        least(&self.methods, |(_, score)| score.mean(selector))
    }

    /// Each method's and each selector's error at `value`, before any of them learns it.
    fn score(&mut self, value: f64) {
        let answers: Vec<f64> = self
            .selectors
            .iter()
            .map(|(selector, _)| self.chosen(*selector).0.forecast(&self.past))
            .collect();
        for ((_, score), answer) in self.selectors.iter_mut().zip(answers) {
            score.add(value - answer);
        }
        for (forecaster, score) in &mut self.methods {
            score.add(value - forecaster.forecast(&self.past));
        }
    }

    /// Where the next measurement is expected, and the deviation, from the ratios of measured to
    /// expected so far: their tenths where there are enough of them, and never less wide than a
    /// normal distribution of the same deviation where there are few.
    fn spread(&self, value: f64) -> ((f64, f64), f64) {
        let count = self.ratios.len();
        if count < 2 {
            return ((value / UNKNOWN, value * UNKNOWN), UNKNOWN - 1.0);
        }
        let widen = 1.0 + WIDENING / count as f64;
        let squared = self.ratios.iter().map(|ratio| (ratio - 1.0) * (ratio - 1.0)).sum::<f64>();
        let deviation = (squared / count as f64).sqrt() * widen;
        let mut sorted: Vec<f64> = self.ratios.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        let at = |part: f64| sorted[((count - 1) as f64 * part).round() as usize];
        let (mut low, mut high) = (at(TAIL), at(1.0 - TAIL));
        if count < 20 {
            low = low.min(1.0 - TENTH * deviation);
            high = high.max(1.0 + TENTH * deviation);
        }
        ((value * low.clamp(0.0, 1.0), value * high.max(1.0)), deviation)
    }
}

/// The one with the smallest error, the first among equals.
fn least<T>(all: &[T], error: impl Fn(&T) -> f64) -> &T {
    let mut best = &all[0];
    let mut smallest = error(best);
    for one in &all[1..] {
        let found = error(one);
        if found < smallest {
            (best, smallest) = (one, found);
        }
    }
    best
}

//! The set of methods and selectors, the forecast and its interval.

use std::collections::VecDeque;

use super::method::{ALL, Forecaster, MAX_WINDOW, Method};
use super::score::{Measure, Score, Selector, Span};

/// An impossible measurement: negative, infinite or not a number.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{0} is no measurement: it must be a finite number, not below zero")]
pub struct NotAMeasurement(pub f64);

/// A forecast of the next measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// In the unit of the measurements.
    pub value: f64,
    /// Four in five measurements are expected within these bounds.
    pub interval: (f64, f64),
    /// One standard deviation of the forecasts' errors, as a fraction of the measurement.
    pub relative_error: f64,
    /// The method that made the forecast.
    pub method: Method,
    /// The selector that chose the method.
    pub selector: Selector,
    /// Number of measurements so far.
    pub measurements: u64,
}

/// A measurement with its forecast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// The forecast; none before the first measurement.
    pub expected: Option<f64>,
    /// The measurement.
    pub measured: f64,
}

/// The forecasters of one series.
#[derive(Clone, Debug)]
pub struct Battery {
    past: VecDeque<f64>,
    methods: Vec<(Forecaster, Score)>,
    selectors: Vec<(Selector, Score)>,
    /// Ratios of measurement to forecast, newest last.
    ratios: VecDeque<f64>,
    measurements: u64,
}

/// Number of ratios that the interval is computed from.
const RATIOS: usize = 100;
/// With fewer ratios the interval is widened, by the factor 1 + 2 / number.
const WIDENING: f64 = 2.0;
/// The factor of the interval on either side before there was a forecast.
const UNKNOWN: f64 = 2.0;
/// Fraction that the interval leaves out on either side.
const TAIL: f64 = 0.1;
/// The 90 % quantile of the normal distribution, in standard deviations.
const TENTH: f64 = 1.281_551_565_544_600_4;

impl Default for Battery {
    fn default() -> Self {
        Self::new()
    }
}

impl Battery {
    /// A set without measurements.
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

    /// Scores the forecasts against a measurement, then learns it.
    ///
    /// # Errors
    /// The measurement is impossible; nothing changes.
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

    /// The forecast of the next measurement; none before the first measurement.
    pub fn forecast(&self) -> Option<Forecast> {
        if self.past.is_empty() {
            return None;
        }
        // Selectors are compared by their error over all time; the first one (all squared errors)
        // wins ties.
        let over_all = Selector { measure: Measure::Squared, span: Span::All };
        let (selector, _) = min_by_error(&self.selectors, |(_, score)| score.mean(over_all));
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

    /// Mean absolute error of each method over all time, as shown by `forecast --explain`.
    pub fn methods(&self) -> impl Iterator<Item = (Method, f64)> {
        let all = Selector { measure: Measure::Absolute, span: Span::All };
        self.methods.iter().map(move |(forecaster, score)| (forecaster.method, score.mean(all)))
    }

    /// The method that a selector chooses.
    fn chosen(&self, selector: Selector) -> &(Forecaster, Score) {
        min_by_error(&self.methods, |(_, score)| score.mean(selector))
    }

    /// Scores each method and each selector on `value`, before any of them learns it.
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

    /// The interval of the next measurement and the deviation, from the ratios of measurement to
    /// forecast so far: their deciles where there are enough of them. With few ratios it is at
    /// least as wide as for a normal distribution of the same deviation.
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

/// The item with the smallest error, the first among equals.
fn min_by_error<T>(all: &[T], error: impl Fn(&T) -> f64) -> &T {
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

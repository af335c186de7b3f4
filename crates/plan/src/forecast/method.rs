//! The forecasting methods: each computes one number from the measurements.

use std::collections::VecDeque;
use std::fmt;

/// A forecasting method.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Method {
    /// The last measurement.
    Last,
    /// The mean of all.
    RunningMean,
    /// Exponential smoothing: this fraction of the last error is added to the forecast.
    Smoothing(f64),
    /// The mean of the last few.
    Mean(usize),
    /// The median of the last few.
    Median(usize),
    /// The mean of the last few without the largest and smallest of them; the fraction counts both
    /// ends together.
    TrimmedMean(usize, f64),
    /// The median of a window whose length adapts within bounds to what would have forecast the
    /// last measurement better.
    AdaptiveMedian {
        /// The initial window.
        first: usize,
        /// Smallest window.
        min: usize,
        /// Largest window.
        max: usize,
    },
}

/// The methods of the Network Weather Service.
pub(super) const ALL: [Method; 18] = [
    Method::Last,
    Method::RunningMean,
    Method::Smoothing(0.05),
    Method::Smoothing(0.10),
    Method::Smoothing(0.15),
    Method::Smoothing(0.20),
    Method::Smoothing(0.30),
    Method::Smoothing(0.40),
    Method::Smoothing(0.50),
    Method::Smoothing(0.75),
    Method::Mean(5),
    Method::Mean(31),
    Method::Median(5),
    Method::Median(31),
    Method::TrimmedMean(31, 0.3),
    Method::TrimmedMean(51, 0.3),
    Method::AdaptiveMedian { first: 10, min: 5, max: 21 },
    Method::AdaptiveMedian { first: 30, min: 21, max: 51 },
];

/// Maximum number of past measurements that a method uses.
pub(super) const MAX_WINDOW: usize = 51;

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Last => f.write_str("last"),
            Self::RunningMean => f.write_str("running-mean"),
            Self::Smoothing(gain) => write!(f, "smoothing-{gain:.2}"),
            Self::Mean(window) => write!(f, "mean-{window}"),
            Self::Median(window) => write!(f, "median-{window}"),
            Self::TrimmedMean(window, part) => {
                write!(f, "trimmed-mean-{window}-{:.0}%", part * 100.0)
            }
            Self::AdaptiveMedian { min, max, .. } => {
                write!(f, "adaptive-median-{min}..{max}")
            }
        }
    }
}

/// A method and its own state, beside the shared measurements.
#[derive(Clone, Debug)]
pub(super) struct Forecaster {
    pub(super) method: Method,
    /// Sum and count, the smoothed value, or the window, depending on the method.
    memory: Memory,
}

#[derive(Clone, Copy, Debug)]
enum Memory {
    None,
    Mean { mean: f64, count: u64 },
    Smoothed(Option<f64>),
    Window(usize),
}

impl Forecaster {
    pub(super) fn new(method: Method) -> Self {
        let memory = match method {
            Method::RunningMean => Memory::Mean { mean: 0.0, count: 0 },
            Method::Smoothing(_) => Memory::Smoothed(None),
            Method::AdaptiveMedian { first, .. } => Memory::Window(first),
            _ => Memory::None,
        };
        Self { method, memory }
    }

    /// The forecast after `past` (oldest first, at least one).
    pub(super) fn forecast(&self, past: &VecDeque<f64>) -> f64 {
        match (self.method, self.memory) {
            (Method::Mean(window), _) => mean(newest(past, window)),
            (Method::Median(window), _) => median(newest(past, window)),
            (Method::TrimmedMean(window, part), _) => trimmed(newest(past, window), part),
            (Method::RunningMean, Memory::Mean { mean, .. }) => mean,
            (Method::Smoothing(_), Memory::Smoothed(Some(value))) => value,
            (Method::AdaptiveMedian { .. }, Memory::Window(window)) => median(newest(past, window)),
            _ => past.back().copied().unwrap_or(0.0),
        }
    }

    /// Learns a measurement; `past` has the measurements before it.
    pub(super) fn learn(&mut self, value: f64, past: &VecDeque<f64>) {
        match (&mut self.memory, self.method) {
            (Memory::Mean { mean, count }, _) => {
                *count += 1;
                *mean += (value - *mean) / *count as f64;
            }
            (Memory::Smoothed(smoothed), Method::Smoothing(gain)) => {
                let before = smoothed.unwrap_or(value);
                *smoothed = Some(before + gain * (value - before));
            }
            (Memory::Window(window), Method::AdaptiveMedian { min, max, .. }) => {
                *window = adapted(*window, min, max, value, past);
            }
            _ => {}
        }
    }
}

/// The window that would have forecast `value` best: unchanged, or one less or more. It stays among
/// equals, so that a constant series changes nothing. A window longer than the past is not
/// compared, because it equals the whole past.
fn adapted(window: usize, min: usize, max: usize, value: f64, past: &VecDeque<f64>) -> usize {
    let mut best = window;
    let error = |window: usize| (median(newest(past, window)) - value).abs();
    if past.is_empty() {
        return best;
    }
    for candidate in [window - 1, window + 1] {
        if (min..=max).contains(&candidate)
            && candidate.max(window) <= past.len()
            && error(candidate) < error(best)
        {
            best = candidate;
        }
    }
    best
}

/// The newest of the past, at most `window`.
fn newest(past: &VecDeque<f64>, window: usize) -> impl ExactSizeIterator<Item = f64> {
    past.range(past.len().saturating_sub(window)..).copied()
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}

/// Sorted; the past is bounded, so no allocation is large.
fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let sorted = sorted(values);
    match sorted.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => f64::midpoint(sorted[even / 2 - 1], sorted[even / 2]),
    }
}

fn trimmed(values: impl Iterator<Item = f64>, part: f64) -> f64 {
    let sorted = sorted(values);
    let cut = (sorted.len() as f64 * part / 2.0) as usize;
    mean(sorted[cut..sorted.len() - cut].iter().copied())
}

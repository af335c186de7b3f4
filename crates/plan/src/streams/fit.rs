//! The fit of each single model.

use std::num::NonZeroU32;

use packtrain_units::DataRate;

use super::baseline::{argmax, log_log};
use super::models::{Invalid, Model};
use super::point::{Point, from_mbps};
use super::search::{self, Best};

/// One model or baseline, fitted to the samples.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFit {
    /// Its name, as the command prints it.
    pub name: &'static str,
    /// The number of streams at its peak within the limit; none if it only rises or is invalid.
    pub optimum: Option<NonZeroU32>,
    /// Why it cannot be used.
    pub invalid: Option<Invalid>,
    source: Source,
}

#[derive(Clone, Debug, PartialEq)]
enum Source {
    Nothing,
    Model(Best),
    /// The largest sample, which does not predict other numbers of streams.
    Largest(Point),
    /// Interpolation between samples.
    Lines(Vec<Point>),
}

impl ModelFit {
    /// The best-fitted curve with its samples; none for baselines and invalid models.
    pub fn best(&self) -> Option<&Best> {
        match &self.source {
            Source::Model(best) => Some(best),
            _ => None,
        }
    }

    /// Names and values of the coefficients, for throughputs in Mbit/s.
    pub fn coefficients(&self) -> Vec<(&'static str, f64)> {
        self.best().map_or_else(Vec::new, |best| best.curve.coefficients())
    }

    /// Its throughput for this number of streams; none outside its domain.
    pub fn at(&self, streams: NonZeroU32) -> Option<DataRate> {
        match &self.source {
            Source::Nothing => None,
            Source::Model(best) => best.curve.at(streams),
            Source::Largest(point) => (point.streams == streams).then(|| from_mbps(point.mbps)),
            Source::Lines(points) => log_log(points, &Point::new(streams, 1.0)).map(from_mbps),
        }
    }
}

/// Every model and both baselines; `points` are in ascending order, with positive throughputs.
pub(crate) fn all(points: &[Point], max: NonZeroU32) -> Vec<ModelFit> {
    let mut all: Vec<_> =
        search::all(points).map(|(model, found)| of_model(model, found, max)).collect();
    let largest = argmax(points).copied();
    all.push(match largest {
        Some(point) => ModelFit {
            name: "argmax",
            optimum: Some(point.streams.min(max)),
            invalid: None,
            source: Source::Largest(point),
        },
        None => nothing("argmax", 1),
    });
    all.push(match largest {
        Some(point) if points.len() > 1 => ModelFit {
            name: "interpolation",
            // Between samples no point is higher than at a sample; beyond the last one it only
            // extrapolates.
            optimum: Some(point.streams.min(max)),
            invalid: None,
            source: Source::Lines(points.to_vec()),
        },
        _ => nothing("interpolation", 2),
    });
    all
}

fn of_model(model: Model, found: Result<Best, Invalid>, max: NonZeroU32) -> ModelFit {
    let name = model.name();
    match found {
        Ok(best) => {
            let optimum = best.curve.optimum(max);
            ModelFit { name, optimum, invalid: None, source: Source::Model(best) }
        }
        Err(reason) => {
            ModelFit { name, optimum: None, invalid: Some(reason), source: Source::Nothing }
        }
    }
}

fn nothing(name: &'static str, needed: usize) -> ModelFit {
    let invalid = Some(Invalid::TooFew { needed, found: needed - 1 });
    ModelFit { name, optimum: None, invalid, source: Source::Nothing }
}

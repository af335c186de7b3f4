//! The metrics with which the paper compares models (section 6.2.1, equations 38 to 44).

use std::num::NonZeroU32;

use super::Sample;
use super::curve::Curve;
use super::models::Model;
use super::point::{Point, points, to_mbps};
use super::search::every;

/// The metrics of a model for one set of samples m_i, evaluated on a population.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judgement {
    /// The share of the population's numbers of streams within the domain of a curve
    /// (equation 38), the mean over all combinations of samples.
    pub predictability: f64,
    /// The share of combinations that predict every number of the population (equation 39; the
    /// paper writes this sensitivity P_pre in section 6.2.1, which is predictability's name).
    pub effectiveness: f64,
    /// The smallest error of an effective combination over the population, in Mbit/s (equations 40
    /// and 41); none if no combination is effective.
    pub best_error_mbps: Option<f64>,
    /// The same over the samples alone.
    pub best_error_on_samples_mbps: Option<f64>,
}

/// Evaluates every combination of `samples`, without the conditions of section 5: these metrics
/// show that the conditions are needed.
pub fn judge(model: Model, samples: &[Sample], population: &[Sample]) -> Judgement {
    let (points_of_set, _) = points(samples);
    let (population, _) = points(population);
    let mut sum = Sums::default();
    every(model.samples(), &points_of_set, &mut |from| {
        sum.add(model.raw(from).as_ref(), &points_of_set, &population);
    });
    let all = sum.combinations.max(1) as f64;
    Judgement {
        predictability: sum.predictability / all,
        effectiveness: sum.effective as f64 / all,
        best_error_mbps: sum.best.map(|(on_population, _)| on_population),
        best_error_on_samples_mbps: sum.best.map(|(_, on_samples)| on_samples),
    }
}

/// The means of equations 42 to 44 over several sets of the same size; errors over those sets that
/// have one.
pub fn average(judgements: &[Judgement]) -> Judgement {
    let mean = |of: &dyn Fn(&Judgement) -> Option<f64>| {
        let values: Vec<f64> = judgements.iter().filter_map(of).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    Judgement {
        predictability: mean(&|j| Some(j.predictability)).unwrap_or(0.0),
        effectiveness: mean(&|j| Some(j.effectiveness)).unwrap_or(0.0),
        best_error_mbps: mean(&|j| j.best_error_mbps),
        best_error_on_samples_mbps: mean(&|j| j.best_error_on_samples_mbps),
    }
}

/// Root mean square of the distances to `population` where the curve has a value (equation 40), in
/// Mbit/s; none if it has no value anywhere.
pub fn error_mbps(at: impl Fn(NonZeroU32) -> Option<f64>, population: &[Sample]) -> Option<f64> {
    let distance = |s: &Sample| Some(at(s.streams)? - to_mbps(s.throughput));
    let squares: Vec<f64> = population.iter().filter_map(distance).map(|d| d * d).collect();
    (!squares.is_empty()).then(|| (squares.iter().sum::<f64>() / squares.len() as f64).sqrt())
}

#[derive(Default)]
struct Sums {
    combinations: usize,
    predictability: f64,
    effective: usize,
    best: Option<(f64, f64)>,
}

impl Sums {
    fn add(&mut self, curve: Option<&Curve>, samples: &[Point], population: &[Point]) {
        self.combinations += 1;
        let Some(curve) = curve else { return };
        let inside = population.iter().filter(|p| has_value(curve, p)).count();
        self.predictability += inside as f64 / population.len().max(1) as f64;
        if inside < population.len() {
            return;
        }
        self.effective += 1;
        let (on_population, on_samples) = (rms(curve, population), rms(curve, samples));
        if self.best.is_none_or(|(min, _)| on_population < min) {
            self.best = Some((on_population, on_samples));
        }
    }
}

/// Whether the curve has a value: no negative root and no zero divisor.
fn has_value(curve: &Curve, at: &Point) -> bool {
    let mbps = curve.mbps(at);
    mbps.is_finite() && mbps > 0.0
}

fn rms(curve: &Curve, points: &[Point]) -> f64 {
    let squares = points.iter().map(|p| (p.mbps - curve.mbps(p)).powi(2));
    (squares.sum::<f64>() / points.len().max(1) as f64).sqrt()
}

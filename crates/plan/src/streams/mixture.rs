//! The mixture of all shapes, weighted by their posterior probability.

use super::point::Point;
use super::residual::{self, Residual};
use super::shapes::{self, Shape};

/// Above this number of different numbers of streams the points are thinned: more add only work.
const MAX_POINTS: usize = 64;

/// Shapes less probable than the most probable one by this factor are left out.
const NEGLIGIBLE: f64 = 1e-5;

/// A shape with one assumption about the residuals. Those of one shape are next to each other.
#[derive(Debug)]
struct Member {
    shape: Shape,
    /// The number of the shape.
    number: usize,
    residual: usize,
    weight: f64,
    /// L^-1 times the distance of the samples above the shape.
    above: Vec<f64>,
}

/// The posterior distribution of shapes.
#[derive(Debug)]
pub(crate) struct Mixture {
    residuals: Vec<Residual>,
    members: Vec<Member>,
    /// ln of the unit of all values: the largest sample.
    ln_unit: f64,
}

/// Mean and variance of a prediction at one number of streams, of ln of Mbit/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Moment {
    pub(crate) mean: f64,
    pub(crate) variance: f64,
}

impl Mixture {
    /// From at least one point.
    pub(crate) fn new(points: &[Point]) -> Self {
        let points = thinned(points);
        let ln_unit = points.iter().map(|p| p.mbps.ln()).fold(f64::NEG_INFINITY, f64::max);
        let residuals = residual::all(&points);
        let mut members = Vec::new();
        for (number, shape) in shapes::all().into_iter().enumerate() {
            let above = points.iter().map(|p| p.mbps.ln() - ln_unit - shape.ln_at(p.ln_n));
            let above: Vec<f64> = above.collect();
            for (index, residual) in residuals.iter().enumerate() {
                let mut above = above.clone();
                let weight = residual.ln_likelihood(&mut above) + shape.prior;
                members.push(Member { shape, number, residual: index, weight, above });
            }
        }
        let max = members.iter().map(|m| m.weight).fold(f64::NEG_INFINITY, f64::max);
        members.iter_mut().for_each(|m| m.weight = (m.weight - max).exp());
        members.retain(|m| m.weight > NEGLIGIBLE);
        let sum: f64 = members.iter().map(|m| m.weight).sum();
        members.iter_mut().for_each(|m| m.weight /= sum);
        Self { residuals, members, ln_unit }
    }

    /// The prediction at `ln_n`.
    pub(crate) fn at(&self, ln_n: f64) -> Moment {
        let weights: Vec<_> = self.residuals.iter().map(|r| r.weights(ln_n)).collect();
        let (mut mean, mut square) = (0.0, 0.0);
        for member in &self.members {
            let at = &weights[member.residual];
            let value = member.shape.ln_at(ln_n) + at.mean(&member.above);
            mean += member.weight * value;
            square += member.weight * (value * value + at.variance);
        }
        Moment { mean: mean + self.ln_unit, variance: (square - mean * mean).max(0.0) }
    }

    /// For each of `ln_n`, its expected share of the greatest throughput among them.
    pub(crate) fn shares(&self, ln_n: &[f64]) -> Vec<f64> {
        let weights: Vec<Vec<_>> =
            self.residuals.iter().map(|r| ln_n.iter().map(|at| r.weights(*at)).collect()).collect();
        let mut shares = vec![0.0; ln_n.len()];
        let mut values = vec![0.0; ln_n.len()];
        for members in self.members.chunk_by(|a, b| a.number == b.number) {
            let Some(Member { shape, .. }) = members.first() else { continue };
            let curve: Vec<f64> = ln_n.iter().map(|ln_n| shape.ln_at(*ln_n)).collect();
            for member in members {
                let at = &weights[member.residual];
                for ((value, curve), at) in values.iter_mut().zip(&curve).zip(at) {
                    *value = curve + at.mean(&member.above);
                }
                let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                for (share, value) in shares.iter_mut().zip(&values) {
                    *share += member.weight * (value - max).exp();
                }
            }
        }
        shares
    }
}

/// At most [`MAX_POINTS`], evenly spread over the logarithm of the streams, ends included.
fn thinned(points: &[Point]) -> Vec<Point> {
    if points.len() <= MAX_POINTS {
        return points.to_vec();
    }
    let (first, last) = (points[0].ln_n, points[points.len() - 1].ln_n);
    let step = (last - first) / (MAX_POINTS - 1) as f64;
    let mut kept: Vec<Point> = Vec::new();
    for point in points {
        if point.ln_n >= first + step * kept.len() as f64 - 1e-9 {
            kept.push(*point);
        }
    }
    kept
}

//! Finds the samples to which a model fits best (section 4, the best-fitted coefficients).
//!
//! Every pair or triple is tried. Those with invalid coefficients cost no curve, and the curve with
//! the smallest error over all samples (equation 35) wins. The loops are those of the paper with
//! their bounds and outputs corrected: it lets the innermost index run one past the end, increments
//! each index twice, and outputs the second sample instead of the third. Newton's curves are
//! expensive: triples that cannot win are excluded before their curves are computed ([`sieve`]).

use std::num::NonZeroU32;

use super::curve::Curve;
use super::models::{ALL, Invalid, MAX_ORDER, Model};
use super::point::Point;

mod sieve;

use sieve::Sieve;

/// The best curve of one model.
#[derive(Clone, Debug, PartialEq)]
pub struct Best {
    /// The curve.
    pub curve: Curve,
    /// The numbers of streams whose samples it passes through.
    pub from: Vec<NonZeroU32>,
    /// The root of the mean squared distance to all samples (equation 35), in Mbit/s.
    pub error_mbps: f64,
}

/// The sum of squared distances of a curve, and the points that it passes through.
type Found = (f64, Curve, [Point; 3]);

/// Number of samples that are searched first.
const FIRST: usize = 8;

/// The best-fitted curve of `model`; `points` are in ascending order.
pub(crate) fn best(model: Model, points: &[Point]) -> Result<Best, Invalid> {
    let (needed, found) = (model.samples(), points.len());
    if found < needed {
        return Err(Invalid::TooFew { needed, found });
    }
    match model {
        Model::KolaVernon => {
            Err(Invalid::NotMeasured("the bottleneck's capacity and how long packets wait there"))
        }
        Model::Hacker => {
            // One stream, or the fewest measured, is congested least.
            let first = &points[..1];
            let curve = model.fit(first, 0)?;
            super::models::uncongested(&curve, points)?;
            Ok(Best {
                curve,
                from: vec![first[0].streams],
                error_mbps: (squares(&curve, points, f64::MAX) / found as f64).sqrt(),
            })
        }
        _ => search(model, points),
    }
}

fn search(model: Model, points: &[Point]) -> Result<Best, Invalid> {
    let order = spread(points.len());
    let spread: Vec<Point> = order.iter().map(|at| points[*at]).collect();
    let mut best: Option<Found> = None;
    let orders = if model == Model::LossRate { 2..=MAX_ORDER } else { 0..=0 };
    let mut tried = |from: &[Point], best: &mut Option<Found>| {
        for order in orders.clone() {
            consider(model, from, order, &spread, best);
        }
    };
    // A few samples far apart give a good curve early, so that most others are rejected after a few
    // points.
    let mut few = spread[..spread.len().min(FIRST)].to_vec();
    few.sort_by(|p, q| p.n.total_cmp(&q.n));
    every(model.samples(), &few, &mut |from| tried(from, &mut best));
    if model == Model::Newton {
        climb(points, &mut best, &mut tried);
        sift(points, &spread, &order, &mut best, &mut tried);
    } else {
        every(model.samples(), points, &mut |from| tried(from, &mut best));
    }
    let Some((error, curve, from)) = best else { return Err(reason(model, points)) };
    Ok(Best {
        curve,
        from: from[..model.samples()].iter().map(|p| p.streams).collect(),
        error_mbps: (error / points.len() as f64).sqrt(),
    })
}

/// Tries every triple that differs from the best in one sample, and repeats while it improves.
fn climb(
    points: &[Point],
    best: &mut Option<Found>,
    tried: &mut impl FnMut(&[Point], &mut Option<Found>),
) {
    let mut before = f64::INFINITY;
    while limit(best) < before {
        before = limit(best);
        for place in 0..3 {
            let Some((.., from)) = *best else { return };
            let others = [from[(place + 1) % 3], from[(place + 2) % 3]];
            for point in points.iter().filter(|p| !others.contains(p)) {
                let mut triple = [others[0], others[1], *point];
                triple.sort_by(|p, q| p.n.total_cmp(&q.n));
                tried(&triple, best);
            }
        }
    }
}

/// Tries every triple that the sieve does not exclude. `spread` has the points in this order.
fn sift(
    points: &[Point],
    spread: &[Point],
    order: &[usize],
    best: &mut Option<Found>,
    tried: &mut impl FnMut(&[Point], &mut Option<Found>),
) {
    let mut sieve = Sieve::new(spread);
    let mut at = vec![0; points.len()];
    order.iter().enumerate().for_each(|(place, index)| at[*index] = place);
    for (i, p) in points.iter().enumerate() {
        for (j, q) in points.iter().enumerate().skip(i + 1) {
            let Some(mut pair) = sieve.pair(at[i], at[j]) else { continue };
            for (k, r) in points.iter().enumerate().skip(j + 1) {
                if !sieve.rules_out(&mut pair, at[k], limit(best)) {
                    tried(&[*p, *q, *r], best);
                }
            }
        }
    }
}

/// Upper limit of the cost of a curve that can win.
fn limit(best: &Option<Found>) -> f64 {
    best.as_ref().map_or(f64::MAX, |(min, ..)| *min)
}

/// Computes the curve through `from`, and keeps it if it is valid and better than the best so far.
#[inline]
fn consider(model: Model, from: &[Point], order: u32, all: &[Point], best: &mut Option<Found>) {
    let Ok(curve) = model.fit(from, order) else { return };
    let limit = limit(best);
    let error = squares(&curve, all, limit);
    if error < limit {
        let mut kept = [from[0]; 3];
        kept[..from.len()].copy_from_slice(from);
        *best = Some((error, curve, kept));
    }
}

/// Calls `each` with every choice of one, two or three points, in order.
#[inline]
pub(crate) fn every(size: usize, points: &[Point], each: &mut impl FnMut(&[Point])) {
    for (i, p) in points.iter().enumerate() {
        if size == 1 {
            each(&[*p]);
            continue;
        }
        for (j, q) in points.iter().enumerate().skip(i + 1) {
            if size == 2 {
                each(&[*p, *q]);
                continue;
            }
            points[j + 1..].iter().for_each(|r| each(&[*p, *q, *r]));
        }
    }
}

/// Sum of squared distances (equations 34 and 35), or some value above `limit` once it exceeds
/// that. A point outside the domain counts as infinitely far.
#[inline]
fn squares(curve: &Curve, points: &[Point], limit: f64) -> f64 {
    let mut sum = 0.0;
    for point in points {
        let distance = point.mbps - curve.mbps(point);
        sum += distance * distance;
        if sum >= limit || sum.is_nan() {
            return f64::INFINITY;
        }
    }
    sum
}

/// The indices of `count` points, those far apart first: a bad curve is then rejected early.
fn spread(count: usize) -> Vec<usize> {
    let mut out = Vec::with_capacity(count);
    let mut step = count.next_power_of_two();
    let mut taken = vec![false; count];
    while step > 0 {
        for (at, taken) in taken.iter_mut().enumerate().step_by(step) {
            if !std::mem::replace(taken, true) {
                out.push(at);
            }
        }
        step /= 2;
    }
    out
}

/// The reason why no fit was valid, from the first, the middle and the last sample.
fn reason(model: Model, points: &[Point]) -> Invalid {
    let (first, last) = (points[0], points[points.len() - 1]);
    let middle = points[points.len() / 2];
    let typical: &[Point] = match model.samples() {
        1 => &[first],
        2 => &[first, last],
        _ => &[first, middle, last],
    };
    model.fit(typical, 2).err().unwrap_or(Invalid::NoValue)
}

/// Every model's best-fitted curve.
pub(crate) fn all(points: &[Point]) -> impl Iterator<Item = (Model, Result<Best, Invalid>)> + '_ {
    ALL.into_iter().map(|model| (model, best(model, points)))
}

#[cfg(test)]
mod tests;

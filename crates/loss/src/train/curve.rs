//! Fits sums of exponentials to complexity as a function of the loss rate, with the
//! Levenberg-Marquardt algorithm (the crate `levenberg-marquardt`, a port of MINPACK's).

use levenberg_marquardt::{LeastSquaresProblem, LevenbergMarquardt};
use nalgebra::storage::Owned;
use nalgebra::{DMatrix, DVector, Dyn};

use crate::paper::{Exponential, Exponentials};

/// Initial decays of the fits, in percent of loss: slow growth to fast saturation.
const STARTS: [f64; 7] = [-0.05, 0.0, 0.1, 0.5, 2.0, 8.0, 30.0];
/// Loss rates are scaled to percent, which keeps the parameters near 1.
const PERCENT: f64 = 100.0;

/// A fitted curve.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Curve {
    pub(super) mean: Exponentials,
    /// Root mean square of the residuals.
    pub(super) deviation: f64,
    /// Share of the variance that the curve explains.
    pub(super) r_squared: f64,
}

/// The sum of `terms` exponentials (one or two) nearest to points (loss rate, value); `None` for
/// fewer points than parameters.
pub(super) fn fit(points: &[(f64, f64)], terms: usize) -> Option<Curve> {
    if points.len() <= 2 * terms {
        return None;
    }
    let mut best: Option<(f64, DVector<f64>)> = None;
    for decays in starts(terms) {
        let parameters = amplitudes(points, &decays);
        let problem = Problem { points, parameters };
        let (problem, report) = LevenbergMarquardt::new().minimize(problem);
        let finite = problem.parameters.iter().all(|value| value.is_finite());
        if !report.termination.was_successful() || !finite {
            continue;
        }
        let objective = report.objective_function;
        if best.as_ref().is_none_or(|(min, _)| objective < *min) {
            best = Some((objective, problem.parameters));
        }
    }
    let (objective, parameters) = best?;
    let n = points.len() as f64;
    let mean = points.iter().map(|(_, y)| y).sum::<f64>() / n;
    let total: f64 = points.iter().map(|(_, y)| (y - mean).powi(2)).sum();
    let squares = 2.0 * objective;
    let of = |term: usize| Exponential {
        a: parameters[2 * term],
        k: parameters[2 * term + 1] * PERCENT,
    };
    Some(Curve {
        mean: Exponentials((0..terms).map(of).collect()),
        deviation: (squares / (n - 2.0 * terms as f64)).sqrt(),
        r_squared: if total > 0.0 { 1.0 - squares / total } else { 0.0 },
    })
}

fn starts(terms: usize) -> Vec<Vec<f64>> {
    if terms == 1 {
        return STARTS.iter().map(|k| vec![*k]).collect();
    }
    let pairs = STARTS.iter().enumerate();
    pairs.flat_map(|(i, slow)| STARTS[i + 1..].iter().map(|fast| vec![*slow, *fast])).collect()
}

/// For given decays the best amplitudes are a linear problem.
fn amplitudes(points: &[(f64, f64)], decays: &[f64]) -> DVector<f64> {
    let design = DMatrix::from_fn(points.len(), decays.len(), |row, term| {
        (-decays[term] * points[row].0 * PERCENT).exp()
    });
    let values = DVector::from_iterator(points.len(), points.iter().map(|(_, y)| *y));
    let solved = design.svd(true, true).solve(&values, 1e-9);
    let a = solved.unwrap_or_else(|_| DVector::zeros(decays.len()));
    DVector::from_fn(2 * decays.len(), |i, _| if i % 2 == 0 { a[i / 2] } else { decays[i / 2] })
}

/// Residuals of `sum of a exp(-k x)`; parameters are a, k, a, k.
struct Problem<'a> {
    points: &'a [(f64, f64)],
    parameters: DVector<f64>,
}

impl Problem<'_> {
    fn terms(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        (0..self.parameters.len() / 2).map(|i| (self.parameters[2 * i], self.parameters[2 * i + 1]))
    }
}

impl LeastSquaresProblem<f64, Dyn, Dyn> for Problem<'_> {
    type ResidualStorage = Owned<f64, Dyn>;
    type JacobianStorage = Owned<f64, Dyn, Dyn>;
    type ParameterStorage = Owned<f64, Dyn>;

    fn set_params(&mut self, parameters: &DVector<f64>) {
        self.parameters.copy_from(parameters);
    }

    fn params(&self) -> DVector<f64> {
        self.parameters.clone()
    }

    fn residuals(&self) -> Option<DVector<f64>> {
        let of = |(p, y): &(f64, f64)| {
            self.terms().map(|(a, k)| a * (-k * p * PERCENT).exp()).sum::<f64>() - y
        };
        Some(DVector::from_iterator(self.points.len(), self.points.iter().map(of)))
    }

    fn jacobian(&self) -> Option<DMatrix<f64>> {
        let mut jacobian = DMatrix::zeros(self.points.len(), self.parameters.len());
        for (row, (p, _)) in self.points.iter().enumerate() {
            let x = p * PERCENT;
            for (term, (a, k)) in self.terms().enumerate() {
                let power = (-k * x).exp();
                jacobian[(row, 2 * term)] = power;
                jacobian[(row, 2 * term + 1)] = -a * x * power;
            }
        }
        Some(jacobian)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::normal;

    #[test]
    fn what_was_put_in_comes_out() {
        let mut rng = packtrain_units::Rng::new(8);
        let truth = |p: f64| 0.55 * (6.0 * p).exp() - 0.3 * (-900.0 * p).exp();
        let points: Vec<_> = (0..2000)
            .map(|_| {
                let p = 0.05 * rng.unit();
                (p, truth(p) + 0.01 * normal(&mut rng))
            })
            .collect();
        let curve = fit(&points, 2).expect("fits");
        for p in [0.0005, 0.002, 0.01, 0.03, 0.05] {
            assert!((curve.mean.at(p) - truth(p)).abs() < 0.005, "{p}: {curve:?}");
        }
        assert!((curve.deviation - 0.01).abs() < 0.001 && curve.r_squared > 0.9, "{curve:?}");
        let one = fit(&points.iter().map(|(p, _)| (*p, 0.3)).collect::<Vec<_>>(), 1).expect("fits");
        assert!((one.mean.at(0.02) - 0.3).abs() < 1e-6, "{one:?}");
        assert!(fit(&points[..4], 2).is_none());
    }
}

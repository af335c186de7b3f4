//! Section 3.2: Dinda through samples 1 and 2, Dinda through 1 and 3, coefficients averaged.

use crate::streams::curve::Curve;
use crate::streams::point::Point;

use super::{Invalid, dinda};

/// The kind of average.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mean {
    /// (x + y) / 2.
    Arithmetic,
    /// sqrt(x y).
    Geometric,
    /// sqrt((x^2 + y^2) / 2).
    Quadratic,
}

impl Mean {
    #[inline]
    fn of(self, x: f64, y: f64) -> f64 {
        match self {
            Self::Arithmetic => f64::midpoint(x, y),
            Self::Geometric => (x * y).sqrt(),
            Self::Quadratic => f64::midpoint(x * x, y * y).sqrt(),
        }
    }
}

#[inline]
fn average(mean: Mean, one: (f64, f64), two: (f64, f64)) -> Curve {
    Curve::Averaged { mean, a: mean.of(one.0, two.0), b: mean.of(one.1, two.1) }
}

pub(super) fn raw(mean: Mean, p: &Point, q: &Point, r: &Point) -> Curve {
    average(mean, dinda::solve(p, q), dinda::solve(p, r))
}

/// Both fits must satisfy Dinda's conditions (section 5.1, iv).
#[inline]
pub(super) fn fit(mean: Mean, p: &Point, q: &Point, r: &Point) -> Result<Curve, Invalid> {
    let one = dinda::check(dinda::solve(p, q))?;
    let two = dinda::check(dinda::solve(p, r))?;
    Ok(average(mean, one, two))
}

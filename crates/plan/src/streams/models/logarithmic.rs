//! Section 3.3: p' = a e^(b n), from two samples.

use crate::streams::curve::Curve;
use crate::streams::point::Point;

use super::{Invalid, positive};

/// Equations 19 and 18. Equation 19 is correct only with both factors inside the logarithm: b =
/// ln[(Th2^2 / Th1^2)(n1^2 / n2^2)] / (n1 - n2).
#[inline]
fn solve(p: &Point, q: &Point) -> (f64, f64) {
    let b = (p.y / q.y).ln() / (p.n - q.n);
    (p.y * (-b * p.n).exp(), b)
}

pub(super) fn raw(p: &Point, q: &Point) -> Curve {
    let (a, b) = solve(p, q);
    Curve::Exponential { a, b }
}

/// The paper states no condition. The peak is at 2/b: b > 0, or there is none; and b < 2, or it is
/// below one stream.
#[inline]
pub(super) fn fit(p: &Point, q: &Point) -> Result<Curve, Invalid> {
    let (a, b) = solve(p, q);
    positive('b', b)?;
    if b >= 2.0 {
        return Err(Invalid::PeakBelowOne);
    }
    positive('a', a)?;
    Ok(Curve::Exponential { a, b })
}

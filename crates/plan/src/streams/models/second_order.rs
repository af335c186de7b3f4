//! Section 3.5: p' = a n^2 + b n + c, from three samples.

use crate::streams::curve::Curve;
use crate::streams::point::Point;

use super::{Invalid, demand, positive};

/// Equations 31 to 33. Equation 31 is printed with a second division by n2 - n1, and equations 28
/// to 30 with n instead of n1, n2, n3; only the corrected curve passes through the samples.
#[inline]
fn solve(p: &Point, q: &Point, r: &Point) -> (f64, f64, f64) {
    let first = (q.y - p.y) / (q.n - p.n);
    let a = ((r.y - p.y) / (r.n - p.n) - first) / (r.n - q.n);
    let b = first - (p.n + q.n) * a;
    (a, b, p.y - a * p.n * p.n - b * p.n)
}

pub(super) fn raw(p: &Point, q: &Point, r: &Point) -> Curve {
    let (a, b, c) = solve(p, q, r);
    Curve::SecondOrder { a, b, c }
}

/// a' > 0, b' < 0, c' > 0, 2c' + b' > 0 (section 5.1, iii; section 5.4 ends with "> 1", which has
/// no unit and does not follow), and b'^2 < 4 a' c', which the paper omits: without it p' is not
/// positive everywhere.
#[inline]
pub(super) fn fit(p: &Point, q: &Point, r: &Point) -> Result<Curve, Invalid> {
    let (a, b, c) = solve(p, q, r);
    positive('a', a)?;
    demand(b < 0.0, Invalid::NotNegative { name: 'b', value: b })?;
    positive('c', c)?;
    demand(2.0 * c + b > 0.0, Invalid::PeakBelowOne)?;
    demand(b * b < 4.0 * a * c, Invalid::NoValue)?;
    Ok(Curve::SecondOrder { a, b, c })
}

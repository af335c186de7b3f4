//! Dinda et al.: p' = a n^2 + b, from two samples (equations 3 to 6).

use crate::streams::curve::Curve;
use crate::streams::point::Point;

use super::{Invalid, positive};

/// a' and b' from equations 5 and 6.
#[inline]
pub(super) fn solve(p: &Point, q: &Point) -> (f64, f64) {
    let a = (q.y - p.y) / (q.n * q.n - p.n * p.n);
    (a, p.y - a * p.n * p.n)
}

pub(super) fn raw(p: &Point, q: &Point) -> Curve {
    let (a, b) = solve(p, q);
    Curve::Dinda { a, b }
}

/// a' > 0 and b' > 0 (section 5.2).
#[inline]
pub(super) fn check((a, b): (f64, f64)) -> Result<(f64, f64), Invalid> {
    Ok((positive('a', a)?, positive('b', b)?))
}

#[inline]
pub(super) fn fit(p: &Point, q: &Point) -> Result<Curve, Invalid> {
    let (a, b) = check(solve(p, q))?;
    Ok(Curve::Dinda { a, b })
}

/// Number of streams that reach the share `f` of the limit 1 / sqrt(a') (equation 36), as a real
/// number: from f / sqrt(a) = n / sqrt(a n^2 + b).
pub fn streams_for_share_of_limit(a: f64, b: f64, f: f64) -> f64 {
    f * (b / (a * (1.0 - f * f))).sqrt()
}

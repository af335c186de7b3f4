//! Altman et al.: one stream of n backs off at a time (equation 7).

use crate::streams::curve::Curve;
use crate::streams::point::Point;

/// B of a TCP that halves its window.
pub const HALVING: f64 = 0.5;

/// The curve with the capacity that this sample implies.
pub(super) fn raw(p: &Point) -> Curve {
    let unit = Curve::Filling { capacity: 1.0, beta: HALVING };
    Curve::Filling { capacity: p.mbps / unit.mbps(p), beta: HALVING }
}

/// Number of streams that use the share `u` of the capacity, as a real number: n = u (1 - B) / ((1
/// - u)(1 + B)).
pub fn streams_for_share(u: f64, beta: f64) -> f64 {
    u * (1.0 - beta) / ((1.0 - u) * (1.0 + beta))
}

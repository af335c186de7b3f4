//! Section 3.4: p' = a n^c + b, with the order c from Newton's iteration.

use crate::streams::curve::Curve;
use crate::streams::point::Point;

use super::{Invalid, demand, positive};

/// Newton's iteration ends after a step that changes c by less than this share: convergence is
/// quadratic and g nearly linear, so the remaining error is below its square.
const PRECISION: f64 = 1e-5;

/// Rounding error of an order of 2.
const ROUNDING: f64 = 1e-6;

/// Maximum steps; from its starting point three to six are enough.
const MAX_STEPS: u32 = 60;

/// Equation 22 in logarithms, with the numbers of streams divided by n1 to avoid overflow: g(c) =
/// ln((r3^c - 1) / (r2^c - 1)) - ln K, r = n / n1. It increases with c. The zero at c = 0 that the
/// paper's f has (0/0) is removed: there the ratio is ln r3 / ln r2.
struct Order {
    /// ln r2 and ln r3.
    l2: f64,
    l3: f64,
    ln_k: f64,
}

impl Order {
    /// g and its derivative.
    #[inline]
    fn g(&self, c: f64) -> (f64, f64) {
        if c.abs() < 1e-9 {
            return ((self.l3 / self.l2).ln() - self.ln_k, 0.5 * (self.l3 - self.l2));
        }
        if c < 0.0 {
            let (e2, e3) = ((c * self.l2).exp(), (c * self.l3).exp());
            let value = ((1.0 - e3) / (1.0 - e2)).ln() - self.ln_k;
            return (value, self.l2 * e2 / (1.0 - e2) - self.l3 * e3 / (1.0 - e3));
        }
        let (e2, e3) = ((-c * self.l2).exp(), (-c * self.l3).exp());
        let value = c * (self.l3 - self.l2) + ((1.0 - e3) / (1.0 - e2)).ln() - self.ln_k;
        (value, self.l3 / (1.0 - e3) - self.l2 / (1.0 - e2))
    }

    /// The zero of g between `low` and `high`, by equation 25 restricted to the bracket.
    #[inline]
    fn solve(&self, mut low: f64, mut high: f64) -> f64 {
        let mut c = high;
        for _ in 0..MAX_STEPS {
            let (value, slope) = self.g(c);
            if value > 0.0 {
                high = c;
            } else {
                low = c;
            }
            let step = c - value / slope;
            let next = if step > low && step < high { step } else { f64::midpoint(low, high) };
            if (next - c).abs() <= PRECISION * c.abs().max(1.0) {
                return next;
            }
            c = next;
        }
        c
    }
}

/// Equations 23 and 24.
#[inline]
fn rest(p: &Point, q: &Point, c: f64) -> (f64, f64) {
    let first = (c * p.ln_n).exp();
    let a = (q.y - p.y) / ((c * q.ln_n).exp() - first);
    (a, p.y - a * first)
}

/// Any order, without conditions; `None` where equation 22 has no root (K not above 1).
pub(super) fn raw(p: &Point, q: &Point, r: &Point) -> Option<Curve> {
    let k = (r.y - p.y) / (q.y - p.y);
    if !(k > 1.0 && k.is_finite()) {
        return None;
    }
    let order = Order { l2: q.ln_n - p.ln_n, l3: r.ln_n - p.ln_n, ln_k: k.ln() };
    let high = (order.ln_k / (order.l3 - order.l2)).max(1.0);
    let mut low = -1.0;
    while order.g(low).0 > 0.0 && low > -1e3 {
        low *= 2.0;
    }
    let c = order.solve(low, high);
    let (a, b) = rest(p, q, c);
    Some(Curve::Power { a, b, c })
}

/// a' > 0, b' > 0, c' > 2 and a peak above one stream (section 5.3).
///
/// Conditions are tested before the iteration where possible: c > 2 iff K > (n3^2 - n1^2) / (n2^2 -
/// n1^2), a > 0 iff y2 > y1, b > 0 iff r2^c > y2 / y1. The paper allows c = 2, which is Dinda's
/// model and has no peak.
#[inline]
pub(super) fn fit(p: &Point, q: &Point, r: &Point) -> Result<Curve, Invalid> {
    let rise = q.y - p.y;
    demand(rise > 0.0, Invalid::NotPositive { name: 'a', value: rise })?;
    let k = (r.y - p.y) / rise;
    let square = p.n * p.n;
    demand(k > (r.n * r.n - square) / (q.n * q.n - square) && k.is_finite(), Invalid::OrderTooLow)?;
    let order = Order { l2: q.ln_n - p.ln_n, l3: r.ln_n - p.ln_n, ln_k: k.ln() };
    // Below this order b' is not positive. Where throughput does not fall from the first to the
    // second sample, that order is below 2, which was tested.
    let low = if q.mbps >= p.mbps { 2.0 } else { ((q.y / p.y).ln() / order.l2).max(2.0) };
    if low > 2.0 && order.g(low).0 >= 0.0 {
        return Err(Invalid::NotPositive { name: 'b', value: 0.0 });
    }
    // 1 - e3 > 1 - e2, so that c (l3 - l2) < ln K.
    let c = order.solve(low, order.ln_k / (order.l3 - order.l2));
    let (a, b) = rest(p, q, c);
    positive('a', a)?;
    positive('b', b)?;
    demand(c > 2.0 + ROUNDING, Invalid::OrderTooLow)?;
    demand(2.0 * b > a * (c - 2.0), Invalid::PeakBelowOne)?;
    Ok(Curve::Power { a, b, c })
}

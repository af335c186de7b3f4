//! Section 3.1: a curve for the loss rate, inserted into Hacker's formula.

use packtrain_units::DataRate;

use crate::streams::curve::Curve;
use crate::streams::point::{Point, from_mbps};

use super::{Invalid, Path, demand, positive};

/// The minimum order x of the root ("ranging x between 2 and a greater number").
pub(super) const MIN_ORDER: u32 = 2;

/// The maximum order: beyond it n^(1/x) hardly differs from ln n + 1.
pub(crate) const MAX_ORDER: u32 = 12;

/// A loss rate measured with a number of streams.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossSample {
    /// Number of streams.
    pub streams: u32,
    /// Lost packets divided by all packets.
    pub rate: f64,
}

/// Th'_n = a n^(1/x) + b (equation 12), from measured loss rates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossCurve {
    /// a'.
    pub a: f64,
    /// b'.
    pub b: f64,
    /// x.
    pub x: u32,
}

impl LossCurve {
    /// Equations 14 and 15.
    ///
    /// # Errors
    /// a' is not positive: losses do not grow as the model assumes.
    pub fn new(one: LossSample, two: LossSample, x: u32) -> Result<Self, Invalid> {
        let root = |n: u32| f64::from(n).powf(1.0 / f64::from(x));
        let square = |s: LossSample| f64::from(s.streams) * f64::from(s.streams) / s.rate;
        let (low, high) = (square(one), square(two));
        let a = positive('a', (high - low) / (root(two.streams) - root(one.streams)))?;
        let b = low - a * root(one.streams);
        Ok(Self { a, b, x })
    }

    /// p_n = n^2 / Th'_n (equation 13).
    pub fn loss(&self, streams: u32) -> f64 {
        let n = f64::from(streams);
        n * n / (self.a * n.powf(1.0 / f64::from(self.x)) + self.b)
    }

    /// The bound of equation 2 with that loss rate.
    pub fn throughput(&self, path: &Path, streams: u32) -> DataRate {
        from_mbps(path.mbps() * f64::from(streams) / self.loss(streams).sqrt())
    }
}

/// The same from throughputs alone: by equation 11, n^2 / p_n equals Th_n^2 up to the constant (RTT
/// / (MSS c))^2, which cancels from a' and b' and returns with equation 2.
#[inline]
pub(super) fn raw(p: &Point, q: &Point, x: u32) -> Curve {
    let inverse = 1.0 / f64::from(x);
    let (low, high) = ((p.ln_n * inverse).exp(), (q.ln_n * inverse).exp());
    let a = (q.mbps * q.mbps - p.mbps * p.mbps) / (high - low);
    Curve::Loss { a, b: p.mbps * p.mbps - a * low, x }
}

/// The same; a' must be positive, and the curve must have a value from one stream on.
#[inline]
pub(super) fn fit(p: &Point, q: &Point, x: u32) -> Result<Curve, Invalid> {
    let curve = raw(p, q, x);
    if let Curve::Loss { a, b, .. } = curve {
        positive('a', a)?;
        demand(a + b > 0.0, Invalid::NoValue)?;
    }
    Ok(curve)
}

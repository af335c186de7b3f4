//! Hacker et al.: n streams have n times the throughput of one, without congestion.

use packtrain_units::{ByteCount, DataRate, Duration};

use crate::streams::curve::Curve;
use crate::streams::point::Point;

use super::Invalid;

/// Throughput within this share of proportional growth counts as uncongested: figure 1 of the paper
/// calls the first three streams "more or less" linear at about this distance.
const TOLERANCE: f64 = 0.1;

/// The parameters of a path in equations 1 and 2.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Path {
    /// Bytes of one segment.
    pub mss: ByteCount,
    /// The round trip.
    pub rtt: Duration,
    /// c: sqrt(3/2) for a TCP that halves its window and acknowledges each segment.
    pub constant: f64,
}

impl Path {
    /// MSS c / RTT in Mbit/s.
    pub(super) fn mbps(&self) -> f64 {
        self.mss.get() as f64 * 8.0 / 1e6 * self.constant / self.rtt.as_secs_f64()
    }

    /// The upper bound of the throughput of `streams` streams at loss rate `p` (equation 2;
    /// equation 1 with one stream).
    pub fn bound(&self, streams: u32, p: f64) -> DataRate {
        crate::streams::point::from_mbps(self.mbps() * f64::from(streams) / p.sqrt())
    }
}

/// Equation 2 with constant p and RTT: n times the throughput per stream of this sample.
pub(super) fn raw(p: &Point) -> Curve {
    Curve::Linear { t: p.mbps / p.n }
}

/// Checks that all points have proportional growth, which is the model's condition.
pub(crate) fn uncongested(curve: &Curve, points: &[Point]) -> Result<(), Invalid> {
    let near = |p: &Point| (p.mbps / curve.mbps(p) - 1.0).abs() <= TOLERANCE;
    if points.iter().all(near) { Ok(()) } else { Err(Invalid::Congested) }
}

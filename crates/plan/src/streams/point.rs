//! Samples in the form that the formulas use.

use std::num::NonZeroU32;

use packtrain_units::DataRate;

use super::Sample;

/// A number of streams with the median of its measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    /// Number of streams.
    pub(crate) streams: NonZeroU32,
    /// The same as a real number.
    pub(crate) n: f64,
    /// Its natural logarithm.
    pub(crate) ln_n: f64,
    /// Throughput in Mbit/s, above zero.
    pub(crate) mbps: f64,
    /// n^2 / Th^2.
    pub(crate) y: f64,
}

impl Point {
    pub(crate) fn new(streams: NonZeroU32, mbps: f64) -> Self {
        let n = f64::from(streams.get());
        Self { streams, n, ln_n: n.ln(), mbps, y: (n / mbps) * (n / mbps) }
    }
}

/// Samples in ascending order of streams, each number once, with the median of its throughputs;
/// numbers with a median of zero are returned separately.
pub(crate) fn points(samples: &[Sample]) -> (Vec<Point>, Vec<NonZeroU32>) {
    let mut sorted = samples.to_vec();
    sorted.sort_by_key(|sample| (sample.streams, sample.throughput));
    let (mut points, mut stalled) = (Vec::new(), Vec::new());
    for group in sorted.chunk_by(|one, next| one.streams == next.streams) {
        let (streams, mbps) = (group[0].streams, median(group));
        if mbps > 0.0 {
            points.push(Point::new(streams, mbps));
        } else {
            stalled.push(streams);
        }
    }
    (points, stalled)
}

/// Median of a group in ascending order, in Mbit/s.
fn median(group: &[Sample]) -> f64 {
    let (low, high) = (group[(group.len() - 1) / 2], group[group.len() / 2]);
    f64::midpoint(to_mbps(low.throughput), to_mbps(high.throughput))
}

/// In Mbit/s.
pub(crate) fn to_mbps(rate: DataRate) -> f64 {
    rate.as_bps() as f64 / 1e6
}

/// From Mbit/s; negative values and NaN become zero, too large ones the maximum rate.
pub(crate) fn from_mbps(mbps: f64) -> DataRate {
    DataRate::from_bps((mbps * 1e6).round() as u64)
}

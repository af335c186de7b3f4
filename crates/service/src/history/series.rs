//! Throughput over time with a bounded number of points.

use packtrain_history::Point;
use packtrain_units::{ByteCount, DataRate, Duration};

/// Maximum number of points. Above it, pairs of points are merged.
const MAX_POINTS: usize = 128;
/// Initial length of a point.
const STEP: Duration = Duration::from_millis(250);

/// Bytes over time.
#[derive(Clone, Debug)]
pub struct Series {
    points: Vec<Point>,
    step: Duration,
    at: Duration,
    bytes: ByteCount,
}

impl Default for Series {
    fn default() -> Self {
        Self { points: Vec::new(), step: STEP, at: Duration::ZERO, bytes: ByteCount::ZERO }
    }
}

impl Series {
    /// Adds a total of `bytes` at time `at`.
    pub fn note(&mut self, at: Duration, bytes: ByteCount) {
        if at.saturating_sub(self.at) >= self.step {
            self.push(at, bytes);
        }
    }

    /// Ends the series with a total of `bytes`, and returns its points.
    pub fn end(&mut self, at: Duration, bytes: ByteCount) -> Vec<Point> {
        // A last point of a few milliseconds has no meaning.
        if at.saturating_sub(self.at) >= self.step / 4 || self.points.is_empty() {
            self.push(at, bytes);
        }
        self.points.clone()
    }

    /// The points so far.
    pub fn points(&self) -> Vec<Point> {
        self.points.clone()
    }

    fn push(&mut self, at: Duration, bytes: ByteCount) {
        let span = at.saturating_sub(self.at);
        let moved = bytes.saturating_sub(self.bytes);
        if span.is_zero() {
            return;
        }
        let rate = match moved {
            ByteCount::ZERO => DataRate::ZERO,
            moved => DataRate::from_bytes_over(moved, span),
        };
        self.points.push(Point { at, rate });
        (self.at, self.bytes) = (at, self.bytes.max(bytes));
        if self.points.len() > MAX_POINTS {
            self.halve();
        }
    }

    fn halve(&mut self) {
        let mut before = Duration::ZERO;
        let pairs = self.points.chunks(2).map(|pair| {
            let end = pair.last().map_or(before, |point| point.at);
            let mut bits = 0.0;
            let mut from = before;
            for point in pair {
                bits += point.rate.as_bps() as f64 * (point.at - from).as_secs_f64();
                from = point.at;
            }
            let span = (end - before).as_secs_f64();
            before = end;
            Point { at: end, rate: DataRate::from_bps((bits / span.max(1e-9)) as u64) }
        });
        self.points = pairs.collect();
        self.step = self.step * 2;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_points_together_are_what_moved(
            steps in proptest::collection::vec((1u64..2_000, 0u64..1 << 24), 1..600),
        ) {
            let mut series = Series::default();
            let (mut at, mut bytes) = (Duration::ZERO, ByteCount::ZERO);
            for (ms, more) in steps {
                at += Duration::from_millis(ms);
                bytes = ByteCount(bytes.get() + more);
                series.note(at, bytes);
            }
            let points = series.end(at, bytes);
            prop_assert!(points.len() <= MAX_POINTS);
            prop_assert!(points.windows(2).all(|pair| pair[0].at < pair[1].at));
            let mut before = Duration::ZERO;
            let mut sum = 0.0;
            for point in &points {
                sum += point.rate.as_bps() as f64 / 8.0 * (point.at - before).as_secs_f64();
                before = point.at;
            }
            // A last interval that is too short for a point may be missing.
            let noted = series.bytes.get() as f64;
            prop_assert!((sum - noted).abs() <= noted * 1e-3 + 200.0, "{sum} of {noted}");
        }
    }
}

//! Baselines for every model: the largest sample, and interpolation between samples.

use super::point::Point;

/// The sample with the greatest throughput; among equals the one with the fewest streams.
pub(crate) fn argmax(points: &[Point]) -> Option<&Point> {
    points.iter().rev().max_by(|p, q| p.mbps.total_cmp(&q.mbps))
}

/// Linear interpolation in the logarithms of both axes; before the first and beyond the last sample
/// it extrapolates from the nearest two. In Mbit/s.
pub(crate) fn log_log(points: &[Point], at: &Point) -> Option<f64> {
    let (first, rest) = points.split_first()?;
    let last = points.len() - 1;
    if rest.is_empty() {
        return Some(first.mbps);
    }
    let above = points.partition_point(|p| p.n < at.n).clamp(1, last);
    let (p, q) = (&points[above - 1], &points[above]);
    let slope = (q.mbps / p.mbps).ln() / (q.ln_n - p.ln_n);
    Some(p.mbps * (slope * (at.ln_n - p.ln_n)).exp())
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    fn point(n: u32, mbps: f64) -> Point {
        Point::new(NonZeroU32::new(n).expect("not zero"), mbps)
    }

    #[test]
    fn lines_are_straight_in_logarithms() {
        let points = [point(1, 100.0), point(4, 400.0), point(16, 200.0)];
        let at = |n| log_log(&points, &point(n, 1.0)).expect("points");
        for (n, expected) in [(1, 100.0), (2, 200.0), (4, 400.0), (8, 282.84), (16, 200.0)] {
            assert!((at(n) / expected - 1.0).abs() < 1e-4, "{n}: {}", at(n));
        }
        assert!((at(64) / 100.0 - 1.0).abs() < 1e-9, "the last line goes on: {}", at(64));
        assert_eq!(log_log(&points[..1], &point(9, 1.0)), Some(100.0));
        assert_eq!(log_log(&[], &point(9, 1.0)), None);
    }

    #[test]
    fn of_equal_samples_the_one_with_fewer_streams_is_taken() {
        let points = [point(1, 5.0), point(2, 9.0), point(3, 9.0)];
        assert_eq!(argmax(&points).map(|p| p.streams.get()), Some(2));
        assert_eq!(argmax(&[]), None);
    }
}

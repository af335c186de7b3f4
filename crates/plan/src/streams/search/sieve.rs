//! Excludes triples that cannot give Newton's model a better curve than the best so far, without
//! solving for the order.
//!
//! All curves a n^c + b through two samples p and q form one family: p'(n) = y1 + (y2 - y1) (n^c -
//! n1^c) / (n2^c - n1^c) (equations 23 and 24 inserted into 21). At each n this is monotone in c.
//! The curves at the two ends of an interval of orders therefore enclose all curves between, at
//! every sample, and the smaller distance of both from a sample is a lower bound of the cost there
//! (equation 35). A third sample only determines in which interval the order is. The lower bound of
//! an interval is computed once per pair, from a table of powers, and applies to all third samples
//! that lead to it. Nothing is approximated: what is not excluded is fitted.

use crate::streams::point::Point;

/// Number of interval ends, a power of two; beyond the last nothing is excluded.
const ORDERS: usize = 64;
/// Ratio of successive interval ends, from 2 on: up to 79.
const RATIO: f64 = 1.06;
/// Number of parts of an interval that is not excluded, a power of two.
const PARTS: usize = 8;
/// Number of points processed together.
const LANES: usize = 4;
/// Relative error of the order that a fit finds, up to a few 1e-5, as a share of a part of an
/// interval.
const ORDER_ERROR: f64 = 1e-2;
/// Maximum rounding error of p'.
const ROUNDING: f64 = 1e-9;
/// Differences of powers below this have lost digits.
const MIN_POWER_DIFFERENCE: f64 = 1e-280;
/// Above 1 the series is valid up to this distance; a larger distance counts as this one.
const MAX_SERIES_DISTANCE: f64 = 0.6;
/// Factor for the rounding error of a sum of squares.
const SUM_ROUNDING: f64 = 1.0 - 1e-9;

/// The samples with their powers.
pub(super) struct Sieve<'a> {
    /// Points far apart first: a bad curve is then rejected early.
    points: &'a [Point],
    /// ln (n / largest n) of each point, padded to whole lanes.
    logs: Vec<f64>,
    /// 1 / y and half the throughput of each point; zero in the padding.
    inverse: Vec<f64>,
    half: Vec<f64>,
    /// (n / largest n)^c of each order and point.
    powers: Vec<f64>,
    /// The same for the orders within each interval, computed on demand.
    within: Vec<Vec<f64>>,
}

/// The curves through two of the samples.
pub(super) struct Pair {
    first: usize,
    second: usize,
    rise: f64,
    /// Minimum cost of the curves in each interval; negative while unknown.
    costs: [f64; ORDERS - 1],
}

/// Part n of an interval.
type At = (usize, usize);

impl<'a> Sieve<'a> {
    pub(super) fn new(points: &'a [Point]) -> Self {
        let last = points.iter().map(|p| p.ln_n).fold(0.0, f64::max);
        let width = points.len().next_multiple_of(LANES);
        let all = |of: &dyn Fn(&Point) -> f64| {
            let mut values: Vec<_> = points.iter().map(of).collect();
            values.resize(width, 0.0);
            values
        };
        let mut sieve = Self {
            points,
            logs: all(&|p| p.ln_n - last),
            inverse: all(&|p| 1.0 / p.y),
            half: all(&|p| 0.5 * p.mbps),
            powers: Vec::with_capacity(ORDERS * width),
            within: vec![Vec::new(); ORDERS - 1],
        };
        for order in 0..ORDERS {
            let order = order_of((order, 0));
            sieve.powers.extend(sieve.logs.iter().map(|log| (order * log).exp()));
        }
        sieve
    }

    /// The powers of all points at the beginning of this part.
    #[inline]
    fn row(&self, (interval, part): At) -> &[f64] {
        let width = self.logs.len();
        if part == 0 || part == PARTS {
            &self.powers[(interval + part / PARTS) * width..][..width]
        } else {
            &self.within[interval][(part - 1) * width..][..width]
        }
    }

    /// The curves through the points of these indices, the one with fewer streams first; none if p'
    /// falls, because no triple that begins with them is valid then.
    pub(super) fn pair(&self, first: usize, second: usize) -> Option<Pair> {
        let rise = self.points[second].y - self.points[first].y;
        let costs = [-1.0; ORDERS - 1];
        (rise > 0.0).then_some(Pair { first, second, rise, costs })
    }

    /// Whether the triple with this third point certainly costs `limit` or more, or is invalid.
    #[inline]
    pub(super) fn rules_out(&mut self, pair: &mut Pair, third: usize, limit: f64) -> bool {
        let rise = self.points[third].y - self.points[pair.first].y;
        if !self.reaches(pair, (0, 0), third, rise * (1.0 + ROUNDING)) {
            // The order would be below 2.
            return true;
        }
        // The last order whose curve is not above the third point.
        let (mut low, mut step) = (0, ORDERS / 2);
        while step > 0 {
            // Branchless, because the branch would be unpredictable.
            low += step * usize::from(self.reaches(pair, (low + step, 0), third, rise));
            step /= 2;
        }
        if low == ORDERS - 1 {
            return false;
        }
        if pair.costs[low] < 0.0 {
            pair.costs[low] = self.cost(pair, (low, 0), (low, PARTS), limit);
        }
        pair.costs[low] * SUM_ROUNDING >= limit || self.part_rules_out(pair, low, third, limit)
    }

    /// The same for the part of the interval that contains the order.
    fn part_rules_out(&mut self, pair: &Pair, interval: usize, third: usize, limit: f64) -> bool {
        if self.within[interval].is_empty() {
            let orders = (1..PARTS).map(|part| order_of((interval, part)));
            let logs = &self.logs;
            self.within[interval] =
                orders.flat_map(|c| logs.iter().map(move |log| (c * log).exp())).collect();
        }
        let rise = self.points[third].y - self.points[pair.first].y;
        let (mut low, mut step) = (0, PARTS / 2);
        while step > 0 {
            low += step * usize::from(self.reaches(pair, (interval, low + step), third, rise));
            step /= 2;
        }
        self.cost(pair, (interval, low), (interval, low + 1), limit) * SUM_ROUNDING >= limit
    }

    /// Whether a third point that is `rise` above the first one is not below the curve of this
    /// order: equation 22 without its division.
    #[inline]
    fn reaches(&self, pair: &Pair, order: At, third: usize, rise: f64) -> bool {
        let powers = self.row(order);
        let first = powers[pair.first];
        pair.rise * (powers[third] - first) <= rise * (powers[pair.second] - first)
    }

    /// a' of equation 23 and b' of equation 24, for these powers; none where digits were lost.
    fn coefficients(&self, pair: &Pair, powers: &[f64]) -> Option<(f64, f64)> {
        let between = powers[pair.second] - powers[pair.first];
        let a = pair.rise / between;
        (between > MIN_POWER_DIFFERENCE)
            .then(|| (a, self.points[pair.first].y - a * powers[pair.first]))
    }

    /// The minimum sum of squared distances between these two orders, or infinity once it reaches
    /// `limit`.
    ///
    /// With x = p' / y, the curve's throughput is the sample's divided by the root of x, and
    /// |x^(-1/2) - 1| is at least |1 - x| / 2 + 3/8 (1 - x)^2 with the sign of 1 - x, by Taylor's
    /// series: its terms are all positive below 1, and alternate above.
    fn cost(&self, pair: &Pair, from: At, to: At, limit: f64) -> f64 {
        let (from, to) = (self.row(from), self.row(to));
        let (Some(one), Some(other)) = (self.coefficients(pair, from), self.coefficients(pair, to))
        else {
            return 0.0;
        };
        // The rounding error of terms that cancel each other.
        let base = self.points[pair.first].y + one.0 * from[pair.first] + other.0 * to[pair.first];
        let mut sum = 0.0;
        let scales = self.inverse.chunks_exact(LANES).zip(self.half.chunks_exact(LANES));
        let rows = from.chunks_exact(LANES).zip(to.chunks_exact(LANES));
        for ((from, to), (inverse, half)) in rows.zip(scales) {
            let mut squares = [0.0; LANES];
            for lane in 0..LANES {
                let p = one.0 * from[lane] + one.1;
                let q = other.0 * to[lane] + other.1;
                let (low, high) = if p < q { (p, q) } else { (q, p) };
                let stray = (high - low) * ORDER_ERROR + (base + high.abs()) * ROUNDING;
                let below = (1.0 - (high + stray) * inverse[lane]).max(0.0);
                let above = ((low - stray) * inverse[lane] - 1.0).clamp(0.0, MAX_SERIES_DISTANCE);
                let distance =
                    half[lane] * (below + above + 0.75 * (below * below - above * above));
                squares[lane] = distance * distance;
            }
            sum += squares[0] + squares[1] + (squares[2] + squares[3]);
            if sum * SUM_ROUNDING >= limit {
                return f64::INFINITY;
            }
        }
        sum
    }
}

fn order_of((interval, part): At) -> f64 {
    2.0 * RATIO.powf(interval as f64 + part as f64 / PARTS as f64)
}

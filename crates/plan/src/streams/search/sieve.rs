//! Which triples cannot give Newton's model a better curve than the best so far, told without
//! solving for the order.
//!
//! All curves a n^c + b through two samples p and q are one family: p'(n) = y1 + (y2 - y1)
//! (n^c - n1^c) / (n2^c - n1^c) (equations 23 and 24 put into 21), and at each n that rises or
//! falls with c throughout. So the curves at the two ends of an interval of orders enclose all
//! between, at every sample, and how far both are from a sample is the least that any of these
//! curves costs there (equation 35). A third sample only says in which interval the order is. The
//! least cost of an interval is computed once for a pair, from a table of powers, and answers for all
//! third samples that lead there. Nothing is approximated: what is not ruled out is fitted.

use crate::streams::point::Point;

/// Ends of intervals of orders, a power of two; beyond the last nothing is ruled out.
const ORDERS: usize = 64;
/// Each is the one before times this, from 2 on: up to 79.
const RATIO: f64 = 1.06;
/// An interval that is not ruled out has so many parts, a power of two.
const PARTS: usize = 8;
/// Points are looked at so many at a time.
const LANES: usize = 4;
/// The order that a fit finds is off by up to a few 1e-5 of itself, hence by up to this share of a
/// part of an interval.
const STRAY: f64 = 1e-2;
/// What rounding may do to p'.
const ROUNDING: f64 = 1e-9;
/// Differences of powers below this have lost digits.
const TINY: f64 = 1e-280;
/// Above 1 the series is good for so much; what is farther counts as this far.
const FAR: f64 = 0.6;
/// What rounding may do to a sum of squares.
const SUM: f64 = 1.0 - 1e-9;

/// The samples with their powers.
pub(super) struct Sieve<'a> {
    /// Those far from each other first: a bad curve shows itself soon.
    points: &'a [Point],
    /// ln (n / largest n) of each point, and of as many more as fill the last lanes.
    logs: Vec<f64>,
    /// 1 / y and half the throughput of each point; zero beyond them.
    inverse: Vec<f64>,
    half: Vec<f64>,
    /// (n / largest n)^c of each order and point.
    powers: Vec<f64>,
    /// The same of the orders within each interval, once it is wanted.
    within: Vec<Vec<f64>>,
}

/// The curves through two of the samples.
pub(super) struct Pair {
    first: usize,
    second: usize,
    rise: f64,
    /// Least cost of the curves in each interval; not known where negative.
    costs: [f64; ORDERS - 1],
}

/// The n-th part of an interval.
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

    /// Curves through the points of these indices, the one with fewer streams first; none if p' falls,
    /// which no triple that begins with them may have.
    pub(super) fn pair(&self, first: usize, second: usize) -> Option<Pair> {
        let rise = self.points[second].y - self.points[first].y;
        let costs = [-1.0; ORDERS - 1];
        (rise > 0.0).then_some(Pair { first, second, rise, costs })
    }

    /// Whether the triple with this third point certainly costs `limit` or more, or is not valid.
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
            // No branch: it could not be foreseen.
            low += step * usize::from(self.reaches(pair, (low + step, 0), third, rise));
            step /= 2;
        }
        if low == ORDERS - 1 {
            return false;
        }
        if pair.costs[low] < 0.0 {
            pair.costs[low] = self.cost(pair, (low, 0), (low, PARTS), limit);
        }
        pair.costs[low] * SUM >= limit || self.part_rules_out(pair, low, third, limit)
    }

    /// The same with the part of the interval that the order is in.
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
        self.cost(pair, (interval, low), (interval, low + 1), limit) * SUM >= limit
    }

    /// Whether a third point that is `rise` above the first one is not below the curve of this
    /// order: equation 22 without its division.
    #[inline]
    fn reaches(&self, pair: &Pair, order: At, third: usize, rise: f64) -> bool {
        let powers = self.row(order);
        let first = powers[pair.first];
        pair.rise * (powers[third] - first) <= rise * (powers[pair.second] - first)
    }

    /// a' of equation 23 and b' of equation 24, for these powers; none where they lost digits.
    fn coefficients(&self, pair: &Pair, powers: &[f64]) -> Option<(f64, f64)> {
        let between = powers[pair.second] - powers[pair.first];
        let a = pair.rise / between;
        (between > TINY).then(|| (a, self.points[pair.first].y - a * powers[pair.first]))
    }

    /// The least sum of squared distances between these two orders, or infinity as soon as it is
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
        // What rounding leaves of terms that cancel each other.
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
                let stray = (high - low) * STRAY + (base + high.abs()) * ROUNDING;
                let below = (1.0 - (high + stray) * inverse[lane]).max(0.0);
                let above = ((low - stray) * inverse[lane] - 1.0).clamp(0.0, FAR);
                let distance =
                    half[lane] * (below + above + 0.75 * (below * below - above * above));
                squares[lane] = distance * distance;
            }
            sum += squares[0] + squares[1] + (squares[2] + squares[3]);
            if sum * SUM >= limit {
                return f64::INFINITY;
            }
        }
        sum
    }
}

fn order_of((interval, part): At) -> f64 {
    2.0 * RATIO.powf(interval as f64 + part as f64 / PARTS as f64)
}

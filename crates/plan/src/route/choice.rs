//! Direct or over depots: the decision for one transfer, from forecasts and their errors.
//!
//! The paper always follows its tree, and 39 to 49 % of its transfers were slower than direct
//! (section 4.2). Here a bandwidth is a distribution, log-normal around its forecast; a path is the
//! minimum of its edges; and depots are used only if they *probably* pay.

use packtrain_units::{ByteCount, DataRate, Duration};

use super::pipeline::Pipeline;

/// A forecast bandwidth with its uncertainty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecasted {
    /// The median.
    pub rate: DataRate,
    /// One standard deviation, as a fraction: 0.2 if two forecasts in three are within 20 %.
    pub error: f64,
}

/// The decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// End to end, without depots.
    Direct,
    /// Over the depots.
    Depots,
}

/// The result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// What to do.
    pub decision: Decision,
    /// Probability that the depots are faster, from 0 to 1.
    pub faster: f64,
    /// Probability that the depots are slower than 95 % of direct, from 0 to 1.
    pub harm: f64,
    /// Duration of the direct transfer: the 10 %, 50 % and 90 % quantiles.
    pub direct: [Duration; 3],
    /// The same over the depots, with their setup.
    pub depots: [Duration; 3],
}

/// A path over depots counts as slower below this fraction of direct.
const SLOWER_THAN: f64 = 0.95;
/// Maximum probability of being slower.
const MAX_RISK: f64 = 0.15;
/// Minimum expected gain: a smaller one does not justify the use of another machine.
const MIN_GAIN: f64 = 1.03;
/// The 90 % quantile of the normal distribution, in standard deviations.
const DECILE: f64 = 1.281_551_565_544_600_4;

impl Forecasted {
    /// The minimum of independent edges: the bandwidth of a pipeline over them. `None` without
    /// edges.
    pub(crate) fn min_of(edges: &[Self]) -> Option<Self> {
        match edges {
            [] => return None,
            [one] => return Some(*one),
            _ => {}
        }
        if edges.iter().any(|edge| edge.rate == DataRate::ZERO) {
            return Some(Self { rate: DataRate::ZERO, error: 0.0 });
        }
        let low = edges.iter().map(|edge| edge.middle() - 8.0 * edge.spread());
        let low = low.fold(f64::INFINITY, f64::min);
        let high = edges.iter().map(|edge| edge.middle() + 8.0 * edge.spread());
        let high = high.fold(f64::INFINITY, f64::min);
        // Probability that all edges exceed e^x.
        let above = |x: f64| -> f64 { edges.iter().map(|edge| edge.above(x)).product() };
        let where_it_is = |wanted: f64| {
            let (mut low, mut high) = (low, high);
            for _ in 0..64 {
                let middle = f64::midpoint(low, high);
                if above(middle) > wanted { low = middle } else { high = middle }
            }
            low
        };
        let (tenth, half, ninth) = (where_it_is(0.9), where_it_is(0.5), where_it_is(0.1));
        let spread = (ninth - tenth) / (2.0 * DECILE);
        Some(Self { rate: rate_of(half), error: libm::expm1(spread) })
    }

    /// The bandwidths that are exceeded with probability 0.9, 0.5 and 0.1.
    pub fn bounds(&self) -> [DataRate; 3] {
        [-1.0, 0.0, 1.0].map(|side| rate_of(self.middle() + side * DECILE * self.spread()))
    }

    /// The median of the logarithm of the bandwidth in bit/s.
    fn middle(&self) -> f64 {
        libm::log(self.rate.as_bps() as f64)
    }

    /// Standard deviation of the logarithm.
    fn spread(&self) -> f64 {
        if self.error > 0.0 { libm::log1p(self.error) } else { 0.0 }
    }

    /// Probability that it exceeds e^x.
    fn above(&self, x: f64) -> f64 {
        let spread = self.spread();
        if spread == 0.0 {
            return f64::from(u8::from(self.middle() > x));
        }
        normal_above((x - self.middle()) / spread)
    }

    /// Duration of `bytes`: 10 %, 50 % and 90 % quantiles.
    fn lasts(&self, bytes: ByteCount, more: Duration) -> [Duration; 3] {
        [1.0, 0.0, -1.0].map(|side| {
            let rate = rate_of(self.middle() + side * DECILE * self.spread());
            if rate == DataRate::ZERO { Duration::MAX } else { rate.time_for(bytes) + more }
        })
    }
}

/// Compares a path over depots with the direct one, for `bytes`. `more` is the setup time of the
/// depots before the first byte, usually a round trip. Depots are chosen when the expected gain is
/// at least 3 % and the probability that they are slower than 95 % of direct is at most 15 %. Where
/// round trips are known, [`super::best_of`] is more accurate.
pub fn choose(
    direct: Forecasted,
    depots: Forecasted,
    bytes: ByteCount,
    more: Duration,
) -> Comparison {
    let last = [direct.lasts(bytes, Duration::ZERO), depots.lasts(bytes, more)];
    compare([direct, depots], last)
}

/// The same with the round trips of all connections.
pub(super) fn weighed(
    direct: &Pipeline,
    depots: &Pipeline,
    bytes: ByteCount,
) -> Option<Comparison> {
    let forecasts = [direct.forecast()?, depots.forecast()?];
    let lasts = |decision: &Pipeline, forecast: &Forecasted| {
        [1.0, 0.0, -1.0].map(|side| {
            let rate = rate_of(forecast.middle() + side * DECILE * forecast.spread());
            decision.lasts_at(rate, bytes)
        })
    };
    let last = [lasts(direct, &forecasts[0]), lasts(depots, &forecasts[1])];
    Some(compare(forecasts, last))
}

/// Compares the durations of both: 10 %, 50 % and 90 % quantiles.
fn compare([direct, depots]: [Forecasted; 2], last: [[Duration; 3]; 2]) -> Comparison {
    let [faster, harm, gains] = match (direct.rate, depots.rate) {
        (_, DataRate::ZERO) => [0.0, 1.0, 0.0],
        (DataRate::ZERO, _) => [1.0, 0.0, f64::INFINITY],
        _ => {
            // Durations are compared because the setup time has no uncertainty.
            let seconds = last.map(|lasts| lasts.map(|time| time.as_secs_f64().max(1e-9)));
            let spread = |[min, _, max]: [f64; 3]| libm::log(max / min) / (2.0 * DECILE);
            let ratio = seconds[0][1] / seconds[1][1];
            let spread = libm::hypot(spread(seconds[0]), spread(seconds[1])).max(1e-9);
            let likely = |than: f64| normal_above(libm::log(than / ratio) / spread);
            [likely(1.0), 1.0 - likely(SLOWER_THAN), ratio]
        }
    };
    let decision =
        if gains >= MIN_GAIN && harm <= MAX_RISK { Decision::Depots } else { Decision::Direct };
    Comparison { decision, faster, harm, direct: last[0], depots: last[1] }
}

/// Probability that a standard normal variable exceeds `x`.
fn normal_above(x: f64) -> f64 {
    0.5 * libm::erfc(x / std::f64::consts::SQRT_2)
}

fn rate_of(logarithm: f64) -> DataRate {
    DataRate::from_bps(libm::exp(logarithm).round() as u64)
}

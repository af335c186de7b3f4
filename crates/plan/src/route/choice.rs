//! Direct or over depots: for one transfer, with what is known and how sure it is.
//!
//! The paper forwards whatever its tree says, and 39 to 49 % of its transfers were slower than
//! direct (section 4.2). Here a bandwidth is a distribution, log-normal around its forecast, a
//! path is the least of its edges, and the depots must be *likely* to pay.

use packtrain_units::{ByteCount, DataRate, Duration};

use super::pipeline::Pipeline;

/// A bandwidth and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecasted {
    /// As likely to be exceeded as not.
    pub rate: DataRate,
    /// One standard deviation, as a part of it: 0.2 where two forecasts in three are within 20 %.
    pub error: f64,
}

/// How to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From end to end.
    Direct,
    /// Over the depots.
    Depots,
}

/// What was weighed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// What to do.
    pub way: Way,
    /// How likely the depots are faster, from 0 to 1.
    pub faster: f64,
    /// How likely the depots are slower than 95 % of direct, from 0 to 1.
    pub harm: f64,
    /// How long the transfer lasts directly: shortest, middle and longest of four in five.
    pub direct: [Duration; 3],
    /// The same over the depots, with what setting them up costs.
    pub depots: [Duration; 3],
}

/// A path over depots counts as slower when it has less than this part of direct.
const SLOWER: f64 = 0.95;
/// How likely it may be slower: 15 %.
const RISK: f64 = 0.15;
/// Less than this gain is not worth somebody else's machine.
const WORTH: f64 = 1.03;
/// Between a tenth and nine tenths of a normal distribution, in standard deviations from the
/// middle.
const TENTH: f64 = 1.281_551_565_544_600_4;

impl Forecasted {
    /// The least of edges that vary independently: what a pipeline over them gives. Nothing if
    /// there is no edge.
    pub fn least_of(edges: &[Self]) -> Option<Self> {
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
        // How likely all edges have more than e^x.
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
        let spread = (ninth - tenth) / (2.0 * TENTH);
        Some(Self { rate: rate_of(half), error: libm::expm1(spread) })
    }

    /// The bandwidth that is exceeded nine times in ten, every second time, one time in ten.
    pub fn bounds(&self) -> [DataRate; 3] {
        [-1.0, 0.0, 1.0].map(|side| rate_of(self.middle() + side * TENTH * self.spread()))
    }

    /// Of the logarithm of the bandwidth in bit/s.
    fn middle(&self) -> f64 {
        libm::log(self.rate.as_bps() as f64)
    }

    /// Standard deviation of the logarithm.
    fn spread(&self) -> f64 {
        if self.error > 0.0 { libm::log1p(self.error) } else { 0.0 }
    }

    /// How likely it is above e^x.
    fn above(&self, x: f64) -> f64 {
        let spread = self.spread();
        if spread == 0.0 {
            return f64::from(u8::from(self.middle() > x));
        }
        normal_above((x - self.middle()) / spread)
    }

    /// How long `bytes` last: shortest, middle and longest of four in five.
    fn lasts(&self, bytes: ByteCount, more: Duration) -> [Duration; 3] {
        [1.0, 0.0, -1.0].map(|side| {
            let rate = rate_of(self.middle() + side * TENTH * self.spread());
            if rate == DataRate::ZERO { Duration::MAX } else { rate.time_for(bytes) + more }
        })
    }
}

/// Weighs a path over depots against the direct one, for `bytes`. `more` is what the depots cost
/// before the first byte: a round trip, as a rule. Depots are taken when they are expected to gain
/// 5 % and the chance that they are slower than 95 % of direct is at most one in twenty. Where
/// round trips are known, [`super::best_of`] knows more.
pub fn choose(direct: Forecasted, depots: Forecasted, bytes: ByteCount, more: Duration) -> Choice {
    let last = [direct.lasts(bytes, Duration::ZERO), depots.lasts(bytes, more)];
    compare([direct, depots], last)
}

/// The same with the round trips of all connections.
pub(super) fn weighed(direct: &Pipeline, depots: &Pipeline, bytes: ByteCount) -> Option<Choice> {
    let forecasts = [direct.forecast()?, depots.forecast()?];
    let lasts = |way: &Pipeline, forecast: &Forecasted| {
        [1.0, 0.0, -1.0].map(|side| {
            let rate = rate_of(forecast.middle() + side * TENTH * forecast.spread());
            way.lasts_at(rate, bytes)
        })
    };
    let last = [lasts(direct, &forecasts[0]), lasts(depots, &forecasts[1])];
    Some(compare(forecasts, last))
}

/// What comes of how long both last: shortest, middle and longest.
fn compare([direct, depots]: [Forecasted; 2], last: [[Duration; 3]; 2]) -> Choice {
    let [faster, harm, gains] = match (direct.rate, depots.rate) {
        (_, DataRate::ZERO) => [0.0, 1.0, 0.0],
        (DataRate::ZERO, _) => [1.0, 0.0, f64::INFINITY],
        _ => {
            // Over times, for what the set-up takes is sure.
            let seconds = last.map(|lasts| lasts.map(|time| time.as_secs_f64().max(1e-9)));
            let spread = |[least, _, most]: [f64; 3]| libm::log(most / least) / (2.0 * TENTH);
            let ratio = seconds[0][1] / seconds[1][1];
            let spread = libm::hypot(spread(seconds[0]), spread(seconds[1])).max(1e-9);
            let likely = |than: f64| normal_above(libm::log(than / ratio) / spread);
            [likely(1.0), 1.0 - likely(SLOWER), ratio]
        }
    };
    let way = if gains >= WORTH && harm <= RISK { Way::Depots } else { Way::Direct };
    Choice { way, faster, harm, direct: last[0], depots: last[1] }
}

/// How likely a standard normal variable is above `x`.
fn normal_above(x: f64) -> f64 {
    0.5 * libm::erfc(x / std::f64::consts::SQRT_2)
}

fn rate_of(logarithm: f64) -> DataRate {
    DataRate::from_bps(libm::exp(logarithm).round() as u64)
}

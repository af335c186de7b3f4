//! Duration of a transfer over connections in series, with the start-up of TCP.

use packtrain_units::{ByteCount, DataRate, Duration};

use super::choice::{Comparison, Forecasted, weighed};

/// A connection between neighbours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Leg {
    /// Its rate in steady state.
    pub forecast: Forecasted,
    /// Its round trip; zero if unknown.
    pub rtt: Duration,
}

/// Connections in series, with depots between them.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    /// From the source on.
    pub legs: Vec<Leg>,
    /// Relay limits of the depots, where known.
    pub through: Vec<Forecasted>,
}

/// The initial window: ten segments (RFC 6928).
const FIRST_WINDOW: f64 = 10.0 * 1_448.0;

/// Duration of `bytes` over one connection from its SYN to the last byte at the other end: a round
/// trip to open, a window that doubles each round trip until it carries the rate, the rest at the
/// rate, and half a round trip for the last byte.
pub fn lasts(rate: DataRate, rtt: Duration, bytes: ByteCount) -> Duration {
    if rate == DataRate::ZERO {
        return Duration::MAX;
    }
    let (rtt, bytes) = (rtt.as_secs_f64(), bytes.get() as f64);
    let rate = rate.as_bps() as f64 / 8.0;
    // After n round trips the window is 2^n times the first, and all but one of these windows were
    // sent.
    let doublings = libm::log2(rate * rtt / FIRST_WINDOW).max(0.0);
    let begun = FIRST_WINDOW * (libm::exp2(doublings) - 1.0);
    let sending = if bytes <= begun {
        rtt * libm::log2(bytes / FIRST_WINDOW + 1.0)
    } else {
        rtt * doublings + (bytes - begun) / rate
    };
    seconds(1.5 * rtt + sending)
}

fn seconds(span: f64) -> Duration {
    if span < 1e9 { Duration::from_secs_f64(span.max(0.0)) } else { Duration::MAX }
}

impl Pipeline {
    /// One connection.
    pub fn direct(leg: Leg) -> Self {
        Self { legs: vec![leg], through: Vec::new() }
    }

    /// Its bandwidth: the minimum of its legs and depots. `None` without a leg.
    pub fn forecast(&self) -> Option<Forecasted> {
        let all: Vec<Forecasted> =
            self.legs.iter().map(|leg| leg.forecast).chain(self.through.iter().copied()).collect();
        Forecasted::min_of(&all)
    }

    /// Duration of `bytes` when no leg exceeds `rate`. A depot opens the next connection when the
    /// first bytes arrive; the slowest leg, counted from its start, determines the duration.
    pub(crate) fn lasts_at(&self, rate: DataRate, bytes: ByteCount) -> Duration {
        let (mut begins, mut longest) = (Duration::ZERO, Duration::ZERO);
        for (at, leg) in self.legs.iter().enumerate() {
            let own = lasts(leg.forecast.rate.min(rate), leg.rtt, bytes);
            let rest = self.legs[at + 1..].iter();
            let rest = rest.fold(Duration::ZERO, |sum, leg| sum + leg.rtt / 2);
            if own == Duration::MAX {
                return own;
            }
            longest = longest.max(begins + own + rest);
            begins += leg.rtt + leg.rtt / 2;
        }
        longest
    }

    /// Duration of `bytes` at the median forecast.
    pub fn lasts(&self, bytes: ByteCount) -> Duration {
        let rate = self.forecast().map_or(DataRate::ZERO, |forecast| forecast.rate);
        self.lasts_at(rate, bytes)
    }
}

/// The best of several paths, with its comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Best {
    /// Its index; none means direct.
    pub path: Option<usize>,
    /// The comparison of this path with direct; if none was chosen, of the fastest expected one.
    pub choice: Comparison,
}

/// Compares several paths over depots with the direct one, for `bytes`; `None` without a path. Of
/// those that [`super::choose`] would accept, the fastest is taken.
pub fn best_of(direct: &Leg, ways: &[Pipeline], bytes: ByteCount) -> Option<Best> {
    let straight = Pipeline::direct(*direct);
    let all = ways.iter().enumerate().filter_map(|(at, way)| {
        let choice = weighed(&straight, way, bytes)?;
        let taken = choice.decision == super::Decision::Depots;
        Some(Best { path: taken.then_some(at), choice })
    });
    // Accepted ones first, then by duration.
    all.min_by_key(|best| (best.path.is_none(), best.choice.depots[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leg(mbps: u64, ms: u64, error: f64) -> Leg {
        let forecast = Forecasted { rate: DataRate::from_mbps(mbps), error };
        Leg { forecast, rtt: Duration::from_millis(ms) }
    }

    #[test]
    fn a_short_transfer_is_its_round_trips() {
        let rtt = Duration::from_millis(100);
        let time = |bytes| lasts(DataRate::from_mbps(100), rtt, ByteCount(bytes)).as_secs_f64();
        assert!((time(14_480) - 0.25).abs() < 1e-6, "open, one window, and its way");
        assert!((time(3 * 14_480) - 0.35).abs() < 1e-6);
        // 1.25 MB per round trip: 6.43 doublings, then 12.5 MB/s.
        let long = 0.15 + 0.643 + (1e8 - 1.25e6 + 14_480.0) / 12.5e6;
        assert!((time(100_000_000) - long).abs() < 0.01, "{}", time(100_000_000));
        assert_eq!(lasts(DataRate::ZERO, rtt, ByteCount(1)), Duration::MAX);
    }

    #[test]
    fn depots_pay_for_large_transfers_only() {
        let direct = leg(20, 100, 0.1);
        let over = Pipeline { legs: vec![leg(40, 80, 0.1); 2], through: Vec::new() };
        let small = best_of(&direct, std::slice::from_ref(&over), ByteCount(20_000)).unwrap();
        assert_eq!(small.path, None, "{small:?}");
        let large = best_of(&direct, std::slice::from_ref(&over), ByteCount(100_000_000)).unwrap();
        assert_eq!(large.path, Some(0), "{large:?}");
        let slow = Forecasted { rate: DataRate::from_mbps(15), error: 0.1 };
        let weak = Pipeline { through: vec![slow], ..over };
        let large = best_of(&direct, &[weak], ByteCount(100_000_000)).unwrap();
        assert_eq!(large.path, None, "the depot itself is slow");
        assert_eq!(best_of(&direct, &[], ByteCount(1)), None);
    }
}

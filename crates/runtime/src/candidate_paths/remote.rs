//! Reports candidate paths from the end that knows the depots to the sending end:
//! `ControlMessage::CandidatePaths`, in JSON.

use parking_lot::Mutex;
use std::sync::Arc;

use packtrain_plan::route::{Forecasted, MAX_CHAINS, PathId};
use packtrain_session::Place;
use packtrain_units::{DataRate, Duration};
use serde::{Deserialize, Serialize};

use super::chains::{Chain, MAX_CHAIN_DEPOTS};
use super::{Beyond, CandidatePaths, Known, MAX_DEPOTS};

/// Words from another end are no longer than this.
const MAX_MESSAGE_BYTES: usize = 16 << 10;
/// A round trip from elsewhere is taken to be no longer than this.
const MAX_RTT: Duration = Duration::from_secs(60);
/// Larger rates in a report are reduced to this.
const MAX_RATE: DataRate = DataRate::from_bps(10_000_000_000_000);
/// Larger relative errors of forecasts in a report are reduced to this.
const MAX_ERROR: f64 = 100.0;

/// The content of a report.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Facts {
    /// Forecast of the direct path from earlier transfers.
    direct: Option<Rate>,
    ways: Vec<Fact>,
    /// Paths over several depots. They come later than the first report, and only more follow.
    chains: Vec<Fact>,
}

/// One path over a depot, or over several.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Fact {
    /// The depot, or several with commas between them.
    depot: String,
    /// Round-trip time between the (first) depot and the reporting end.
    near: Option<Duration>,
    /// Round-trip times between the depots of a chain, if all are measured.
    middle: Vec<Duration>,
    /// Round-trip time beyond the depot, if measured.
    beyond: Option<Duration>,
    /// Forecast from earlier transfers.
    earlier: Option<Rate>,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Rate {
    rate: DataRate,
    error: f64,
}

impl Rate {
    fn of(forecast: &Forecasted) -> Self {
        Self { rate: forecast.rate, error: forecast.error }
    }

    /// The forecast, if the values are valid.
    fn forecast(self) -> Option<Forecasted> {
        let sane = self.error.is_finite() && self.error >= 0.0;
        let (rate, error) = (self.rate.min(MAX_RATE), self.error.min(MAX_ERROR));
        sane.then_some(Forecasted { rate, error })
    }
}

impl Fact {
    /// Whether it is a valid path over several depots.
    fn is_chain(&self) -> bool {
        let places: Vec<&str> = self.depot.split(',').collect();
        let valid = |place: &&str| place.parse::<Place>().is_ok_and(|it| it.to_string() == **place);
        (2..=MAX_CHAIN_DEPOTS).contains(&places.len())
            && places.iter().all(valid)
            && (self.middle.is_empty() || self.middle.len() == places.len() - 1)
    }
}

impl Facts {
    /// Decodes a report; none if it is invalid.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let some = Some(bytes).filter(|bytes| bytes.len() <= MAX_MESSAGE_BYTES)?;
        let facts: Self = serde_json::from_slice(some).ok()?;
        let fit = !facts.ways.is_empty() && facts.ways.len() <= MAX_DEPOTS;
        let chains = facts.chains.len() <= MAX_CHAINS;
        (fit && chains && facts.chains.iter().all(Fact::is_chain)).then_some(facts)
    }

    fn known(&self) -> Known {
        let mut known = Known::default();
        let direct = self.direct.and_then(Rate::forecast);
        known.forecasts.extend(direct.map(|forecast| (PathId::DIRECT, forecast)));
        for (n, fact) in self.ways.iter().enumerate() {
            let way = PathId::numbered(n as u8 + 1);
            let beyond = fact.beyond.map(|rtt| rtt.min(MAX_RTT));
            known.near.extend(fact.near.map(|rtt| (way, rtt.min(MAX_RTT))));
            known.beyond.extend(beyond.map(|rtt| (way, Beyond { rtt: Some(rtt), cap: None })));
            let earlier = fact.earlier.and_then(Rate::forecast);
            known.forecasts.extend(earlier.map(|forecast| (way, forecast)));
        }
        for (n, fact) in self.chains.iter().enumerate() {
            let way = PathId::numbered((self.ways.len() + n) as u8 + 1);
            let earlier = fact.earlier.and_then(Rate::forecast);
            known.forecasts.extend(earlier.map(|forecast| (way, forecast)));
            known.chains.push(Chain {
                name: format!("via {}", fact.depot),
                near: fact.near.map(|rtt| rtt.min(MAX_RTT)),
                middle: fact.middle.iter().map(|rtt| (*rtt).min(MAX_RTT)).collect(),
                beyond: fact.beyond.map(|rtt| rtt.min(MAX_RTT)),
                ..Chain::default()
            });
        }
        known
    }
}

impl CandidatePaths {
    /// Candidate paths from the other end's report; none if it is invalid.
    pub(crate) fn from_report(bytes: &[u8]) -> Option<Arc<Self>> {
        let facts = Facts::decode(bytes)?;
        let place = |fact: &Fact| fact.depot.parse::<Place>().ok();
        let names = facts.ways.iter().map(|fact| Some(format!("via {}", place(fact)?)));
        let names = names.collect::<Option<_>>()?;
        Some(Arc::new(Self { names, reach: None, known: Mutex::new(facts.known()) }))
    }

    /// Updates the results with a new report.
    pub(crate) fn update(&self, bytes: &[u8]) {
        let facts = Facts::decode(bytes).filter(|facts| facts.ways.len() == self.names.len());
        if let (true, Some(facts)) = (self.is_far(), facts) {
            let (mut known, new) = (self.known(), facts.known());
            // A number keeps its path.
            let kept = known.chains.iter().map(|chain| &chain.name);
            if new.chains.len() >= kept.len()
                && kept.eq(new.chains.iter().take(known.chains.len()).map(|chain| &chain.name))
            {
                *known = new;
            }
        }
    }

    /// Whether the other end is the one that knows the depots.
    pub(crate) fn is_far(&self) -> bool {
        self.reach.is_none()
    }

    /// Whether there is a path over depots with this number.
    pub(crate) fn has(&self, way: u8) -> bool {
        (1..=self.names.len() + self.known().chains.len()).contains(&usize::from(way))
    }

    /// Increases with each new result.
    pub(crate) fn version(&self) -> u32 {
        self.known().version
    }

    /// A report of the current results for the other end.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let known = self.known();
        let earlier = |way: PathId| known.forecasts.get(&way).map(Rate::of);
        let fact = |(n, name): (usize, &String)| {
            let way = PathId::numbered(n as u8 + 1);
            Fact {
                depot: name.trim_start_matches("via ").to_owned(),
                near: known.near.get(&way).copied(),
                middle: Vec::new(),
                beyond: known.beyond.get(&way).and_then(|beyond| beyond.rtt),
                earlier: earlier(way),
            }
        };
        let chain = |(n, chain): (usize, &Chain)| Fact {
            depot: chain.name.trim_start_matches("via ").to_owned(),
            near: chain.near,
            middle: chain.middle.clone(),
            beyond: chain.beyond,
            earlier: earlier(PathId::numbered((self.names.len() + n) as u8 + 1)),
        };
        let ways = self.names.iter().enumerate().map(fact).collect();
        let chains = known.chains.iter().enumerate().map(chain).collect();
        let facts = Facts { direct: earlier(PathId::DIRECT), ways, chains };
        // Serialising plain values cannot fail.
        serde_json::to_vec(&facts).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(text: &str) -> Option<Arc<CandidatePaths>> {
        CandidatePaths::from_report(text.as_bytes())
    }

    #[test]
    fn what_is_told_is_known_at_the_other_end() {
        let names = ["via d.example.org:7879", "via [2001:db8::1]:1"].map(str::to_owned);
        let own = CandidatePaths { names: names.to_vec(), reach: None, known: Mutex::default() };
        let told = CandidatePaths::from_report(&own.encode()).unwrap();
        assert_eq!((told.names(), told.version()), (&names[..], 0));
        let (one, two) = (PathId::numbered(1), PathId::numbered(2));
        let rate = |mbps| Forecasted { rate: DataRate::from_mbps(mbps), error: 0.25 };
        {
            let mut known = own.known();
            known.near.insert(two, Duration::from_millis(7));
            let rtt = Some(Duration::from_millis(9));
            known.beyond.insert(two, Beyond { rtt, cap: Some((rate(3), DataRate::MAX)) });
            known.forecasts.extend([(PathId::DIRECT, rate(10)), (one, rate(20))]);
        }
        told.update(&own.encode());
        let known = told.known();
        assert_eq!(known.near, own.known().near);
        assert_eq!(known.forecasts, own.known().forecasts);
        assert_eq!(known.beyond[&two].rtt, Some(Duration::from_millis(9)));
        assert_eq!(known.beyond[&two].cap, None, "that is the other direction");
        drop(known);
        assert!(told.is_far() && told.has(2) && !told.has(0) && !told.has(3));
    }

    #[test]
    fn odd_words_are_no_ways_or_are_cut_short() {
        for text in [
            "",
            "{}",
            "[]",
            r#"{"ways":[]}"#,
            r#"{"ways":[{"depot":"d"}]}"#,
            r#"{"ways":[{"depot":"\u001b[31m:7"}]}"#,
            r#"{"ways":[{"depot":"d:1","near":-1}]}"#,
        ] {
            assert!(facts(text).is_none(), "{text}");
        }
        let many = vec![r#"{"depot":"d:1"}"#; MAX_DEPOTS + 1].join(",");
        assert!(facts(&format!(r#"{{"ways":[{many}]}}"#)).is_none());
        let far = facts(
            r#"{"ways":[{"depot":"d:1","near":18446744073709551615,"later":[1],
                "earlier":{"rate":18446744073709551615,"error":1e308}}]}"#,
        );
        let far = far.unwrap();
        let way = PathId::numbered(1);
        assert_eq!(far.known().near[&way], MAX_RTT);
        assert_eq!(far.known().forecasts[&way], Forecasted { rate: MAX_RATE, error: MAX_ERROR });
        far.update(br#"{"ways":[{"depot":"d:1"},{"depot":"e:1"}]}"#);
        assert!(!far.known().near.is_empty(), "other ways than at first");
        far.update(br#"{"ways":[{"depot":"d:1","earlier":{"error":-1}}]}"#);
        assert!(far.known().near.is_empty() && far.known().forecasts.is_empty());
    }
}

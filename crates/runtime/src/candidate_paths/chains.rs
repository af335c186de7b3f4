//! Paths over two or three depots.
//!
//! They are proposed once, when all queries have ended: the paths of the minimax tree over the round
//! trips that were measured ([`RoundTrips::chains`]), and before them those that earlier transfers
//! took. A depot reports its neighbours: depots that it relayed to, or that it probes.

use std::sync::Arc;

use packtrain_hops::route::Route;
use packtrain_plan::route::{Forecasted, MAX_CHAINS, PathId, PathSelector, RoundTrips};
use packtrain_session::Place;
use packtrain_session::measure::Series;
use packtrain_units::{DataRate, Duration};

use super::{Beyond, CandidatePaths, Known, Reach, describe_series, rest};

/// Maximum depots of a chain.
pub(super) const MAX_CHAIN_DEPOTS: usize = 3;
/// Maximum chains of earlier transfers that are proposed: the others are those measured now.
const MAX_EARLIER_CHAINS: usize = 2;
/// Failures or useless trials after which a chain is not tried again.
const MAX_CHAIN_FAILURES: u32 = 3;

/// A path over several depots.
#[derive(Clone, Default)]
pub(super) struct Chain {
    /// `via D1,D2`.
    pub(super) name: String,
    /// How to connect; none if only the other end can.
    pub(super) route: Option<Arc<Route>>,
    /// Round-trip time to the first depot.
    pub(super) near: Option<Duration>,
    /// Round-trip times between the depots; empty if one is unknown.
    pub(super) middle: Vec<Duration>,
    /// Round-trip time beyond the last depot, if measured.
    pub(super) beyond: Option<Duration>,
    /// The least measured rate of its hops, in total and per stream.
    pub(super) cap: Option<(Forecasted, DataRate)>,
}

impl Chain {
    /// The hops' round-trip times, as far as they determine the path.
    fn hops(&self, direct: Duration) -> Option<Vec<Duration>> {
        let (near, middle) = (self.near?, &self.middle);
        if middle.is_empty() {
            return None;
        }
        let so_far = middle.iter().fold(near, |sum, hop| sum + *hop);
        let beyond = self.beyond.unwrap_or_else(|| rest(direct, so_far));
        Some([&[near], &middle[..], &[beyond]].concat())
    }
}

impl CandidatePaths {
    /// Adds what a depot measured towards the other depots.
    pub(super) fn add_between(&self, way: PathId, depot: &Place, series: &[Series], fetch: bool) {
        let (Some(reach), Some(from)) = (&self.reach, way.index().checked_sub(1)) else { return };
        for one in series {
            let Some(to) = reach.depots.iter().position(|place| *place == one.to) else { continue };
            if to != from {
                let mut known = self.known();
                known.told.push(format!("via {depot}: it says {}", describe_series(one)));
                known.between.insert((from, to), Beyond::of(one, fetch));
            }
        }
    }

    /// A query has ended.
    pub(super) fn end_query(&self) {
        let mut known = self.known();
        known.pending = known.pending.saturating_sub(1);
        // A sending end waits for the round-trip time of the direct path.
        if known.pending == 0 && self.reach.as_ref().is_some_and(|reach| reach.fetch) {
            self.propose(&mut known, None);
        }
    }

    /// Proposes chains, if all queries have ended and none were proposed. `direct` is the
    /// round-trip time of the direct path, if known.
    pub(super) fn propose(&self, known: &mut Known, direct: Option<Duration>) {
        let Some(reach) = &self.reach else { return };
        if known.pending > 0 || !known.chains.is_empty() || reach.depots.len() < 2 {
            return;
        }
        let rtts = round_trips(known, reach.depots.len(), direct);
        let mut found = earlier(known, &reach.depots);
        for chain in rtts.chains() {
            if !found.contains(&chain) {
                found.push(chain);
            }
        }
        for depots in found.into_iter().take(MAX_CHAINS) {
            let places: Vec<Place> = depots.iter().map(|n| reach.depots[*n].clone()).collect();
            let Ok(Some(route)) = Route::over(&places, &[]) else { continue };
            let chain = measured(known, reach, &rtts, &depots, route);
            let number = u8::try_from(self.names.len() + known.chains.len() + 1);
            let forecast = known.others.get(&chain.name).copied();
            if let (Ok(number), Some(forecast)) = (number, forecast) {
                known.forecasts.insert(PathId::numbered(number), forecast);
            }
            known.told.push(format!("{}: a path over several depots", chain.name));
            known.chains.push(chain);
            known.version += 1;
        }
        if known.chains.is_empty() {
            // Nothing comes later that would change it.
            known.pending = usize::MAX;
        }
    }

    /// Passes the chains to the selector.
    pub(super) fn update_chains(
        &self,
        known: &Known,
        selector: &mut PathSelector,
        rtt: Option<Duration>,
    ) {
        for (n, chain) in known.chains.iter().enumerate() {
            let Ok(number) = u8::try_from(self.names.len() + n + 1) else { return };
            let way = PathId::numbered(number);
            if selector.len() == way.index() {
                selector.add(chain.name.clone());
                selector.set_max_failures(way, MAX_CHAIN_FAILURES);
            }
            if let Some(hops) = rtt.and_then(|rtt| chain.hops(rtt)) {
                selector.set_hops(way, hops);
            }
            if let Some((all, each)) = chain.cap {
                selector.set_cap(way, all, each);
            }
        }
    }
}

/// The round trips that are known; from a depot to the other end also an estimate. What one depot
/// measured towards another holds for the way back too.
fn round_trips(known: &Known, depots: usize, direct: Option<Duration>) -> RoundTrips {
    let mut rtts = RoundTrips { direct, ..RoundTrips::default() };
    for depot in 0..depots {
        let way = PathId::numbered(depot as u8 + 1);
        let near = known.near.get(&way).copied();
        let measured = known.beyond.get(&way).and_then(|beyond| beyond.rtt);
        let beyond = measured.or_else(|| Some(rest(direct?, near?)));
        rtts.near.extend(near.map(|rtt| (depot, rtt)));
        rtts.beyond.extend(beyond.map(|rtt| (depot, rtt)));
    }
    for (&(from, to), hop) in &known.between {
        let Some(rtt) = hop.rtt else { continue };
        rtts.between.insert((from, to), rtt);
        rtts.between.entry((to, from)).or_insert(rtt);
    }
    rtts
}

/// Chains of these depots that earlier transfers took: the fastest by their forecast.
fn earlier(known: &Known, depots: &[Place]) -> Vec<Vec<usize>> {
    let chain = |name: &String| {
        let places = name.strip_prefix("via ")?.split(',');
        let number = |place: &str| depots.iter().position(|depot| depot.to_string() == place);
        let chain: Vec<usize> = places.map(number).collect::<Option<_>>()?;
        (2..=MAX_CHAIN_DEPOTS).contains(&chain.len()).then_some(chain)
    };
    let mut chains: Vec<_> = known
        .others
        .iter()
        .filter_map(|(name, forecast)| Some((forecast.rate, chain(name)?)))
        .collect();
    chains.sort_by_key(|(rate, _)| std::cmp::Reverse(*rate));
    chains.into_iter().map(|(_, chain)| chain).take(MAX_EARLIER_CHAINS).collect()
}

/// A chain with what was measured of its hops.
fn measured(
    known: &Known,
    reach: &Reach,
    rtts: &RoundTrips,
    depots: &[usize],
    route: Arc<Route>,
) -> Chain {
    let way = |depot: usize| PathId::numbered(depot as u8 + 1);
    let (first, last) = (depots[0], depots[depots.len() - 1]);
    let between = depots.windows(2).map(|pair| (pair[0], pair[1]));
    let middle = between.clone().map(|hop| rtts.between.get(&hop).copied()).collect::<Option<_>>();
    let last = known.beyond.get(&way(last));
    let caps = between.filter_map(|hop| known.between.get(&hop)).chain(last);
    // In a fetch the bytes come the other way.
    let caps = caps.filter_map(|hop| hop.cap.filter(|_| !reach.fetch));
    let cap = caps.reduce(|a, b| if a.0.rate <= b.0.rate { a } else { b });
    Chain {
        name: format!("via {route}"),
        route: Some(route),
        near: rtts.near.get(&first).copied(),
        middle: middle.unwrap_or_default(),
        beyond: last.and_then(|beyond| beyond.rtt),
        cap,
    }
}

#[cfg(test)]
#[path = "chains_tests.rs"]
mod tests;

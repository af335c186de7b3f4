//! `--via auto`: the ways that a transfer may take, and what is known of them before it tries them.
//!
//! The depots and the history are asked while the transfer begins directly; nothing waits for
//! them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use packtrain_io::tcp::{ConnectOptions, connect, tcp_info};
use packtrain_plan::route::{Forecasted, Pilot, WayId};
use packtrain_proto::session::{Host, Place};
use packtrain_units::Duration;

use crate::api::NodeError;
use crate::history::{self, Alike, Keep};
use crate::route::Route;
use crate::runtime;

/// A depot that does not answer by then is not asked further; it may still be tried.
const ASK: Duration = Duration::from_secs(2);
/// The most depots to choose from.
pub const MOST_DEPOTS: usize = 16;
/// The part beyond a depot is no shorter than this part of the direct round trip.
const REST: f64 = 0.1;

/// The ways of one transfer.
pub(crate) struct Ways {
    host: Host,
    routes: Vec<Arc<Route>>,
    known: Mutex<Known>,
}

/// What was found out.
#[derive(Default)]
struct Known {
    /// The round trip to each way's first depot.
    near: BTreeMap<WayId, Duration>,
    forecasts: BTreeMap<WayId, Forecasted>,
    told: Vec<String>,
}

impl std::fmt::Debug for Ways {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ways({} to {})", self.names().join(" or "), self.host)
    }
}

impl Ways {
    /// Ways to `host` over one of these depots each; begins to ask what is known of them. `to` is
    /// what the history calls the direct way.
    pub(crate) fn over(
        depots: &[Place],
        host: Host,
        (keep, to): (&Keep, &str),
        alike: Alike,
    ) -> Result<Arc<Self>, NodeError> {
        let mut routes = Vec::new();
        for depot in depots.iter().take(MOST_DEPOTS) {
            routes.extend(Route::over(std::slice::from_ref(depot))?);
        }
        let ways = Arc::new(Self { host, routes, known: Mutex::default() });
        for (n, depot) in depots.iter().take(MOST_DEPOTS).enumerate() {
            let (ways, depot) = (Arc::clone(&ways), depot.clone());
            let way = WayId::numbered(n as u8 + 1);
            runtime::handle().spawn(async move { ways.ask(way, &depot).await });
        }
        let (keep, to, asked) = (keep.clone(), to.to_owned(), Arc::clone(&ways));
        runtime::handle().spawn_blocking(move || asked.remember(&keep, &to, &alike));
        Ok(ways)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no holder panics")
    }

    /// The other end.
    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    /// The route of a way over depots.
    pub(crate) fn route(&self, way: WayId) -> Option<&Route> {
        self.routes.get(way.index().checked_sub(1)?).map(Arc::as_ref)
    }

    /// What the ways over depots are called, in their order.
    pub(crate) fn names(&self) -> Vec<String> {
        self.routes.iter().map(|route| format!("via {route}")).collect()
    }

    /// What was found out of them, in sentences.
    pub(crate) fn told(&self) -> Vec<String> {
        self.known().told.clone()
    }

    /// Tells the chooser what is known now, `rtt` being the direct path's round trip.
    pub(crate) fn inform(&self, pilot: &mut Pilot, rtt: Option<Duration>) {
        let known = self.known();
        for (way, near) in &known.near {
            let Some(rtt) = rtt else { continue };
            let beyond = (rtt - *near).max(rtt.mul_f64(REST));
            pilot.set_hops(*way, vec![*near, beyond]);
        }
        for (way, forecast) in &known.forecasts {
            pilot.set_forecast(*way, *forecast);
        }
    }

    /// How far a depot is.
    async fn ask(&self, way: WayId, depot: &Place) {
        let options = ConnectOptions { timeout: ASK, ..ConnectOptions::default() };
        let connected = connect(&depot.host.to_string(), depot.port, &options).await;
        let mut known = self.known();
        match connected.map(|socket| tcp_info(&socket)) {
            Ok(Ok(info)) => {
                known.told.push(format!("via {depot}: {} away", round(info.srtt)));
                known.near.insert(way, info.srtt);
            }
            Ok(Err(_)) => {}
            Err(error) => known.told.push(format!("via {depot}: {error}")),
        }
    }

    /// What earlier transfers measured.
    fn remember(&self, keep: &Keep, to: &str, alike: &Alike) {
        let names = self.names();
        for (name, forecast) in history::ways(keep, to, alike) {
            let number = names.iter().position(|known| *known == name).map(|n| n + 1);
            let number = if name == history::DIRECT { Some(0) } else { number };
            let Some(way) = number.and_then(|n| u8::try_from(n).ok()).map(WayId::numbered) else {
                continue;
            };
            let [low, _, high] = forecast.bounds();
            let mut known = self.known();
            let rate = forecast.rate;
            known.told.push(format!("{name}: {rate} ({low} to {high}) by earlier transfers"));
            known.forecasts.insert(way, forecast);
        }
    }
}

/// To a tenth of a millisecond.
fn round(rtt: Duration) -> String {
    format!("{:.1} ms", rtt.as_secs_f64() * 1e3)
}

//! `--via auto`: the candidate paths of a transfer, and what is known of them before they are used.
//!
//! The transfer starts on the direct path while the depots and the history are queried; nothing
//! waits for them. The end that called knows the depots and makes the connections over them. The
//! end that sends selects the path. If these are different ends, the first reports what it knows to
//! the second (`remote`).

mod chains;
mod remote;

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;

use packtrain_net::tcp::{ConnectOptions, connect, describe, tcp_info};
use packtrain_plan::route::{Forecasted, PathId, PathSelector};
use packtrain_session::measure::{
    Measure, Point, REPORT_HEAD, Series, read_points, read_report, report_len,
};
use packtrain_session::{Answer, Host, Kind, Place};
use packtrain_units::{DataRate, Duration};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use chains::Chain;
use packtrain_hops::read_answer;
use packtrain_hops::route::Route;
use packtrain_service::history::{self, PathFilter};
use packtrain_service::{HistoryConfig, RequestError, executor};

/// Time after which a query to a depot is abandoned; the path may still be used.
const ASK: Duration = Duration::from_secs(2);
/// Time limit of a query to a depot that a user requested by itself.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of depots to choose from.
pub const MAX_DEPOTS: usize = 16;
/// The port in a query about a host, which the depot ignores.
const ANY_PORT: u16 = 1;
/// Measurements of a depot that are older than this are ignored.
const FRESH: Duration = Duration::from_secs(1800);
/// Minimum round-trip time beyond a depot, as a fraction of the direct one.
const REST: f64 = 0.1;

/// The candidate paths of one transfer.
pub struct CandidatePaths {
    /// Names of the paths over depots, in order.
    names: Vec<String>,
    /// How to connect over them; none if only the other end can.
    reach: Option<Reach>,
    known: Mutex<Known>,
}

/// How to reach the other end over each path.
struct Reach {
    /// The other end.
    host: Host,
    /// Whether data comes from there.
    fetch: bool,
    depots: Vec<Place>,
    routes: Vec<Arc<Route>>,
}

/// A transfer with candidate paths.
pub struct Task {
    /// The other end, as depots resolve it.
    pub host: Host,
    /// Whether data comes from there; otherwise it goes there.
    pub fetch: bool,
    /// Source and destination host, as in the history.
    pub ends: [String; 2],
    /// Filter for the earlier transfers to use.
    pub alike: PathFilter,
}

/// Results of the queries.
#[derive(Default)]
struct Known {
    /// Round-trip time to the first depot of each path.
    near: BTreeMap<PathId, Duration>,
    forecasts: BTreeMap<PathId, Forecasted>,
    /// Forecasts of paths that are no candidates.
    others: BTreeMap<String, Forecasted>,
    /// Measurements of each path's depot for the part beyond it.
    beyond: BTreeMap<PathId, Beyond>,
    /// Measurements of each depot towards another one, by their numbers from 0.
    between: BTreeMap<(usize, usize), Beyond>,
    /// Paths over several depots; their numbers follow those of the single depots.
    chains: Vec<Chain>,
    /// Queries that have not ended.
    pending: usize,
    told: Vec<String>,
    /// Increases with each new result.
    version: u32,
}

/// The part of a path beyond its depot.
#[derive(Clone, Debug, Default)]
struct Beyond {
    /// Its round-trip time, if measured.
    rtt: Option<Duration>,
    /// Its throughput, in total and per stream.
    cap: Option<(Forecasted, DataRate)>,
}

impl std::fmt::Debug for CandidatePaths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CandidatePaths({})", self.names.join(" or "))
    }
}

impl CandidatePaths {
    /// Paths over one of these depots each. Starts the queries.
    pub fn over(
        depots: &[Place],
        task: Task,
        keep: &HistoryConfig,
    ) -> Result<Arc<Self>, RequestError> {
        let Task { host, fetch, ends, alike } = task;
        let mut routes = Vec::new();
        for depot in depots.iter().take(MAX_DEPOTS) {
            routes.extend(Route::over(std::slice::from_ref(depot), &[])?);
        }
        let depots: Vec<Place> = depots.iter().take(MAX_DEPOTS).cloned().collect();
        let names = routes.iter().map(|route| format!("via {route}")).collect();
        let known = Known { pending: depots.len() + 1, ..Known::default() };
        let reach = Some(Reach { host, fetch, depots: depots.clone(), routes });
        let ways = Arc::new(Self { names, reach, known: Mutex::new(known) });
        for (n, depot) in depots.into_iter().enumerate() {
            let ways = Arc::clone(&ways);
            let way = PathId::numbered(n as u8 + 1);
            executor::handle().spawn(async move {
                ways.query(way, &depot).await;
                ways.end_query();
            });
        }
        let (keep, asked) = (keep.clone(), Arc::clone(&ways));
        executor::handle().spawn_blocking(move || {
            asked.add_forecasts(&keep, &ends, &alike);
            asked.end_query();
        });
        Ok(ways)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }

    /// The other end, and the route to it for a path over depots, if this end connects.
    pub(crate) fn route(&self, way: PathId) -> Option<(&Host, Arc<Route>)> {
        let reach = self.reach.as_ref()?;
        let number = way.index().checked_sub(1)?;
        let route = match number.checked_sub(self.names.len()) {
            None => Arc::clone(reach.routes.get(number)?),
            Some(chain) => self.known().chains.get(chain)?.route.clone()?,
        };
        Some((&reach.host, route))
    }

    /// Names of the paths over one depot, in order.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// The results of the queries, as texts.
    pub(crate) fn told(&self) -> Vec<String> {
        self.known().told.clone()
    }

    /// Passes the results to the selector; `rtt` is the round-trip time of the direct path.
    pub(crate) fn update_selector(&self, selector: &mut PathSelector, rtt: Option<Duration>) {
        let mut known = self.known();
        if rtt.is_some() {
            self.propose(&mut known, rtt);
        }
        self.update_chains(&known, selector, rtt);
        for (way, near) in &known.near {
            let Some(rtt) = rtt else { continue };
            let measured = known.beyond.get(way).and_then(|beyond| beyond.rtt);
            let beyond = measured.unwrap_or_else(|| rest(rtt, *near));
            selector.set_hops(*way, vec![*near, beyond]);
        }
        for (way, (all, each)) in known.beyond.iter().filter_map(|(way, b)| Some((way, b.cap?))) {
            selector.set_cap(*way, all, each);
        }
        for (way, forecast) in &known.forecasts {
            selector.set_forecast(*way, *forecast);
        }
    }

    /// Measures the round-trip time to a depot and queries its measurements of the part beyond it.
    async fn query(&self, way: PathId, depot: &Place) {
        let options = ConnectOptions { timeout: ASK, ..ConnectOptions::default() };
        let socket = match connect(&depot.host.to_string(), depot.port, &options).await {
            Ok(socket) => socket,
            Err(error) => return self.known().told.push(format!("via {depot}: {error}")),
        };
        if let Ok(info) = tcp_info(&socket) {
            let mut known = self.known();
            known.told.push(format!("via {depot}: {} away", round(info.srtt)));
            known.near.insert(way, info.srtt);
            known.version += 1;
        }
        let Some((host, route)) = self.route(way) else { return };
        let asked = tokio::time::timeout(ASK.to_std(), report(socket, &route, host)).await;
        match asked.unwrap_or_else(|_| Err("no answer".to_owned())) {
            Ok(series) => {
                // A depot's measurements of sending do not apply to the other direction.
                let fetch = self.reach.as_ref().is_some_and(|reach| reach.fetch);
                self.add_between(way, depot, &series, fetch);
                let ours = |one: &Series| one.to.host == *host;
                let Some(one) = series.into_iter().find(ours) else { return };
                let mut known = self.known();
                known.told.push(format!("via {depot}: it says {}", describe_series(&one)));
                known.beyond.insert(way, Beyond::of(&one, fetch));
                known.version += 1;
            }
            Err(text) => self.known().told.push(format!("via {depot}: {text}")),
        }
    }

    /// Adds forecasts from earlier transfers.
    fn add_forecasts(&self, keep: &HistoryConfig, [from, to]: &[String; 2], alike: &PathFilter) {
        for (name, forecast) in history::path_forecasts(keep, [from, to], alike) {
            let number = self.names.iter().position(|known| *known == name).map(|n| n + 1);
            let number = if name == history::DIRECT { Some(0) } else { number };
            let Some(way) = number.and_then(|n| u8::try_from(n).ok()).map(PathId::numbered) else {
                self.known().others.insert(name, forecast);
                continue;
            };
            let [low, _, high] = forecast.bounds();
            let mut known = self.known();
            let rate = forecast.rate;
            known.told.push(format!("{name}: {rate} ({low} to {high}) by earlier transfers"));
            known.forecasts.insert(way, forecast);
            known.version += 1;
        }
    }
}

/// The round-trip time beyond a depot `near` away, if it is on the path.
fn rest(direct: Duration, near: Duration) -> Duration {
    (direct - near).max(direct.mul_f64(REST))
}

impl Beyond {
    fn of(series: &Series, fetch: bool) -> Self {
        let error = f64::from(series.error_ppm) / 1e6;
        let all = Forecasted { rate: series.rate, error };
        let counts = !fetch && series.age <= FRESH;
        Self { rtt: series.min_rtt, cap: counts.then_some((all, series.each)) }
    }
}

/// Connects to a depot and requests its report.
pub async fn ask(depot: &Place, route: &Route, towards: &Host) -> Result<Vec<Series>, String> {
    in_time(depot, async |socket| report(socket, route, towards).await).await
}

/// Connects to a depot and requests its measurements towards a host.
pub async fn ask_points(
    depot: &Place,
    route: &Route,
    towards: &Host,
) -> Result<Vec<Point>, String> {
    in_time(depot, async |socket| {
        let bytes = answer_to(socket, route, Measure::Points, towards).await?;
        read_points(&bytes).map_err(|e| e.to_string())
    })
    .await
}

/// Connects to a depot and sends a query, with a time limit for both together.
async fn in_time<T>(
    depot: &Place,
    ask: impl AsyncFnOnce(TcpStream) -> Result<T, String>,
) -> Result<T, String> {
    let options = ConnectOptions { timeout: PROBE_TIMEOUT, ..ConnectOptions::default() };
    let asked = async {
        let socket = connect(&depot.host.to_string(), depot.port, &options).await;
        ask(socket.map_err(|e| e.to_string())?).await
    };
    let asked = tokio::time::timeout(PROBE_TIMEOUT.to_std(), asked).await;
    asked.unwrap_or_else(|_| Err("no answer".to_owned()))
}

/// Requests the report of the depot at the other end of `socket`.
async fn report(socket: TcpStream, route: &Route, towards: &Host) -> Result<Vec<Series>, String> {
    let bytes = answer_to(socket, route, Measure::Ask, towards).await?;
    read_report(&bytes).map_err(|e| e.to_string())
}

/// Sends a query to the depot at the other end of `socket` and reads the answer.
async fn answer_to(
    mut socket: TcpStream,
    route: &Route,
    what: Measure,
    towards: &Host,
) -> Result<Vec<u8>, String> {
    let place = Place { host: towards.clone(), port: ANY_PORT };
    let header = route.header_of(Kind::Measure(what), place).map_err(|e| e.to_string())?;
    let broken = |error: std::io::Error| describe(&error);
    socket.write_all(&header).await.map_err(broken)?;
    match read_answer(&socket).await? {
        Answer::Accepted => {}
        Answer::Refused(refusal) => return Err(refusal.to_string()),
    }
    let mut head = [0; REPORT_HEAD];
    socket.read_exact(&mut head).await.map_err(broken)?;
    let len = report_len(&head).map_err(|e| e.to_string())?;
    let mut bytes = Vec::new();
    // Memory grows with the received bytes and not with the length that the peer announced.
    (&mut socket).take(len as u64).read_to_end(&mut bytes).await.map_err(broken)?;
    if bytes.len() != len {
        return Err("the report ends early".to_owned());
    }
    Ok(bytes)
}

/// The text for a series.
fn describe_series(series: &Series) -> String {
    let Series { to, rate, interval: (low, high), samples, age, .. } = series;
    let age = age.as_secs_f64();
    format!("{rate} ({low} to {high}) to {}, {samples} samples, {age:.0} s ago", to.host)
}

/// Rounded to 0.1 ms.
fn round(rtt: Duration) -> String {
    format!("{:.1} ms", rtt.as_secs_f64() * 1e3)
}

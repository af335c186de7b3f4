//! `--via auto`: the ways that a transfer may take, and what is known of them before it tries them.
//!
//! The depots and the history are asked while the transfer begins directly; nothing waits for
//! them. The end that called knows the depots and makes the connections over them; the end that
//! sends chooses. Where these are two, the one tells the other what it knows (`remote`).

mod remote;

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;

use packtrain_net::tcp::{ConnectOptions, connect, tcp_info};
use packtrain_plan::route::{Forecasted, PathId, PathSelector};
use packtrain_session::measure::{
    Measure, Point, REPORT_HEAD, Series, read_points, read_report, report_len,
};
use packtrain_session::{Answer, Host, Kind, Place};
use packtrain_units::{DataRate, Duration};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use packtrain_hops::read_answer;
use packtrain_hops::route::Route;
use packtrain_service::history::{self, PathFilter};
use packtrain_service::{HistoryConfig, RequestError, executor};

/// A depot that does not answer by then is not asked further; it may still be tried.
const ASK: Duration = Duration::from_secs(2);
/// How long a user waits who asks a depot and does nothing else.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// The most depots to choose from.
pub const MAX_DEPOTS: usize = 16;
/// A port for a question about a host.
const ANY_PORT: u16 = 1;
/// What a depot measured earlier says less than nothing.
const FRESH: Duration = Duration::from_secs(1800);
/// The part beyond a depot is no shorter than this part of the direct round trip.
const REST: f64 = 0.1;

/// The ways of one transfer.
pub struct CandidatePaths {
    /// What the ways over depots are called, in their order.
    names: Vec<String>,
    /// How they are reached; none where only the other end can.
    reach: Option<Reach>,
    known: Mutex<Known>,
}

/// How the other end is reached over each of them.
struct Reach {
    /// The other end.
    host: Host,
    /// Bytes come from there.
    fetch: bool,
    routes: Vec<Arc<Route>>,
}

/// A transfer that has a choice.
pub struct Task {
    /// The other end, as depots find it.
    pub host: Host,
    /// Bytes come from there, and do not go there.
    pub fetch: bool,
    /// From where to where, as the history calls the two.
    pub ends: [String; 2],
    /// Earlier transfers that count.
    pub alike: PathFilter,
}

/// What was found out.
#[derive(Default)]
struct Known {
    /// The round trip to each way's first depot.
    near: BTreeMap<PathId, Duration>,
    forecasts: BTreeMap<PathId, Forecasted>,
    /// What each way's depot says of the part behind it.
    beyond: BTreeMap<PathId, Beyond>,
    told: Vec<String>,
    /// Rises when more is known.
    version: u32,
}

/// The part of a way behind its depot.
#[derive(Clone, Debug, Default)]
struct Beyond {
    /// Its round trip, if that was measured.
    rtt: Option<Duration>,
    /// What it carries from the depot on, in all and for each stream.
    cap: Option<(Forecasted, DataRate)>,
}

impl std::fmt::Debug for CandidatePaths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CandidatePaths({})", self.names.join(" or "))
    }
}

impl CandidatePaths {
    /// CandidatePaths over one of these depots each; begins to ask what is known of them.
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
        let names = routes.iter().map(|route| format!("via {route}")).collect();
        let reach = Some(Reach { host, fetch, routes });
        let ways = Arc::new(Self { names, reach, known: Mutex::default() });
        for (n, depot) in depots.iter().take(MAX_DEPOTS).enumerate() {
            let (ways, depot) = (Arc::clone(&ways), depot.clone());
            let way = PathId::numbered(n as u8 + 1);
            executor::handle().spawn(async move { ways.ask(way, &depot).await });
        }
        let (keep, asked) = (keep.clone(), Arc::clone(&ways));
        executor::handle().spawn_blocking(move || asked.remember(&keep, &ends, &alike));
        Ok(ways)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }

    /// The other end, and the route to it of a way over depots, if that begins here.
    pub(crate) fn route(&self, way: PathId) -> Option<(&Host, &Route)> {
        let reach = self.reach.as_ref()?;
        let route = reach.routes.get(way.index().checked_sub(1)?)?;
        Some((&reach.host, route))
    }

    /// What the ways over depots are called, in their order.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// What was found out of them, in sentences.
    pub(crate) fn told(&self) -> Vec<String> {
        self.known().told.clone()
    }

    /// Tells the chooser what is known now, `rtt` being the direct path's round trip.
    pub(crate) fn inform(&self, pilot: &mut PathSelector, rtt: Option<Duration>) {
        let known = self.known();
        for (way, near) in &known.near {
            let Some(rtt) = rtt else { continue };
            let measured = known.beyond.get(way).and_then(|beyond| beyond.rtt);
            let beyond = measured.unwrap_or_else(|| (rtt - *near).max(rtt.mul_f64(REST)));
            pilot.set_hops(*way, vec![*near, beyond]);
        }
        for (way, (all, each)) in known.beyond.iter().filter_map(|(way, b)| Some((way, b.cap?))) {
            pilot.set_cap(*way, all, each);
        }
        for (way, forecast) in &known.forecasts {
            pilot.set_forecast(*way, *forecast);
        }
    }

    /// How far a depot is, and what it knows of the part behind it.
    async fn ask(&self, way: PathId, depot: &Place) {
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
        let asked = tokio::time::timeout(ASK.to_std(), report(socket, route, host)).await;
        match asked.unwrap_or_else(|_| Err("no answer".to_owned())) {
            Ok(series) => {
                let ours = |one: &Series| one.to.host == *host;
                let Some(one) = series.into_iter().find(ours) else { return };
                // What it sent there says nothing of what comes from there.
                let fetch = self.reach.as_ref().is_some_and(|reach| reach.fetch);
                let mut known = self.known();
                known.told.push(format!("via {depot}: it says {}", told(&one)));
                known.beyond.insert(way, Beyond::of(&one, fetch));
                known.version += 1;
            }
            Err(text) => self.known().told.push(format!("via {depot}: {text}")),
        }
    }

    /// What earlier transfers measured.
    fn remember(&self, keep: &HistoryConfig, [from, to]: &[String; 2], alike: &PathFilter) {
        for (name, forecast) in history::path_forecasts(keep, [from, to], alike) {
            let number = self.names.iter().position(|known| *known == name).map(|n| n + 1);
            let number = if name == history::DIRECT { Some(0) } else { number };
            let Some(way) = number.and_then(|n| u8::try_from(n).ok()).map(PathId::numbered) else {
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

impl Beyond {
    fn of(series: &Series, fetch: bool) -> Self {
        let error = f64::from(series.error_ppm) / 1e6;
        let all = Forecasted { rate: series.rate, error };
        let counts = !fetch && series.age <= FRESH;
        Self { rtt: series.min_rtt, cap: counts.then_some((all, series.each)) }
    }
}

/// Connects to a depot and asks for its report.
pub async fn ask(depot: &Place, route: &Route, towards: &Host) -> Result<Vec<Series>, String> {
    in_time(depot, async |socket| report(socket, route, towards).await).await
}

/// Connects to a depot and asks what it measured towards a host.
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

/// Connects to a depot and asks, with patience for both together.
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

/// Asks the depot at the other end of `socket` for its report.
async fn report(socket: TcpStream, route: &Route, towards: &Host) -> Result<Vec<Series>, String> {
    let bytes = answer_to(socket, route, Measure::Ask, towards).await?;
    read_report(&bytes).map_err(|e| e.to_string())
}

/// What the depot at the other end of `socket` answers to a question.
async fn answer_to(
    mut socket: TcpStream,
    route: &Route,
    what: Measure,
    towards: &Host,
) -> Result<Vec<u8>, String> {
    let place = Place { host: towards.clone(), port: ANY_PORT };
    let header = route.header_of(Kind::Measure(what), place).map_err(|e| e.to_string())?;
    let broken = |error: std::io::Error| error.to_string();
    socket.write_all(&header).await.map_err(broken)?;
    match read_answer(&socket).await? {
        Answer::Accepted => {}
        Answer::Refused(refusal) => return Err(refusal.to_string()),
    }
    let mut head = [0; REPORT_HEAD];
    socket.read_exact(&mut head).await.map_err(broken)?;
    let len = report_len(&head).map_err(|e| e.to_string())?;
    let mut bytes = Vec::new();
    // As it comes, so that nothing is taken on a peer's word.
    (&mut socket).take(len as u64).read_to_end(&mut bytes).await.map_err(broken)?;
    if bytes.len() != len {
        return Err("the report ends early".to_owned());
    }
    Ok(bytes)
}

/// A series, for people.
fn told(series: &Series) -> String {
    let Series { to, rate, interval: (low, high), samples, age, .. } = series;
    let age = age.as_secs_f64();
    format!("{rate} ({low} to {high}) to {}, {samples} samples, {age:.0} s ago", to.host)
}

/// To a tenth of a millisecond.
fn round(rtt: Duration) -> String {
    format!("{:.1} ms", rtt.as_secs_f64() * 1e3)
}

//! Forecasts of a path, from measurements in the history and in foreign archives.

pub mod perfsonar;

use std::sync::Arc;

use packtrain_os::clock;
use packtrain_plan::forecast::{Battery, Forecast};
use packtrain_units::{ByteCount, DataRate, Duration};

use packtrain_session::measure::Point;
pub use packtrain_session::measure::{Sensor, Series as HopSeries};
use packtrain_session::{Host, Place};
use packtrain_transfer::FailureKind;

use packtrain_hops::route::Route;
use packtrain_runtime::candidate_paths;
use packtrain_service::history::{HistoryError, Wanted, find};
use packtrain_service::{HistoryConfig, RequestError, executor};

/// A measured throughput from one machine to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measurement {
    /// Its time, since 1970.
    pub at: Duration,
    /// The throughput.
    pub rate: DataRate,
    /// Minimum round-trip time, if known.
    pub rtt: Option<Duration>,
}

/// Which measurements of the history to use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathQuery {
    /// The sending machine, as the user named it.
    pub from: String,
    /// The receiving machine.
    pub to: String,
    /// Only measurements of this transport.
    pub transport: Option<String>,
    /// Only transfers that began since this time.
    pub since: Option<Duration>,
    /// The rate of a smaller transfer depends more on its start than on the path.
    pub least: ByteCount,
}

/// The forecast of a path.
#[derive(Clone, Debug)]
pub struct PathForecast {
    /// Throughput, in bit/s.
    pub throughput: Forecast,
    /// Minimum round-trip time in seconds, if any was measured.
    pub rtt: Option<Forecast>,
    /// The name and the mean absolute error of each method, in bit/s.
    pub methods: Vec<(String, f64)>,
    /// The newest measurement.
    pub newest: Measurement,
}

/// The measurements of a path in the history, the oldest first.
///
/// # Errors
/// The history cannot be read.
pub fn from_history(
    keep: &HistoryConfig,
    asked: &PathQuery,
) -> Result<Vec<Measurement>, HistoryError> {
    let wanted = Wanted {
        host: Some(asked.from.clone()),
        transport: asked.transport.clone(),
        since: asked.since,
        ..Wanted::default()
    };
    let rows = find(keep, &wanted.begun_by(clock::wall()))?;
    let counts = rows.iter().rev().filter(|row| {
        row.from_host == asked.from
            && row.to_host == asked.to
            && row.bytes_moved >= asked.least
            && row.measures_path()
            && row.throughput > DataRate::ZERO
    });
    Ok(counts
        .map(|row| Measurement { at: row.began, rate: row.throughput, rtt: row.rtt })
        .collect())
}

/// A depot's forecasts of its hop to `to`, a host or another depot.
///
/// # Errors
/// The depot cannot be reached, or refuses.
pub fn depot_forecasts(depot: &Place, to: &str) -> Result<Vec<HopSeries>, RequestError> {
    let place = to.parse::<Place>().ok();
    let host = host_of(to)?;
    let away = |text: String| RequestError::new(FailureKind::Temporary, format!("{depot}: {text}"));
    let route = route_to(depot)?;
    let mut found =
        executor::handle().block_on(candidate_paths::ask(depot, &route, &host)).map_err(away)?;
    found.retain(|series| {
        let depot = place.as_ref().is_none_or(|place| series.to == *place);
        series.to.host == host && depot
    });
    Ok(found)
}

/// All measurements of a depot's hops to the host of `to`, the oldest first.
///
/// # Errors
/// The depot cannot be reached, or refuses.
pub fn depot_measurements(depot: &Place, to: &str) -> Result<Vec<Measurement>, RequestError> {
    let (host, route) = (host_of(to)?, route_to(depot)?);
    let asked = executor::handle().block_on(candidate_paths::ask_points(depot, &route, &host));
    let away = |text: String| RequestError::new(FailureKind::Temporary, format!("{depot}: {text}"));
    let points = asked.map_err(away)?;
    let measurement =
        |point: Point| Measurement { at: point.at, rate: point.rate, rtt: point.min_rtt };
    Ok(points.into_iter().map(measurement).collect())
}

/// The host in the name of a host or a depot.
fn host_of(to: &str) -> Result<Host, RequestError> {
    if let Ok(place) = to.parse::<Place>() {
        return Ok(place.host);
    }
    Host::parse(to)
        .map_err(|error| RequestError::new(FailureKind::Usage, format!("{to} is {error}")))
}

/// The route with a depot as its end.
fn route_to(depot: &Place) -> Result<Arc<Route>, RequestError> {
    let route = Route::over(std::slice::from_ref(depot), &[])?;
    route.ok_or_else(|| RequestError::new(FailureKind::Temporary, format!("{depot}: no route")))
}

/// Pairs of machines with transfers in the history, and the number of transfers, the newest first.
/// They help a user who mistyped a name.
///
/// # Errors
/// The history cannot be read.
pub fn known_paths(keep: &HistoryConfig) -> Result<Vec<(String, String, usize)>, HistoryError> {
    let mut known: Vec<(String, String, usize)> = Vec::new();
    for row in find(keep, &Wanted::default().begun_by(clock::wall()))? {
        if row.throughput == DataRate::ZERO || !row.measures_path() {
            continue;
        }
        match known.iter_mut().find(|(from, to, _)| *from == row.from_host && *to == row.to_host) {
            Some((.., count)) => *count += 1,
            None => known.push((row.from_host, row.to_host, 1)),
        }
    }
    Ok(known)
}

/// The forecast from measurements in any order; `None` without measurements.
pub fn path_forecast(measurements: &[Measurement]) -> Option<PathForecast> {
    let mut ordered = measurements.to_vec();
    ordered.sort_by_key(|one| one.at);
    let newest = *ordered.last()?;
    let (mut throughput, mut rtt) = (Battery::new(), Battery::new());
    for one in &ordered {
        // Rates and times are finite and not negative, so `learn` accepts them.
        let _ = throughput.learn(one.rate.as_bps() as f64);
        if let Some(time) = one.rtt {
            let _ = rtt.learn(time.as_secs_f64());
        }
    }
    let methods = throughput.methods().map(|(method, error)| (method.to_string(), error));
    Some(PathForecast {
        methods: methods.collect(),
        throughput: throughput.forecast()?,
        rtt: rtt.forecast(),
        newest,
    })
}

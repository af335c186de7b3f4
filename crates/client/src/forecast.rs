//! What a path will give: measurements of it from the history and from other people's archives,
//! and the forecast that they allow.

pub mod perfsonar;

use std::sync::Arc;

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

/// A throughput that was measured from one machine to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measurement {
    /// When, since 1970.
    pub at: Duration,
    /// How much.
    pub rate: DataRate,
    /// The least round trip, where it is known.
    pub rtt: Option<Duration>,
}

/// Which measurements of the history count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Where the bytes came from, as the user named it.
    pub from: String,
    /// Where they went.
    pub to: String,
    /// Only those of this transport.
    pub transport: Option<String>,
    /// Only those begun since then.
    pub since: Option<Duration>,
    /// Shorter transfers tell more of their start than of the path.
    pub least: ByteCount,
}

/// What comes next.
#[derive(Clone, Debug)]
pub struct Outlook {
    /// Throughput, in bit/s.
    pub throughput: Forecast,
    /// Least round trip, in seconds, if any was measured.
    pub rtt: Option<Forecast>,
    /// How wrong each method was so far: its name and the mean size of its errors, in bit/s.
    pub methods: Vec<(String, f64)>,
    /// The newest measurement.
    pub newest: Measurement,
}

/// What the history knows of a path, the oldest first.
///
/// # Errors
/// The history cannot be read.
pub fn from_history(keep: &HistoryConfig, asked: &Asked) -> Result<Vec<Measurement>, HistoryError> {
    let wanted = Wanted {
        host: Some(asked.from.clone()),
        transport: asked.transport.clone(),
        since: asked.since,
        ..Wanted::default()
    };
    let rows = find(keep, &wanted)?;
    let counts = rows.iter().rev().filter(|row| {
        row.from_host == asked.from
            && row.to_host == asked.to
            && row.bytes_moved >= asked.least
            && row.held_by.is_none()
            && row.throughput > DataRate::ZERO
    });
    Ok(counts
        .map(|row| Measurement { at: row.began, rate: row.throughput, rtt: row.rtt })
        .collect())
}

/// What a depot measured of its hop to `to`, a host or another depot's place.
///
/// # Errors
/// The depot cannot be asked, or refuses.
pub fn of_depot(depot: &Place, to: &str) -> Result<Vec<HopSeries>, RequestError> {
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

/// Each measurement that a depot has of its hops to the host of `to`, the oldest first.
///
/// # Errors
/// The depot cannot be asked, or refuses.
pub fn measured_by_depot(depot: &Place, to: &str) -> Result<Vec<Measurement>, RequestError> {
    let (host, route) = (host_of(to)?, route_to(depot)?);
    let asked = executor::handle().block_on(candidate_paths::ask_points(depot, &route, &host));
    let away = |text: String| RequestError::new(FailureKind::Temporary, format!("{depot}: {text}"));
    let points = asked.map_err(away)?;
    let measurement =
        |point: Point| Measurement { at: point.at, rate: point.rate, rtt: point.min_rtt };
    Ok(points.into_iter().map(measurement).collect())
}

/// The host of a host's or a depot's name.
fn host_of(to: &str) -> Result<Host, RequestError> {
    if let Ok(place) = to.parse::<Place>() {
        return Ok(place.host);
    }
    Host::parse(to)
        .map_err(|error| RequestError::new(FailureKind::Usage, format!("{to} is {error}")))
}

/// The route that ends at a depot.
fn route_to(depot: &Place) -> Result<Arc<Route>, RequestError> {
    let route = Route::over(std::slice::from_ref(depot), &[])?;
    route.ok_or_else(|| RequestError::new(FailureKind::Temporary, format!("{depot}: no route")))
}

/// Pairs of machines that the history has transfers between, with how many, the newest first: what
/// a user who mistyped a name wants to see.
///
/// # Errors
/// The history cannot be read.
pub fn known_paths(keep: &HistoryConfig) -> Result<Vec<(String, String, usize)>, HistoryError> {
    let mut known: Vec<(String, String, usize)> = Vec::new();
    for row in find(keep, &Wanted::default())? {
        if row.throughput == DataRate::ZERO || row.held_by.is_some() {
            continue;
        }
        match known.iter_mut().find(|(from, to, _)| *from == row.from_host && *to == row.to_host) {
            Some((.., count)) => *count += 1,
            None => known.push((row.from_host, row.to_host, 1)),
        }
    }
    Ok(known)
}

/// What measurements in any order say of the next; nothing if there is none.
pub fn outlook(measurements: &[Measurement]) -> Option<Outlook> {
    let mut ordered = measurements.to_vec();
    ordered.sort_by_key(|one| one.at);
    let newest = *ordered.last()?;
    let (mut throughput, mut rtt) = (Battery::new(), Battery::new());
    for one in &ordered {
        // Rates and times are finite and not below zero, so nothing is refused.
        let _ = throughput.learn(one.rate.as_bps() as f64);
        if let Some(time) = one.rtt {
            let _ = rtt.learn(time.as_secs_f64());
        }
    }
    let methods = throughput.methods().map(|(method, error)| (method.to_string(), error));
    Some(Outlook {
        methods: methods.collect(),
        throughput: throughput.forecast()?,
        rtt: rtt.forecast(),
        newest,
    })
}

//! Forecasts of the paths between this machine and another, from earlier transfers.

use std::collections::BTreeMap;

use packtrain_history::{Filter, Role, Row, Side};
use packtrain_os::clock;
use packtrain_plan::forecast::Battery;
use packtrain_plan::route::Forecasted;
use packtrain_units::{ByteCount, DataRate, Duration};

use super::{find, this_machine};
use crate::{HistoryConfig, PathReport, StreamsReport};

/// The name of the path without depots.
pub const DIRECT: &str = "direct";
/// Maximum number of rows; the newest are used.
const MAX_ROWS: u32 = 200;
/// Maximum age of a row: the path may have changed since.
const RECENT: Duration = Duration::from_secs(30 * 86_400);
/// The rate of a shorter transfer depends more on its start than on the path.
const LONG_ENOUGH: Duration = Duration::from_secs(2);
/// A path that moved at least this share of a transfer is the path of that transfer.
const MAIN_SHARE: f64 = 0.8;

/// Which transfers to use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathFilter {
    /// Only transfers with this number of streams.
    pub streams: Option<u32>,
    /// Only transfers with this congestion control.
    pub congestion: Option<String>,
}

/// The expected rate of all streams together for each path between two machines, by the path's
/// name. One of the machines is this one. A history that cannot be read gives no forecasts.
pub fn path_forecasts(
    keep: &HistoryConfig,
    [from, to]: [&str; 2],
    filter: &PathFilter,
) -> BTreeMap<String, Forecasted> {
    let wanted = Filter {
        host: Some(this_machine()),
        since: Some(clock::wall().saturating_sub(RECENT)),
        most: Some(MAX_ROWS),
        ..Filter::default()
    };
    let rows = find(keep, &wanted.begun_by(clock::wall())).unwrap_or_default();
    forecasts(rows.iter().rev(), from, to, filter)
}

/// Forecasts from rows, the oldest first.
fn forecasts<'a>(
    rows: impl Iterator<Item = &'a Row>,
    from: &str,
    to: &str,
    filter: &PathFilter,
) -> BTreeMap<String, Forecasted> {
    let mut series: BTreeMap<String, Battery> = BTreeMap::new();
    for row in rows {
        let streams = filter.streams.is_none_or(|n| row.streams == Some(n));
        let congestion = filter.congestion.is_none() || row.tcp_cc == filter.congestion;
        if !row.measures_path() {
            continue;
        }
        if row.from_host != from || row.transport != "tcp" || !streams || !congestion {
            continue;
        }
        for (way, rate) in measured(row, to) {
            // `learn` refuses only rates that are infinite or negative.
            let _ = series.entry(way).or_default().learn(rate.as_bps() as f64);
        }
    }
    let forecasts = series.into_iter().filter_map(|(way, battery)| {
        let forecast = battery.forecast()?;
        let rate = DataRate::from_bps(forecast.value as u64);
        Some((way, Forecasted { rate, error: forecast.relative_error }))
    });
    forecasts.collect()
}

/// The rates of the paths to `to` that a row contains.
fn measured(row: &Row, to: &str) -> Vec<(String, DataRate)> {
    // A machine and its depots, named as in `CpRequest::remote_name`.
    let Some(rest) = row.to_host.strip_prefix(to) else { return Vec::new() };
    if !rest.is_empty() && !rest.starts_with(" via ") {
        return Vec::new();
    }
    let each = row.tcp_info.as_deref().and_then(|text| {
        let mut info: serde_json::Value = serde_json::from_str(text).ok()?;
        serde_json::from_value::<Vec<PathReport>>(info.get_mut("ways")?.take()).ok()
    });
    if let Some(each) = each {
        let steady = |way: PathReport| Some((way.way, way.rate?));
        return each.into_iter().filter_map(steady).collect();
    }
    if row.elapsed < LONG_ENOUGH || row.throughput == DataRate::ZERO {
        return Vec::new();
    }
    let name = if rest.is_empty() { DIRECT } else { rest.trim_start() };
    vec![(name.to_owned(), row.throughput)]
}

/// Sets the path in the row of a transfer that chose between several.
pub(super) fn of_ways(row: &mut Row, report: &StreamsReport) {
    let chose = matches!(row.role, Role::Source | Role::Sink) && row.side == Side::Caller;
    if report.ways.is_empty() || !chose {
        return;
    }
    let all: ByteCount = report.ways.iter().map(|way| way.bytes).sum();
    let most = |way: &&PathReport| way.bytes.get() as f64 >= all.get() as f64 * MAIN_SHARE;
    match report.ways.iter().find(most) {
        Some(way) if way.way == DIRECT => {}
        Some(way) => row.to_host = format!("{} {}", row.to_host, way.way),
        None => row.to_host.push_str(" via auto"),
    }
}

#[cfg(test)]
mod tests {
    use packtrain_history::Ended;

    use super::*;

    fn row(to: &str, mbps: u64) -> Row {
        Row {
            side: Side::Caller,
            role: Role::Source,
            from_host: "a".to_owned(),
            to_host: to.to_owned(),
            transport: "tcp".to_owned(),
            streams: Some(1),
            tcp_cc: Some("reno".to_owned()),
            elapsed: Duration::from_secs(9),
            throughput: DataRate::from_mbps(mbps),
            ..Row::default()
        }
    }

    fn way(name: &str, bytes: u64, mbps: Option<u64>) -> PathReport {
        let rate = mbps.map(DataRate::from_mbps);
        PathReport { way: name.to_owned(), bytes: ByteCount(bytes), rate, ..PathReport::default() }
    }

    #[test]
    fn rows_are_told_by_their_ways() {
        let mut chosen = row("b", 30);
        let report = StreamsReport {
            ways: vec![way(DIRECT, 10, Some(14)), way("via d:1", 90, Some(40))],
            ..StreamsReport::default()
        };
        of_ways(&mut chosen, &report);
        assert_eq!(chosen.to_host, "b via d:1");
        let info = serde_json::json!({ "ways": report.ways });
        chosen.tcp_info = Some(info.to_string());
        let rows = [
            row("b", 12),
            row("b via d:1", 38),
            row("bc", 999),
            row("b via e:1", 5),
            Row { streams: Some(9), ..row("b", 999) },
            Row { held_by: Some("rate".to_owned()), ..row("b", 1) },
            Row { ended: Ended::Failed, ..row("b", 1) },
            Row { ended: Ended::Cancelled, ..row("b via g:1", 1) },
            Row { ended: Ended::Running, ..row("b via h:1", 1) },
            Row { held_by: Some("policy".to_owned()), ..row("b via f:1", 1) },
            Row { tcp_cc: Some("cubic".to_owned()), ..row("b", 999) },
            chosen,
        ];
        let filter = PathFilter { streams: Some(1), congestion: Some("reno".to_owned()) };
        let found = forecasts(rows.iter(), "a", "b", &filter);
        let names: Vec<&str> = found.keys().map(String::as_str).collect();
        assert_eq!(names, [DIRECT, "via d:1", "via e:1"]);
        assert!(found[DIRECT].rate <= DataRate::from_mbps(14));
        assert!(found["via d:1"].rate >= DataRate::from_mbps(38));
    }

    #[test]
    fn a_mixture_is_none_of_its_parts() {
        let mut mixed = row("b", 30);
        let ways = vec![way(DIRECT, 50, None), way("via d:1", 50, None)];
        of_ways(&mut mixed, &StreamsReport { ways, ..StreamsReport::default() });
        assert_eq!(mixed.to_host, "b via auto");
        let mut direct = row("b", 30);
        let ways = vec![way(DIRECT, 50, None), way("via d:1", 2, None)];
        of_ways(&mut direct, &StreamsReport { ways, ..StreamsReport::default() });
        assert_eq!(direct.to_host, "b");
    }
}

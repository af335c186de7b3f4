//! What earlier transfers say of the ways between here and another machine.

use std::collections::BTreeMap;

use packtrain_history::{Filter, Role, Row, Side};
use packtrain_os::clock;
use packtrain_plan::forecast::Battery;
use packtrain_plan::route::Forecasted;
use packtrain_units::{ByteCount, DataRate, Duration};

use super::{find, this_machine};
use crate::{HistoryConfig, StreamsReport, WayReport};

/// The name of the way without depots.
pub const DIRECT: &str = "direct";
/// Rows that are looked at: the newest say most.
const ROWS: u32 = 200;
/// A path of a month ago may have become another.
const RECENT: Duration = Duration::from_secs(30 * 86_400);
/// What is shorter says more of its start than of the way.
const LONG_ENOUGH: Duration = Duration::from_secs(2);
/// A way that moved this part of a transfer is what the transfer took.
const NEARLY_ALL: f64 = 0.8;

/// What counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Alike {
    /// Only transfers with so many streams.
    pub streams: Option<u32>,
    /// Only under this congestion control.
    pub congestion: Option<String>,
}

/// What all streams together are expected to move over each way between two machines, of which one
/// is this, by the way's name. A history that cannot be read says nothing.
pub fn ways(
    keep: &HistoryConfig,
    [from, to]: [&str; 2],
    alike: &Alike,
) -> BTreeMap<String, Forecasted> {
    let wanted = Filter {
        host: Some(this_machine()),
        since: Some(clock::wall().saturating_sub(RECENT)),
        most: Some(ROWS),
        ..Filter::default()
    };
    let rows = find(keep, &wanted).unwrap_or_default();
    forecasts(rows.iter().rev(), from, to, alike)
}

/// From rows, the oldest first.
fn forecasts<'a>(
    rows: impl Iterator<Item = &'a Row>,
    from: &str,
    to: &str,
    alike: &Alike,
) -> BTreeMap<String, Forecasted> {
    let mut series: BTreeMap<String, Battery> = BTreeMap::new();
    for row in rows {
        let streams = alike.streams.is_none_or(|n| row.streams == Some(n));
        let congestion = alike.congestion.is_none() || row.tcp_cc == alike.congestion;
        // What was held says nothing of the way.
        if row.held_by.is_some() {
            continue;
        }
        if row.from_host != from || row.transport != "tcp" || !streams || !congestion {
            continue;
        }
        for (way, rate) in measured(row, to) {
            // A rate is finite and not below zero.
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

/// What a row measured of ways to `to`.
fn measured(row: &Row, to: &str) -> Vec<(String, DataRate)> {
    // A machine and its depots, as `over` of a request names them.
    let Some(rest) = row.to_host.strip_prefix(to) else { return Vec::new() };
    if !rest.is_empty() && !rest.starts_with(" via ") {
        return Vec::new();
    }
    let each = row.tcp_info.as_deref().and_then(|text| {
        let mut info: serde_json::Value = serde_json::from_str(text).ok()?;
        serde_json::from_value::<Vec<WayReport>>(info.get_mut("ways")?.take()).ok()
    });
    if let Some(each) = each {
        let steady = |way: WayReport| Some((way.way, way.rate?));
        return each.into_iter().filter_map(steady).collect();
    }
    if row.elapsed < LONG_ENOUGH || row.throughput == DataRate::ZERO {
        return Vec::new();
    }
    let name = if rest.is_empty() { DIRECT } else { rest.trim_start() };
    vec![(name.to_owned(), row.throughput)]
}

/// Names the way in the row of a transfer that had a choice.
pub(super) fn of_ways(row: &mut Row, report: &StreamsReport) {
    let chose = matches!(row.role, Role::Source | Role::Sink) && row.side == Side::Caller;
    if report.ways.is_empty() || !chose {
        return;
    }
    let all: ByteCount = report.ways.iter().map(|way| way.bytes).sum();
    let most = |way: &&WayReport| way.bytes.get() as f64 >= all.get() as f64 * NEARLY_ALL;
    match report.ways.iter().find(most) {
        Some(way) if way.way == DIRECT => {}
        Some(way) => row.to_host = format!("{} {}", row.to_host, way.way),
        None => row.to_host.push_str(" via auto"),
    }
}

#[cfg(test)]
mod tests {
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

    fn way(name: &str, bytes: u64, mbps: Option<u64>) -> WayReport {
        let rate = mbps.map(DataRate::from_mbps);
        WayReport { way: name.to_owned(), bytes: ByteCount(bytes), rate, ..WayReport::default() }
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
            Row { held_by: Some("policy".to_owned()), ..row("b via f:1", 1) },
            Row { tcp_cc: Some("cubic".to_owned()), ..row("b", 999) },
            chosen,
        ];
        let alike = Alike { streams: Some(1), congestion: Some("reno".to_owned()) };
        let found = forecasts(rows.iter(), "a", "b", &alike);
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

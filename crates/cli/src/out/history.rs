//! The output of `history`.

mod tcp;

use packtrain_service::history::{Point, Row, Value, column_names, values};
use packtrain_units::{ByteCount, DataRate, date};
use serde_json::{Map, Number, Value as Json};

use super::summary::time;
use super::{clean, json_line, line};

/// Columns that contain JSON.
const NESTED: &[&str] = &["transports", "series", "stream_samples", "tcp_info"];

/// Prints one line per transfer, the newest first.
pub(crate) fn list(rows: &[Row]) {
    let mut table = vec![
        ["id", "began (UTC)", "what", "over", "bytes", "rate", "time", "ended", "from -> to"]
            .map(str::to_owned),
    ];
    table.extend(rows.iter().map(cells));
    let width = |i: usize| table.iter().map(|row| row[i].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..table[0].len()).map(width).collect();
    for row in &table {
        let padded = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        line(padded.collect::<Vec<_>>().join("  ").trim_end());
    }
}

fn cells(row: &Row) -> [String; 9] {
    let streams = row.streams.filter(|n| *n > 1).map(|n| format!(" x{n}")).unwrap_or_default();
    [
        row.id.clone(),
        date::time(row.began),
        row.kind.word().to_owned(),
        clean(&format!("{}{streams}", row.transport)),
        row.bytes_moved.to_string(),
        rate(row.throughput),
        time(row.elapsed),
        row.ended.word().to_owned(),
        one_line(&format!(
            "{} -> {}",
            end(&row.source, &row.from_host),
            end(&row.target, &row.to_host)
        )),
    ]
}

/// A location as given, or the machine if the row has no location.
fn end<'a>(place: &'a str, host: &'a str) -> &'a str {
    if place.is_empty() { host } else { place }
}

fn rate(rate: DataRate) -> String {
    if rate == DataRate::ZERO { "-".to_owned() } else { rate.to_string() }
}

fn one_line(text: &str) -> String {
    clean(text)
}

/// Prints all columns of one transfer.
pub(crate) fn whole(row: &Row) {
    let cell_line = |name: &str, text: String| {
        if !text.is_empty() {
            line(&format!("{name:<14} {}", one_line(&text)));
        }
    };
    let count = |n: Option<u64>| n.map(|n| n.to_string()).unwrap_or_default();
    let share = |x: Option<f64>| x.map(|x| format!("{:.0} %", x * 100.0)).unwrap_or_default();
    cell_line("id", row.id.clone());
    cell_line("what", format!("{} ({}, {})", row.kind.word(), row.side.word(), row.role.word()));
    cell_line("began", format!("{} UTC", date::time(row.began)));
    cell_line("ended", row.ended.word().to_owned());
    cell_line("error", row.error.clone().unwrap_or_default());
    cell_line("exit code", row.exit_code.map(|code| code.to_string()).unwrap_or_default());
    cell_line("from", format!("{}  ({})", row.source, row.from_host));
    cell_line("to", format!("{}  ({})", row.target, row.to_host));
    cell_line("peer", row.peer.clone());
    cell_line("at", format!("{} for {}, process {}", row.host, row.login, row.pid));
    cell_line("transport", row.transport.clone());
    for one in &row.transports {
        cell_line("", format!("{}: {}", one.transport, one.bytes));
    }
    cell_line("controller", row.controller.clone());
    cell_line("streams", row.streams.map(|n| n.to_string()).unwrap_or_default());
    cell_line("object", row.bytes.to_string());
    cell_line("moved", format!("{} in {}", row.bytes_moved, time(row.elapsed)));
    cell_line("files", format!("{} moved, {} failed", row.files, row.failed_files));
    cell_line("throughput", rate(row.throughput));
    cell_line("over time", curve(&row.series));
    cell_line("sent again", some(row.retransmitted));
    cell_line("least RTT", row.rtt.map(time).unwrap_or_default());
    cell_line("last RTT", row.srtt.map(time).unwrap_or_default());
    cell_line("packets sent", count(row.packets_sent));
    cell_line("packets lost", count(row.packets_lost));
    cell_line("host drops", count(row.host_drops));
    cell_line("loss cause", row.loss_cause.clone().unwrap_or_default());
    cell_line("held by", row.held_by.clone().unwrap_or_default());
    cell_line("verdict", row.verdict.clone().unwrap_or_default());
    cell_line("TCP control", row.tcp_cc.clone().unwrap_or_default());
    for text in row.tcp_info.as_deref().map(tcp::lines).unwrap_or_default() {
        cell_line("TCP", text);
    }
    for sample in &row.stream_samples {
        cell_line("measured", format!("{} streams: {}", sample.streams, sample.throughput));
    }
    cell_line("load", row.load.map(|load| format!("{load:.2}")).unwrap_or_default());
    cell_line("source busy", share(row.source_busy));
    cell_line("target busy", share(row.target_busy));
    if row.evidence.is_some() {
        cell_line("more", format!("packtrain diagnose {}", row.id));
    }
}

fn some(bytes: ByteCount) -> String {
    if bytes == ByteCount::ZERO { String::new() } else { bytes.to_string() }
}

/// Throughput over time as a line of bars, with the value of the highest bar.
fn curve(points: &[Point]) -> String {
    const MAX_BARS: usize = 48;
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let Some(best) = points.iter().map(|point| point.rate).max().filter(|r| *r > DataRate::ZERO)
    else {
        return String::new();
    };
    // A long transfer has more points than a line has columns: neighbours share a bar.
    let bar = |points: &[Point]| {
        let sum: f64 = points.iter().map(|point| point.rate.as_bps() as f64).sum();
        let share = sum / points.len() as f64 / best.as_bps() as f64;
        BARS[((share * BARS.len() as f64) as usize).min(BARS.len() - 1)]
    };
    let bars: String = points.chunks(points.len().div_ceil(MAX_BARS)).map(bar).collect();
    format!("{bars} at most {best}")
}

/// Prints one JSON object a line, with the columns as fields.
pub(crate) fn json_lines(rows: &[Row]) {
    for row in rows {
        let fields = values(row).map(|(name, value)| (name.to_owned(), json(name, value)));
        json_line(&fields.collect::<Map<_, _>>());
    }
}

fn json(name: &str, value: Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Int(n) => n.into(),
        Value::Real(x) => Number::from_f64(x).map_or(Json::Null, Json::Number),
        Value::Text(text) if NESTED.contains(&name) => {
            let none = if name == "tcp_info" { Json::Null } else { Json::Array(Vec::new()) };
            serde_json::from_str(&text).unwrap_or(none)
        }
        Value::Text(text) => text.into(),
    }
}

/// Prints a header and one line per row (RFC 4180, but with newlines as line ends).
pub(crate) fn csv(rows: &[Row]) {
    line(&column_names().collect::<Vec<_>>().join(","));
    for row in rows {
        let cells: Vec<String> = values(row).map(|(_, value)| cell(value)).collect();
        line(&cells.join(","));
    }
}

fn cell(value: Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Int(n) => n.to_string(),
        Value::Real(x) => x.to_string(),
        Value::Text(text) if text.contains([',', '"', '\n', '\r']) => {
            format!("\"{}\"", text.replace('"', "\"\""))
        }
        Value::Text(text) => text,
    }
}

#[cfg(test)]
mod tests {
    use packtrain_units::Duration;

    use super::*;

    #[test]
    fn cells_are_quoted_where_they_must() {
        let text = |t: &str| cell(Value::Text(t.to_owned()));
        assert_eq!(text("plain"), "plain");
        assert_eq!(text("a,\"b\"\nc"), "\"a,\"\"b\"\"\nc\"");
        assert_eq!(cell(Value::Real(0.25)), "0.25");
    }

    #[test]
    fn a_curve_is_drawn() {
        let point = |s, mbps| Point { at: Duration::from_secs(s), rate: DataRate::from_mbps(mbps) };
        assert_eq!(curve(&[point(1, 0), point(2, 50), point(3, 100)]), "▁▅█ at most 100.0 Mbit/s");
        assert_eq!(curve(&[point(1, 0)]), "");
        let long: Vec<_> = (1..=500).map(|n| point(n, 100)).collect();
        assert_eq!(curve(&long).chars().filter(|&c| c == '█').count(), 46, "11 points a bar");
    }

    #[test]
    fn nested_columns_stay_nested() {
        let list = "[{\"at\":1,\"rate\":2}]".to_owned();
        assert_eq!(json("series", Value::Text(list))[0]["rate"], 2);
        assert_eq!(json("series", Value::Text(String::new())), Json::Array(Vec::new()));
        assert_eq!(json("source", Value::Text("[1]".into())), "[1]");
    }
}

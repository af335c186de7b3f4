//! Goodput in bit/s from the outputs of the programs.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::bench::lab::last_json;
use crate::bench::raw::number;

/// The last JSON line of `perf`, of the peers built here, and of the watch of a growing file.
pub(crate) fn goodput(text: &str) -> Result<f64> {
    let line = last_json(text)?;
    if line["ok"] == false {
        bail!("it failed: {}", line.pointer("/error/text").unwrap_or(&line["error"]));
    }
    number(&line, "/goodput_bps")
}

/// The report of `iperf3 -J`: what the server received, over all streams.
pub(crate) fn iperf(text: &str) -> Result<f64> {
    number(&iperf_report(text)?, "/end/sum_received/bits_per_second")
}

fn iperf_report(text: &str) -> Result<Value> {
    let report: Value = serde_json::from_str(text).context("no report of iperf3")?;
    if let Some(error) = report["error"].as_str() {
        bail!("iperf3: {error}");
    }
    Ok(report)
}

/// The line that the shell leaves after a copy: its exit code and its time in nanoseconds. Returns
/// seconds.
pub(crate) fn copy_seconds(text: &str) -> Result<f64> {
    let line = last_json(text)?;
    match line["code"].as_i64().context("no exit code")? {
        0 => Ok(number(&line, "/nanoseconds")? / 1e9),
        // That of timeout(1).
        124 => bail!("cut off: no end after {:.0} s", number(&line, "/nanoseconds")? / 1e9),
        code => bail!("the copy failed with exit code {code}"),
    }
}

/// Mean goodput between two times of `perf --json`, from its intervals, in seconds since its start.
pub(crate) fn perf_between(text: &str, from: f64, to: f64) -> Result<f64> {
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let intervals = lines.filter(|line| line["event"] == "interval");
    between(
        intervals.filter_map(|line| {
            let at = |name: &str| line[name].as_f64();
            Some((at("from")?, at("to")?, at("bytes")? * 8.0))
        }),
        from,
        to,
    )
}

/// The same of `iperf3 -J`.
pub(crate) fn iperf_between(text: &str, from: f64, to: f64) -> Result<f64> {
    let report = iperf_report(text)?;
    let intervals = report["intervals"].as_array().context("no intervals")?.clone();
    between(
        intervals.iter().filter_map(|one| {
            let at = |name: &str| one["sum"][name].as_f64();
            Some((at("start")?, at("end")?, at("bytes")? * 8.0))
        }),
        from,
        to,
    )
}

/// The mean rate of intervals of which at least half is between the two times. They must cover all
/// but two seconds.
fn between(intervals: impl Iterator<Item = (f64, f64, f64)>, from: f64, to: f64) -> Result<f64> {
    let (mut bits, mut seconds) = (0.0, 0.0);
    for (start, end, amount) in intervals {
        let middle = (start + end) / 2.0;
        if (from..to).contains(&middle) {
            bits += amount;
            seconds += end - start;
        }
    }
    if seconds < to - from - 2.0 {
        bail!("only {seconds:.1} s of {from:.0} to {to:.0} s were reported");
    }
    Ok(bits / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perf_quinn_udt_and_growth() {
        let text = "{\"event\":\"interval\",\"goodput_bps\":1}\n\
                    {\"event\":\"done\",\"ok\":true,\"goodput_bps\":904000000,\"error\":null}\n";
        assert_eq!(goodput(text).unwrap(), 904e6);
        assert_eq!(goodput("{\"ok\":true,\"bytes\":1,\"goodput_bps\":80}").unwrap(), 80.0);
        let failed = "{\"ok\":false,\"goodput_bps\":0,\"error\":{\"text\":\"no route\"}}";
        assert!(format!("{:#}", goodput(failed).unwrap_err()).contains("no route"));
        assert!(goodput("").is_err() && goodput("{\"ok\":true}").is_err());
    }

    #[test]
    fn iperf_counts_what_arrived() {
        let text = r#"{"end":{"sum_sent":{"bits_per_second":9e8},
                       "sum_received":{"bits_per_second":8.5e8}}}"#;
        assert_eq!(iperf(text).unwrap(), 8.5e8);
        let error = iperf(r#"{"start":{},"error":"unable to connect"}"#).unwrap_err();
        assert!(format!("{error:#}").contains("unable to connect"));
        assert!(iperf("").is_err());
    }

    #[test]
    fn a_copy_that_was_cut_off_is_named() {
        assert_eq!(copy_seconds("{\"code\":0,\"nanoseconds\":4250000000}").unwrap(), 4.25);
        let error = |text| format!("{:#}", copy_seconds(text).unwrap_err());
        assert_eq!(
            error("{\"code\":124,\"nanoseconds\":60010000000}"),
            "cut off: no end after 60 s"
        );
        assert!(error("{\"code\":3,\"nanoseconds\":1}").contains("exit code 3"));
    }

    #[test]
    fn windows_take_the_intervals_inside() {
        let line = |from: u32, bytes: u64| {
            format!(
                "{{\"event\":\"interval\",\"from\":{from}.0,\"to\":{}.0,\"bytes\":{bytes}}}\n",
                from + 1
            )
        };
        let text: String = (0..20).map(|at| line(at, if at < 10 { 0 } else { 125_000 })).collect();
        assert_eq!(perf_between(&text, 10.0, 20.0).unwrap(), 1e6);
        assert_eq!(perf_between(&text, 5.0, 15.0).unwrap(), 5e5);
        assert!(perf_between(&text, 10.0, 40.0).is_err(), "half of it is missing");
        let sums: Vec<Value> = (0..20)
            .map(|at| serde_json::json!({"sum": {"start": at, "end": at + 1, "bytes": 250_000}}))
            .collect();
        let text = serde_json::json!({"intervals": sums}).to_string();
        assert_eq!(iperf_between(&text, 3.0, 18.0).unwrap(), 2e6);
    }
}

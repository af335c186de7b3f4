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
}

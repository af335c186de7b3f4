//! The output of `packtrain emulate` at its end.

use packtrain_emu::{Ended, LinkReport};
use packtrain_units::{DataRate, Duration};
use serde_json::{Value, json};

use crate::exit::{Code, print_message};

/// Prints text to stderr: one line per direction, and one for the emulator itself.
pub(super) fn text(ended: &Ended) {
    let report = &ended.report;
    for link in report.links.iter().filter(|link| link.offered > 0) {
        print_message(&direction(link));
    }
    if report.links.iter().all(|link| link.offered == 0) {
        print_message("no packet crossed the path");
    }
    let late = &report.delay_error;
    let lost: u64 = report.hosts.iter().map(|host| host.device_drops + host.write_failures).sum();
    print_message(&format!(
        "emulator: deliveries {} late on average, 99 % within {}, all within {}; its devices lost {}",
        time(late.mean_seconds),
        time(late.p99_seconds),
        time(late.worst_seconds),
        if lost == 0 { "nothing".to_owned() } else { format!("{lost} packets") },
    ));
    if let Some(error) = &report.record_error {
        print_message(&format!("THE RECORD IS NOT WHOLE: {error}"));
    }
    if let Some(why) = &report.bottleneck {
        print_message(&format!("DO NOT TRUST THIS RUN, the emulator was the bottleneck: {why}"));
    }
}

fn direction(link: &LinkReport) -> String {
    let lost: Vec<String> = link
        .dropped
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(cause, count)| format!("{count} {}", cause.replace('_', " ")))
        .collect();
    let lost = if lost.is_empty() { "none".to_owned() } else { lost.join(", ") };
    format!(
        "{}: {} ({} in its best second), {} packets, dropped: {lost}; queue up to {}",
        link.name,
        DataRate::from_bps(link.throughput_bps),
        DataRate::from_bps(link.busiest_bps),
        link.offered,
        time(link.longest_queue_seconds),
    )
}

/// A duration, to the microsecond.
fn time(seconds: f64) -> Duration {
    let micros = Duration::from_secs_f64(seconds).as_nanos().div_ceil(1_000);
    Duration::from_micros(micros)
}

/// Prints the last JSON line to stdout.
pub(super) fn json(ended: &Ended, code: Code) {
    let report = &ended.report;
    let mut line = serde_json::to_value(report).unwrap_or(Value::Null);
    if let Some(fields) = line.as_object_mut() {
        fields.insert("event".to_owned(), json!("done"));
        fields.insert("ok".to_owned(), json!(report.bottleneck.is_none()));
        fields.insert("exit_code".to_owned(), json!(code.0));
        fields.insert("command_exit_code".to_owned(), json!(ended.code));
    }
    let links = line["links"].as_array_mut().into_iter().flatten();
    for (value, link) in links.zip(&report.links) {
        let micros = (link.delay_error.p99_seconds * 1e6).ceil();
        value["lateness_p99_us"] = json!(micros as u64);
    }
    print(&line);
}

/// Prints the JSON line of an emulation that did not start.
pub(super) fn failed(text: &str, code: u8) {
    print(&json!({"event": "done", "ok": false, "exit_code": code, "error": text}));
}

fn print(line: &Value) {
    crate::out::line(&line.to_string());
}

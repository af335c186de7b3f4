//! The last line of `--json`.

use std::collections::BTreeMap;

use packtrain_service::{
    CpuUse, Failure, FailureKind, LossCause, Outcome, PerfOutcome, failure_word,
};
use packtrain_units::Duration;
use serde::Serialize;

use super::streams::Streams;
use super::{JsonName, json_line};
use crate::exit::Code;

/// Prints a last line.
pub(crate) fn print(event: &impl Serialize) {
    json_line(event);
}

/// The outcome of `cp` or `verify`. Every field is present, also after a failure.
#[derive(Serialize)]
pub(crate) struct Cp<'a> {
    event: &'static str,
    ok: bool,
    exit_code: u8,
    bytes: u64,
    bytes_moved: u64,
    seconds: f64,
    goodput_bps: u64,
    transport: &'a str,
    retransmitted_bytes: u64,
    loss_cause: Losses<'a>,
    transports: BTreeMap<&'a str, u64>,
    entries: u64,
    files_moved: u64,
    unchanged: u64,
    bytes_resumed: u64,
    chunks_again: u64,
    deleted: u64,
    failed: u64,
    vanished: u64,
    not_owned: u64,
    differing: u64,
    rtt_ms: Option<f64>,
    streams: Option<Streams<'a>>,
    verdict: Option<&'a str>,
    /// The id for `packtrain diagnose`.
    id: &'a str,
    resumable: bool,
    resume_command: Option<&'a str>,
    error: Option<Cause<'a>>,
    failed_files: Vec<FailedFile<'a>>,
}

/// The outcome of `perf client`.
#[derive(Serialize)]
pub(crate) struct Perf<'a> {
    event: &'static str,
    ok: bool,
    exit_code: u8,
    bytes: u64,
    seconds: f64,
    goodput_bps: u64,
    transport: &'a str,
    retransmitted_bytes: u64,
    rtt_ms: Option<f64>,
    loss_cause: Losses<'a>,
    cpu: Cpu,
    error: Option<Cause<'a>>,
}

/// The causes of packet losses; empty if no packet was lost.
#[derive(Serialize)]
struct Losses<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p_cpu: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_share: Option<f64>,
    /// Lost bytes by the place that lost them.
    #[serde(flatten)]
    bytes: BTreeMap<&'a str, u64>,
}

#[derive(Serialize)]
struct Cpu {
    sender: Option<CpuOfOne>,
    receiver: Option<CpuOfOne>,
}

#[derive(Serialize)]
struct CpuOfOne {
    user_s: f64,
    system_s: f64,
    percent: f64,
}

/// A failure.
#[derive(Serialize)]
pub(crate) struct Cause<'a> {
    kind: &'static str,
    text: &'a str,
}

#[derive(Serialize)]
struct FailedFile<'a> {
    path: String,
    /// The exact bytes of a name that is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
    #[serde(flatten)]
    cause: Cause<'a>,
}

impl<'a> Cp<'a> {
    /// The line for `outcome`, when the command ends with `code`.
    pub(crate) fn new(outcome: &'a Outcome, code: Code, resume_command: Option<&'a str>) -> Self {
        let summary = &outcome.summary;
        Self {
            event: "done",
            ok: code == Code::DONE,
            exit_code: code.0,
            bytes: summary.bytes,
            bytes_moved: summary.bytes_moved,
            seconds: seconds(outcome.elapsed),
            goodput_bps: outcome.goodput().as_bps(),
            transport: &outcome.transport,
            retransmitted_bytes: outcome.retransmitted.get(),
            loss_cause: causes(&outcome.loss_cause),
            transports: outcome.shares.iter().map(|s| (s.name.as_str(), s.bytes.get())).collect(),
            entries: summary.entries,
            files_moved: summary.files_moved,
            unchanged: summary.unchanged,
            bytes_resumed: summary.bytes_resumed,
            chunks_again: summary.chunks_again,
            deleted: summary.deleted,
            failed: summary.failed,
            vanished: summary.vanished,
            not_owned: summary.not_owned,
            differing: outcome.differing,
            rtt_ms: outcome.rtt.map(millis),
            streams: outcome.streams.as_ref().map(Streams::new),
            verdict: outcome.verdict.as_deref(),
            id: &outcome.id,
            resumable: outcome.resumable,
            resume_command,
            error: outcome.failure.as_ref().map(Cause::new),
            failed_files: outcome.failed.iter().map(|(path, f)| FailedFile::new(path, f)).collect(),
        }
    }
}

impl<'a> Perf<'a> {
    /// The line for `outcome`, when the command ends with `code`.
    pub(crate) fn new(outcome: &'a PerfOutcome, code: Code) -> Self {
        let cpu = |cpu: Option<CpuUse>| cpu.map(|cpu| CpuOfOne::new(cpu, outcome.elapsed));
        Self {
            event: "done",
            ok: code == Code::DONE,
            exit_code: code.0,
            bytes: outcome.bytes.get(),
            seconds: seconds(outcome.elapsed),
            goodput_bps: outcome.goodput().as_bps(),
            transport: &outcome.transport,
            retransmitted_bytes: outcome.retransmitted.get(),
            rtt_ms: outcome.rtt.map(millis),
            loss_cause: causes(&outcome.loss_cause),
            cpu: Cpu { sender: cpu(outcome.cpu_sender), receiver: cpu(outcome.cpu_receiver) },
            error: outcome.failure.as_ref().map(Cause::new),
        }
    }
}

impl CpuOfOne {
    fn new(cpu: CpuUse, elapsed: Duration) -> Self {
        let (user_s, system_s) = (seconds(cpu.user), seconds(cpu.system));
        let span = elapsed.as_secs_f64();
        let percent = if span > 0.0 { (user_s + system_s) / span * 100.0 } else { 0.0 };
        Self { user_s, system_s, percent: rounded(percent, 10.0) }
    }
}

impl<'a> Cause<'a> {
    /// Converts a failure.
    pub(crate) fn new(failure: &'a Failure) -> Self {
        Self { kind: kind(failure.kind), text: &failure.text }
    }
}

impl<'a> FailedFile<'a> {
    fn new(path: &[u8], failure: &'a Failure) -> Self {
        let JsonName { text, bytes } = JsonName::new(path);
        Self { path: text, path_bytes: bytes, cause: Cause::new(failure) }
    }
}

/// Seconds to the microsecond.
pub(crate) fn seconds(span: Duration) -> f64 {
    rounded(span.as_secs_f64(), 1e6)
}

/// Milliseconds to the microsecond.
pub(crate) fn millis(span: Duration) -> f64 {
    rounded(span.as_secs_f64() * 1e3, 1e3)
}

/// The name of a kind of failure.
pub(crate) const fn kind(kind: FailureKind) -> &'static str {
    failure_word(kind)
}

fn causes(loss: &LossCause) -> Losses<'_> {
    Losses {
        cause: loss.cause.as_deref(),
        p_cpu: loss.p_cpu.map(|p| rounded(p, 1e4)),
        host_share: loss.host_share.map(|share| rounded(share, 1e4)),
        bytes: loss.bytes.iter().map(|(cause, bytes)| (cause.as_str(), bytes.get())).collect(),
    }
}

fn rounded(value: f64, steps: f64) -> f64 {
    (value * steps).round() / steps
}

#[cfg(test)]
#[path = "done_tests.rs"]
mod tests;

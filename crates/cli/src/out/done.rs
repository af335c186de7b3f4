//! The last line of `--json`.

use std::collections::BTreeMap;

use packtrain_service::{
    CpuUse, Failure, FailureKind, LossCause, Outcome, PerfOutcome, failure_word,
};
use packtrain_units::Duration;

use super::JsonName;
use super::object::Object;
use super::streams::streams;
use crate::exit::Code;

/// The outcome of `cp` or `verify`, when the command ends with `code`. Every field is present, also
/// after a failure; `id` is that for `packtrain diagnose`.
pub(crate) fn cp(outcome: &Outcome, code: Code, resume_command: Option<&str>) -> Object {
    let summary = &outcome.summary;
    let shares = outcome.shares.iter().map(|share| (share.name.as_str(), share.bytes.get()));
    let failed = outcome.failed.iter().map(|(path, failure)| {
        let JsonName { text, bytes } = JsonName::new(path);
        let file = Object::default().with("path", text).with_some("path_bytes", bytes);
        with_cause(file, failure)
    });
    Object::done(code == Code::DONE, code.0)
        .with("bytes", summary.bytes)
        .with("bytes_moved", summary.bytes_moved)
        .with("seconds", seconds(outcome.elapsed))
        .with("goodput_bps", outcome.goodput().as_bps())
        .with("transport", &outcome.transport)
        .with("retransmitted_bytes", outcome.retransmitted.get())
        .with("loss_cause", causes(&outcome.loss_cause))
        .with("transports", shares.collect::<BTreeMap<_, _>>())
        .with("entries", summary.entries)
        .with("files_moved", summary.files_moved)
        .with("unchanged", summary.unchanged)
        .with("bytes_resumed", summary.bytes_resumed)
        .with("bytes_same", summary.bytes_same)
        .with("chunks_again", summary.chunks_again)
        .with("deleted", summary.deleted)
        .with("removed", summary.removed)
        .with("failed", summary.failed)
        .with("vanished", summary.vanished)
        .with("not_owned", summary.not_owned)
        .with("differing", outcome.differing)
        .with("extra", outcome.extra)
        .with("dry_run", outcome.dry_run)
        .with("metadata", outcome.metadata)
        .with("rtt_ms", outcome.rtt.map(millis))
        .with("streams", outcome.streams.as_ref().map(streams))
        .with("verdict", &outcome.verdict)
        .with("id", &outcome.id)
        .with("resumable", outcome.resumable)
        .with("resume_command", resume_command)
        .with("error", outcome.failure.as_ref().map(cause))
        .with("failed_files", failed.collect::<Vec<_>>())
}

/// The outcome of `perf client`, when the command ends with `code`.
pub(crate) fn perf(outcome: &PerfOutcome, code: Code) -> Object {
    let cpu = |cpu: Option<CpuUse>| cpu.map(|cpu| cpu_use(cpu, outcome.elapsed));
    let both = Object::default()
        .with("sender", cpu(outcome.cpu_sender))
        .with("receiver", cpu(outcome.cpu_receiver));
    Object::done(code == Code::DONE, code.0)
        .with("bytes", outcome.bytes.get())
        .with("seconds", seconds(outcome.elapsed))
        .with("goodput_bps", outcome.goodput().as_bps())
        .with("transport", &outcome.transport)
        .with("retransmitted_bytes", outcome.retransmitted.get())
        .with("rtt_ms", outcome.rtt.map(millis))
        .with("loss_cause", causes(&outcome.loss_cause))
        .with("cpu", both)
        .with("error", outcome.failure.as_ref().map(cause))
}

fn cpu_use(cpu: CpuUse, elapsed: Duration) -> Object {
    let (user_s, system_s) = (seconds(cpu.user), seconds(cpu.system));
    let span = elapsed.as_secs_f64();
    let percent = if span > 0.0 { (user_s + system_s) / span * 100.0 } else { 0.0 };
    Object::default()
        .with("user_s", user_s)
        .with("system_s", system_s)
        .with("percent", rounded(percent, 10.0))
}

/// A failure.
pub(crate) fn cause(failure: &Failure) -> Object {
    with_cause(Object::default(), failure)
}

fn with_cause(object: Object, failure: &Failure) -> Object {
    object.with("kind", kind(failure.kind)).with("text", &failure.text)
}

/// The causes of packet losses, with the lost bytes by the place that lost them; empty if no packet
/// was lost.
fn causes(loss: &LossCause) -> Object {
    let object = Object::default()
        .with_some("cause", loss.cause.as_ref())
        .with_some("p_cpu", loss.p_cpu.map(|p| rounded(p, 1e4)))
        .with_some("host_share", loss.host_share.map(|share| rounded(share, 1e4)));
    loss.bytes.iter().fold(object, |object, (place, bytes)| object.with(place, bytes.get()))
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

/// The value to `1 / steps`.
pub(crate) fn rounded(value: f64, steps: f64) -> f64 {
    (value * steps).round() / steps
}

#[cfg(test)]
#[path = "done_tests.rs"]
mod tests;

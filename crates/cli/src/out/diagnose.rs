//! The output of `diagnose`.

use packtrain_diagnose::Diagnosis;
use packtrain_service::evidence::Record;
use serde::Serialize;

use super::summary::time;
use super::{clean, json_line, line as print_line};

/// The object of `--json`.
#[derive(Serialize)]
struct Whole<'a> {
    event: &'static str,
    id: &'a str,
    pid: u32,
    over: bool,
    what: &'a str,
    /// The most likely cause.
    cause: &'static str,
    sure: f64,
    how_sure: &'static str,
    #[serde(flatten)]
    diagnosis: &'a Diagnosis,
    evidence: &'a packtrain_service::evidence::Evidence,
}

/// Prints one JSON line.
pub(crate) fn json(record: &Record, diagnosis: &Diagnosis) {
    let first = diagnosis.first();
    let whole = Whole {
        event: "diagnosis",
        id: &record.id,
        pid: record.pid,
        over: record.over,
        what: &record.what,
        cause: first.cause.name(),
        sure: first.sure,
        how_sure: first.how_sure,
        diagnosis,
        evidence: &record.evidence,
    };
    json_line(&whole);
}

/// Prints text.
pub(crate) fn text(record: &Record, diagnosis: &Diagnosis) {
    let evidence = &record.evidence;
    let mut text = String::new();
    let mut line = |words: String| {
        text.push_str(&clean(&words));
        text.push('\n');
    };
    if !evidence.probed {
        let state = if record.over { "finished" } else { "running, or ended without a report" };
        let (id, pid) = (&record.id, record.pid);
        line(format!("transfer {id} (process {pid}, {state}): {}", record.what));
        let rate = packtrain_units::DataRate::from_bytes_over(evidence.bytes, evidence.elapsed);
        line(format!("  {} in {} ({rate})", evidence.bytes, time(evidence.elapsed)));
    }
    for (n, finding) in diagnosis.findings.iter().enumerate() {
        line(String::new());
        let rank = if n == 0 { "" } else { "also " };
        line(format!("{rank}{}: {}", finding.how_sure, finding.says));
        for fact in &finding.evidence {
            line(format!("    {}: {}", fact.what, fact.value));
        }
        line(format!("  remedy: {}", finding.remedy));
    }
    if !diagnosis.ceilings.is_empty() {
        line(String::new());
        line("highest rate of each stage:".to_owned());
    }
    for ceiling in &diagnosis.ceilings {
        let lowest = if Some(ceiling.stage) == diagnosis.lowest { "  <- the lowest" } else { "" };
        let more = if ceiling.at_least { ">" } else { "" };
        let rate = format!("{more}{}", ceiling.rate);
        let name = ceiling.stage.name();
        line(format!("  {name:<8}{rate:>14}  ({}){lowest}", ceiling.by));
    }
    print_line(text.trim_end());
}

//! Diagnoses recorded measurements of provoked causes (`recorded`) again. Changed rules must give
//! the same causes, and these tests do not depend on the machine.

use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::{Diagnosis, judge};
use packtrain_service::evidence::Evidence;

/// One recorded run.
#[derive(Deserialize)]
struct Run {
    provoked: String,
    /// Other causes that were true too, on a busy machine.
    #[serde(default)]
    true_too: Vec<String>,
    evidence: Evidence,
}

fn runs(folder: &str) -> Vec<(String, Run, Diagnosis)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("recorded").join(folder);
    let mut runs: Vec<_> = fs::read_dir(folder)
        .expect("the recorded runs")
        .map(|entry| entry.expect("a file").path())
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .map(|path| {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            let text = fs::read_to_string(&path).expect("a run");
            let run: Run = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
            let diagnosis = judge(&run.evidence);
            (name, run, diagnosis)
        })
        .collect();
    runs.sort_by(|a, b| a.0.cmp(&b.0));
    runs
}

/// One line per run: the provoked cause and the diagnosis.
fn told(name: &str, run: &Run, diagnosis: &Diagnosis) -> String {
    let told: Vec<String> =
        diagnosis.findings.iter().map(|f| format!("{} {}", f.cause.name(), f.sure)).collect();
    format!("{name}: {}: {}\n", run.provoked, told.join(", "))
}

#[allow(clippy::print_stdout, reason = "with --nocapture it is a table")]
fn show(line: &str) {
    print!("{line}");
}

#[test]
fn on_a_quiet_machine_every_cause_is_told() {
    let mut wrong = String::new();
    for (name, run, diagnosis) in runs("quiet") {
        show(&told(&name, &run, &diagnosis));
        let first = diagnosis.first();
        if first.cause.name() != run.provoked || first.how_sure != "likely" {
            wrong += &told(&name, &run, &diagnosis);
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn on_a_busy_one_nothing_wrong_is_called_likely() {
    let mut wrong = String::new();
    for (name, run, diagnosis) in runs("busy") {
        show(&told(&name, &run, &diagnosis));
        let first = diagnosis.first();
        let cause = first.cause.name();
        let right = cause == run.provoked || run.true_too.iter().any(|other| other == cause);
        if first.how_sure == "likely" && !right {
            wrong += &told(&name, &run, &diagnosis);
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

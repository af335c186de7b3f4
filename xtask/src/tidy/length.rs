//! File length: at most 600 lines; exceptions have a reason here.

use std::fs;

use anyhow::Result;

use crate::sh;

const LIMIT: usize = 600;

/// Longer files, with the reasons.
const LONGER: &[(&str, &str)] = &[];

/// Checks every Rust file.
pub(super) fn check() -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for file in sh::files()? {
        if file.extension().is_none_or(|ext| ext != "rs") {
            continue;
        }
        let name = file.to_string_lossy();
        let lines = fs::read_to_string(sh::root().join(&file))?.lines().count();
        let excused = LONGER.iter().any(|(path, _)| *path == name);
        if lines > LIMIT && !excused {
            findings.push(format!("{name} has {lines} lines, {LIMIT} is the limit"));
        }
        if lines <= LIMIT && excused {
            findings
                .push(format!("{name} is short enough now: take it off the list of long files"));
        }
    }
    Ok(findings)
}

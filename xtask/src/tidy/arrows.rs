//! The arrows between crates: who may use whom.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::sh;

/// Crate and what it uses directly; what those use it may use too. `io -> object` is ADR 0008.
const ARROWS: &[(&str, &[&str])] = &[
    ("units", &[]),
    ("object", &["units"]),
    ("loss", &["units"]),
    ("plan", &["units"]),
    ("link", &["units"]),
    ("cc", &["loss", "units"]),
    ("proto", &["cc"]),
    ("transfer", &["object", "proto"]),
    ("io", &["proto", "object"]),
    ("sim", &["link", "proto", "cc"]),
    ("emu", &["link", "io"]),
    ("socket", &["proto", "io"]),
    ("history", &["units"]),
    ("testkit", &[]),
    ("node", &["transfer", "io", "socket", "plan", "object", "history"]),
    ("cli", &["node", "sim", "emu", "loss", "plan"]),
];

/// Compares the manifests with the table. Dependencies of tests are free.
pub(super) fn check() -> Result<Vec<String>> {
    let text = sh::capture(sh::cargo().args(["metadata", "--format-version=1", "--no-deps"]))?;
    let metadata: Value = serde_json::from_str(&text).context("cargo metadata")?;
    let allowed = closure();
    let mut findings = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = short(package["name"].as_str().unwrap_or_default());
        if name == "xtask" {
            continue;
        }
        let Some(allowed) = allowed.get(name) else {
            findings.push(format!("crate {name} is not in the table of arrows"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let used = dependency["name"].as_str().unwrap_or_default();
            let ours = dependency["path"].is_string();
            if ours && dependency["kind"].is_null() && !allowed.contains(short(used)) {
                findings.push(format!("crate {name} must not use {used}"));
            }
        }
    }
    Ok(findings)
}

fn short(package: &str) -> &str {
    match package {
        "packtrain" => "cli",
        other => other.strip_prefix("packtrain-").unwrap_or(other),
    }
}

fn closure() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let direct: BTreeMap<_, _> = ARROWS.iter().copied().collect();
    let mut all = BTreeMap::new();
    for (name, uses) in ARROWS {
        let mut seen = BTreeSet::new();
        let mut open: Vec<&str> = uses.to_vec();
        while let Some(next) = open.pop() {
            if seen.insert(next) {
                open.extend(direct.get(next).copied().unwrap_or_default());
            }
        }
        all.insert(*name, seen);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::closure;

    #[test]
    fn no_crate_reaches_itself() {
        for (name, reached) in closure() {
            assert!(!reached.contains(name), "{name} is in a circle");
        }
    }
}

//! The arrows between crates: who may use whom.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::sh;

/// Crate and what its manifest names. `disk -> object` is ADR 0008.
const ARROWS: &[(&str, &[&str])] = &[
    ("units", &[]),
    ("object", &["units"]),
    ("loss", &["units"]),
    ("plan", &["units"]),
    ("history", &["units"]),
    ("testkit", &[]),
    ("link", &["units"]),
    ("cc", &["loss", "units"]),
    ("proto", &["cc", "loss", "units"]),
    ("session", &["proto", "units"]),
    ("udt4", &["cc", "proto", "units"]),
    ("transfer", &["object", "units"]),
    ("os", &["units"]),
    ("disk", &["object", "os", "units"]),
    ("net", &["loss", "os", "proto", "units"]),
    ("socket", &["cc", "net", "os", "proto", "udt4", "units"]),
    ("sim", &["cc", "link", "proto", "units"]),
    ("reproduce", &["link", "sim", "units"]),
    ("emu", &["link", "os", "units"]),
    (
        "node",
        &[
            "cc", "disk", "history", "net", "object", "os", "plan", "proto", "session", "socket",
            "transfer", "units",
        ],
    ),
    ("cli", &["emu", "link", "loss", "node", "os", "plan", "reproduce", "sim", "units"]),
];

/// Compares the table with what the manifests name directly. Dependencies of tests are free.
pub(super) fn check() -> Result<Vec<String>> {
    let text = sh::capture(sh::cargo().args(["metadata", "--format-version=1", "--no-deps"]))?;
    let metadata: Value = serde_json::from_str(&text).context("cargo metadata")?;
    let table: BTreeMap<_, _> = ARROWS.iter().copied().collect();
    let mut findings = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = short(package["name"].as_str().unwrap_or_default());
        if name == "xtask" {
            continue;
        }
        let Some(allowed) = table.get(name) else {
            findings.push(format!("crate {name} is not in the table of arrows"));
            continue;
        };
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        let own = dependencies.filter(|d| d["path"].is_string() && d["kind"] != "dev");
        let used: BTreeSet<_> =
            own.map(|d| short(d["name"].as_str().unwrap_or_default())).collect();
        findings.extend(compare(name, &allowed.iter().copied().collect(), &used));
    }
    Ok(findings)
}

/// What differs between the table's line of a crate and its manifest.
fn compare(name: &str, allowed: &BTreeSet<&str>, used: &BTreeSet<&str>) -> Vec<String> {
    let forbidden = used.difference(allowed).map(|other| {
        format!("crate {name} must not use {other} (the table of arrows does not have it)")
    });
    let stale = allowed.difference(used).map(|other| {
        format!("the table of arrows lets {name} use {other}, which its manifest does not name")
    });
    forbidden.chain(stale).collect()
}

fn short(package: &str) -> &str {
    match package {
        "packtrain" => "cli",
        other => other.strip_prefix("packtrain-").unwrap_or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_crate_reaches_itself() {
        let direct: BTreeMap<_, _> = ARROWS.iter().copied().collect();
        for (name, uses) in ARROWS {
            let mut reached = BTreeSet::new();
            let mut open = uses.to_vec();
            while let Some(next) = open.pop() {
                assert!(direct.contains_key(next), "{next}, which {name} uses, has no line");
                if reached.insert(next) {
                    open.extend(direct[next]);
                }
            }
            assert!(!reached.contains(name), "{name} is in a circle");
        }
    }

    #[test]
    fn what_is_reached_over_another_crate_is_no_arrow() {
        let (allowed, used) = (BTreeSet::from(["proto"]), BTreeSet::from(["proto", "cc"]));
        assert_eq!(compare("net", &allowed, &allowed), [""; 0]);
        assert_eq!(compare("net", &allowed, &used).len(), 1);
        assert_eq!(compare("net", &used, &allowed).len(), 1);
    }
}

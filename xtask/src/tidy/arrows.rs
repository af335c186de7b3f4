//! The allowed dependencies between crates.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use crate::sh;

/// A layer: its name, its description, and its crates with their allowed dependencies.
type Layer = (&'static str, &'static str, &'static [(&'static str, &'static [&'static str])]);

/// The layers, from the lowest to the highest. A crate may use earlier crates of its own layer and
/// crates of lower layers. `disk -> object` is ADR 0008.
const LAYERS: &[Layer] = &[
    (
        "foundation",
        "what everything else is made of: quantities, the object, helpers of tests",
        &[("units", &[]), ("object", &["units"]), ("testkit", &[])],
    ),
    (
        "algorithms",
        "decisions and controllers, without I/O",
        &[("loss", &["units"]), ("cc", &["loss", "units"]), ("plan", &["units"])],
    ),
    (
        "engine",
        "protocols as state machines, without I/O",
        &[
            ("proto", &["cc", "loss", "units"]),
            ("session", &["proto", "units"]),
            ("udt4", &["cc", "proto", "units"]),
            ("transfer", &["object", "units"]),
        ],
    ),
    (
        "os",
        "clocks, files and sockets",
        &[
            ("os", &["units"]),
            ("disk", &["object", "os", "units"]),
            ("net", &["loss", "os", "proto", "units"]),
        ],
    ),
    (
        "services",
        "what the product does",
        &[
            ("identity", &["net", "os", "units"]),
            ("history", &["units"]),
            (
                "service",
                &["history", "identity", "os", "plan", "proto", "session", "transfer", "units"],
            ),
            ("hops", &["cc", "identity", "net", "os", "proto", "service", "session", "units"]),
            (
                "runtime",
                &[
                    "cc", "disk", "history", "hops", "identity", "net", "object", "os", "plan",
                    "proto", "service", "session", "transfer", "units",
                ],
            ),
            (
                "stores",
                &[
                    "disk", "identity", "net", "object", "os", "plan", "runtime", "service",
                    "transfer", "units",
                ],
            ),
            ("perf", &["net", "os", "proto", "runtime", "service", "transfer", "units"]),
            ("socket", &["cc", "net", "os", "proto", "udt4", "units"]),
            (
                "udt4-service",
                &[
                    "disk", "net", "object", "os", "perf", "runtime", "service", "socket",
                    "transfer", "units",
                ],
            ),
            ("diagnose", &["history", "os", "service", "transfer", "units"]),
            (
                "server",
                &[
                    "hops", "identity", "net", "os", "perf", "runtime", "service", "transfer",
                    "units",
                ],
            ),
            (
                "client",
                &[
                    "diagnose",
                    "disk",
                    "hops",
                    "identity",
                    "net",
                    "object",
                    "os",
                    "plan",
                    "runtime",
                    "service",
                    "session",
                    "stores",
                    "transfer",
                    "udt4-service",
                    "units",
                ],
            ),
            (
                "depot",
                &[
                    "disk", "hops", "identity", "net", "os", "plan", "service", "session",
                    "transfer", "units",
                ],
            ),
            ("demo", &["client", "disk", "net", "os", "runtime", "service", "transfer", "units"]),
        ],
    ),
    (
        "laboratory",
        "paths that are made up, in virtual and in real time",
        &[
            ("link", &["units"]),
            ("sim", &["cc", "link", "proto", "units"]),
            ("reproduce", &["link", "sim", "units"]),
            ("emu", &["link", "os", "units"]),
        ],
    ),
    (
        "command",
        "the program",
        &[(
            "cli",
            &[
                "client",
                "demo",
                "depot",
                "diagnose",
                "emu",
                "identity",
                "link",
                "loss",
                "os",
                "perf",
                "plan",
                "reproduce",
                "runtime",
                "server",
                "service",
                "sim",
                "udt4-service",
                "units",
            ],
        )],
    ),
];

fn crates() -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
    LAYERS.iter().flat_map(|(_, _, crates)| crates.iter().copied())
}

/// The table for ARCHITECTURE.md.
pub(super) fn map() -> String {
    let width = crates().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (layer, what, crates) in LAYERS.iter().rev() {
        text.push_str(&format!("{layer}: {what}\n"));
        for (name, uses) in crates.iter().rev() {
            let uses: Vec<_> = uses.iter().copied().filter(|name| *name != "units").collect();
            let arrow = if uses.is_empty() { "" } else { " -> " };
            text.push_str(format!("    {name:width$}{arrow}{}", uses.join(", ")).trim_end());
            text.push('\n');
        }
    }
    text
}

/// Compares the table with the direct dependencies in the manifests. Dev-dependencies are exempt.
pub(super) fn check() -> Result<Vec<String>> {
    let metadata = sh::metadata()?;
    let table: BTreeMap<_, _> = crates().collect();
    let mut findings = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = short(package["name"].as_str().unwrap_or_default());
        // Chores are no part of the product.
        if matches!(name, "xtask" | "dist") {
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

/// The differences between the table's line of a crate and its manifest.
fn compare(name: &str, allowed: &BTreeSet<&str>, used: &BTreeSet<&str>) -> Vec<String> {
    let forbidden = used.difference(allowed).map(|other| {
        format!("crate {name} must not use {other} (LAYERS in xtask/src/tidy/arrows.rs does not have it)")
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
    fn arrows_point_down() {
        let mut below = BTreeSet::new();
        for (name, uses) in crates() {
            for used in uses {
                assert!(below.contains(used), "{name} uses {used}, which does not come before it");
            }
            assert!(below.insert(name), "{name} is there twice");
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

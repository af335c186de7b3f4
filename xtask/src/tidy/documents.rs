//! Documents: required names, and links with existing targets.
//!
//! A test of the command checks that the guide names every flag (`crates/cli/tests/e2e/guide.rs`),
//! because only the built command has the list of its flags.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::sh;

/// Checks that ARCHITECTURE.md names every crate, that all ADRs are listed, and that relative links
/// exist.
pub(super) fn check() -> Result<Vec<String>> {
    let mut findings = Vec::new();
    let architecture = fs::read_to_string(sh::root().join("ARCHITECTURE.md"))
        .context("reading ARCHITECTURE.md")?;
    for entry in fs::read_dir(sh::root().join("crates"))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().join("Cargo.toml").is_file()
            && !architecture.contains(&format!("crates/{name}"))
        {
            findings.push(format!("ARCHITECTURE.md does not name crates/{name}"));
        }
    }
    let files = sh::files()?;
    let list = fs::read_to_string(sh::root().join("docs/adr/README.md")).unwrap_or_default();
    for file in &files {
        if file.starts_with("docs/adr") && !file.ends_with("README.md") {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            if !list.contains(name.as_ref()) {
                findings.push(format!("docs/adr/README.md does not list {name}"));
            }
        }
        if file.extension().is_some_and(|ext| ext == "md") {
            findings.extend(dead_links(file)?);
        }
    }
    Ok(findings)
}

/// Relative links of a page without an existing target.
fn dead_links(page: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(sh::root().join(page))?;
    let dir = sh::root().join(page.parent().unwrap_or(Path::new("")));
    let mut findings = Vec::new();
    for part in text.split("](").skip(1) {
        let target = part.split([')', '#', ' ']).next().unwrap_or_default();
        if target.is_empty() || target.contains(':') || dir.join(target).exists() {
            continue;
        }
        findings.push(format!("{}: link to {target} leads nowhere", page.display()));
    }
    Ok(findings)
}

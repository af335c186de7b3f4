//! The map of crates in ARCHITECTURE.md, generated from the table of dependencies.

use std::fs;

use anyhow::{Context, Result};

use super::arrows;
use crate::sh;

const FILE: &str = "ARCHITECTURE.md";
const BEGIN: &str = "<!-- map: begin, written by cargo xtask tidy --write -->\n";
const END: &str = "<!-- map: end -->";

/// Compares the map with the table, or writes it.
pub(super) fn check(write: bool) -> Result<Vec<String>> {
    let path = sh::root().join(FILE);
    let text = fs::read_to_string(&path).context(FILE)?;
    let Some((before, rest)) = text.split_once(BEGIN) else {
        return Ok(vec![format!("{FILE} has no line `{}`", BEGIN.trim_end())]);
    };
    let Some((_, after)) = rest.split_once(END) else {
        return Ok(vec![format!("{FILE} has no line `{END}`")]);
    };
    let right = format!("{before}{BEGIN}\n```text\n{}```\n\n{END}{after}", arrows::map());
    if right == text {
        return Ok(Vec::new());
    }
    if write {
        fs::write(&path, right).context(FILE)?;
        return Ok(Vec::new());
    }
    Ok(vec![format!(
        "the map in {FILE} is not that of the manifests: run `cargo xtask tidy --write`"
    )])
}

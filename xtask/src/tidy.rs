//! `xtask tidy`: checks conventions of this repository.

mod arrows;
mod cycles;
mod dead;
mod documents;
mod length;
mod map;
mod security;
mod words;

use anyhow::{Result, bail};

/// Runs every check and reports all findings together. `write` updates generated text.
pub(crate) fn run(write: bool) -> Result<()> {
    let mut findings = Vec::new();
    findings.extend(arrows::check()?);
    findings.extend(map::check(write)?);
    findings.extend(cycles::check()?);
    findings.extend(length::check()?);
    findings.extend(dead::check()?);
    findings.extend(documents::check()?);
    findings.extend(words::check()?);
    findings.extend(crate::ignored::check()?);
    findings.extend(security::check()?);
    if !findings.is_empty() {
        bail!("not tidy:\n  {}", findings.join("\n  "));
    }
    println!("tidy");
    Ok(())
}

//! Documents: required names, links with existing targets, and links to ADRs by their number.
//!
//! A test of the command checks that the guide names every flag
//! (`crates/cli/src/args/documents_tests.rs`), because only the command has the list of its flags.

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
            let text = fs::read_to_string(sh::root().join(file))?;
            let dir = sh::root().join(file.parent().unwrap_or(Path::new("")));
            for wrong in links(&text).filter_map(|(text, target)| fault(text, target, &dir)) {
                findings.push(format!("{}: {wrong}", file.display()));
            }
        }
    }
    Ok(findings)
}

/// The links of a page: text and target.
fn links(page: &str) -> impl Iterator<Item = (&str, &str)> {
    page.match_indices("](").map(|(at, _)| {
        let text = page[..at].rsplit('[').next().unwrap_or_default();
        (text, page[at + 2..].split([')', ' ']).next().unwrap_or_default())
    })
}

/// What is wrong with a link of a page in `dir`: a relative link without an existing target, or
/// `ADR` with another number than that of the linked file.
fn fault(text: &str, target: &str, dir: &Path) -> Option<String> {
    let path = target.split('#').next().unwrap_or_default();
    if path.is_empty() || path.contains(':') {
        return None;
    }
    if !dir.join(path).exists() {
        return Some(format!("link to {path} leads nowhere"));
    }
    let mut words = text.split_whitespace().skip_while(|word| *word != "ADR").skip(1);
    let is_number = text.len() == 4 && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = if is_number { text } else { words.next()? };
    let name = path.rsplit('/').next().unwrap_or_default();
    (!name.starts_with(number)).then(|| format!("link to {name} says ADR {number}"))
}

#[cfg(test)]
mod tests {
    use super::{fault, links};
    use crate::sh;

    #[test]
    fn a_link_to_an_adr_says_its_number() {
        let page = "As [ADR\n0008](0008-disk-depends-on-object.md) and [it](README.md#list) say.";
        let found: Vec<_> = links(page).collect();
        assert_eq!(
            found,
            [("ADR\n0008", "0008-disk-depends-on-object.md"), ("it", "README.md#list")]
        );
        let dir = sh::root().join("docs/adr");
        assert!(found.iter().all(|(text, target)| fault(text, target, &dir).is_none()));
        assert!(fault("ADR 0009", "0008-disk-depends-on-object.md", &dir).is_some());
        assert!(fault("0009", "0008-disk-depends-on-object.md", &dir).is_some());
        assert!(fault("it", "0008-was-renamed.md", &dir).is_some());
    }
}

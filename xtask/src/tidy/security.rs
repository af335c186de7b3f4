//! Checks that every test named in `docs/security.md` exists.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result};

use crate::sh;

const PAGE: &str = "docs/security.md";

/// Checks that every `file.rs::name` in the page is a function of that file, and that at least one
/// is named.
pub(super) fn check() -> Result<Vec<String>> {
    let text = fs::read_to_string(sh::root().join(PAGE)).context(PAGE)?;
    let mut findings = Vec::new();
    let tests = named(&text);
    if tests.is_empty() {
        findings.push(format!("{PAGE} names no test"));
    }
    for (file, name) in tests {
        let source = fs::read_to_string(sh::root().join(&file)).unwrap_or_default();
        if !source.contains(&format!("fn {name}(")) {
            findings.push(format!("{PAGE} names {file}::{name}, which is not there"));
        }
    }
    Ok(findings)
}

/// The names between backquotes of the form `crates/.../file.rs::name`.
fn named(text: &str) -> BTreeSet<(String, String)> {
    let quoted = text.split('`').skip(1).step_by(2);
    let split = |word: &str| {
        let (file, name) = word.split_once(".rs::")?;
        Some((format!("{file}.rs"), name.to_owned()))
    };
    quoted.filter_map(split).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn tests_are_found_between_backquotes() {
        let text = "| a | `crates/x/tests/y.rs::holds_it`, `code` | and `z.rs::b` |";
        let found: Vec<_> = super::named(text).into_iter().collect();
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(found, [pair("crates/x/tests/y.rs", "holds_it"), pair("z.rs", "b")]);
    }
}

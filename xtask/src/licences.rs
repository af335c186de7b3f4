//! `xtask licences`: checks that every dependency has an accepted licence.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::sh;

/// Licences that require no more than a notice.
const ACCEPTED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Reads `cargo metadata` for all platforms and features in use, and checks each package.
pub(crate) fn run() -> Result<()> {
    let text = sh::capture(sh::cargo().args(["metadata", "--format-version=1", "--locked"]))?;
    let metadata: Value = serde_json::from_str(&text).context("cargo metadata")?;
    let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    let mut bad = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or("?");
        let version = package["version"].as_str().unwrap_or("?");
        match package["license"].as_str() {
            Some(licence) if accepted(licence) => {}
            Some(licence) => bad.push(format!("{name} {version}: {licence}")),
            None => bad.push(format!("{name} {version}: names no licence")),
        }
    }
    if !bad.is_empty() {
        bail!("licences not accepted:\n  {}", bad.join("\n  "));
    }
    println!("licences: {} packages, all accepted", packages.len());
    Ok(())
}

/// Whether an SPDX expression can be satisfied with accepted licences.
fn accepted(expression: &str) -> bool {
    // Old manifests write `A/B` for `A OR B`.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    any(&words, &mut at) && at == words.len()
}

fn any(words: &[&str], at: &mut usize) -> bool {
    let mut ok = all(words, at);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        ok |= all(words, at);
    }
    ok
}

fn all(words: &[&str], at: &mut usize) -> bool {
    let mut ok = one(words, at);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        ok &= one(words, at);
    }
    ok
}

fn one(words: &[&str], at: &mut usize) -> bool {
    let Some(&word) = words.get(*at) else { return false };
    *at += 1;
    if word == "(" {
        let ok = any(words, at);
        let closed = words.get(*at) == Some(&")");
        *at += 1;
        return ok && closed;
    }
    let mut licence = word.to_owned();
    if words.get(*at) == Some(&"WITH") {
        licence = format!("{word} WITH {}", words.get(*at + 1).copied().unwrap_or_default());
        *at += 2;
    }
    ACCEPTED.contains(&licence.as_str())
}

#[cfg(test)]
mod tests {
    use super::accepted;

    #[test]
    fn expressions() {
        assert!(accepted("MIT OR Apache-2.0"));
        assert!(accepted("MIT/GPL-3.0"));
        assert!(accepted("ISC AND (Apache-2.0 OR GPL-2.0)"));
        assert!(accepted("Apache-2.0 WITH LLVM-exception OR MIT"));
        assert!(!accepted("GPL-3.0"));
        assert!(!accepted("MIT AND GPL-3.0"));
        assert!(!accepted("(MIT"));
        assert!(!accepted(""));
    }
}

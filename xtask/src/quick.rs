//! `xtask quick [BASE]`: checks the crates that a change affects, in a minute or two on a warm
//! target.
//!
//! It takes the files that differ from BASE (by default the last commit). It runs the checks that
//! need no build, clippy on the changed crates and on those that use them, and the unit tests of
//! the changed crates.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{sh, tidy};

/// Runs the checks.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let base = match args {
        [] => "HEAD",
        [base] => base,
        _ => bail!("`quick` takes one argument at most: what to compare with, such as main"),
    };
    let files = changed(base)?;
    if files.is_empty() {
        println!(
            "nothing differs from {base}: name another commit, such as `cargo xtask quick HEAD~1`"
        );
        return Ok(());
    }
    sh::run(sh::cargo().args(["fmt", "--all", "--check"]))?;
    tidy::run(false)?;
    let packages = packages()?;
    let touched: BTreeSet<&str> =
        files.iter().filter_map(|file| owner(file, packages.keys())).collect();
    if touched.is_empty() {
        println!("no crate is touched");
        return Ok(());
    }
    let affected = users(&touched, &packages);
    sh::run(
        sh::cargo()
            .args(["clippy", "--all-targets"])
            .args(named(&affected, &packages))
            .args(["--", "-D", "warnings"]),
    )?;
    let touched = touched.into_iter().collect();
    sh::run(sh::cargo().args(["test", "--lib", "--bins"]).args(named(&touched, &packages)))?;
    println!(
        "quick: {} crates built without warnings, unit tests of {} passed; `cargo xtask test` runs the \
         integration and end-to-end tests",
        affected.len(),
        touched.iter().copied().collect::<Vec<_>>().join(", ")
    );
    Ok(())
}

/// Files that differ from `base`, including untracked ones.
fn changed(base: &str) -> Result<Vec<String>> {
    let git = |words: &[&str]| sh::capture(sh::command("git", words).current_dir(sh::root()));
    let mut text = git(&["diff", "--name-only", base]).context("asking git what changed")?;
    text.push_str(&git(&["ls-files", "--others", "--exclude-standard"])?);
    Ok(text.lines().map(str::to_owned).collect())
}

/// A crate of the workspace: its cargo name, and the folders of the crates that it uses.
struct Package {
    name: String,
    uses: BTreeSet<String>,
}

/// The crates by their folders.
fn packages() -> Result<BTreeMap<String, Package>> {
    let metadata = sh::metadata()?;
    let root = sh::root();
    let folder = |path: &Value| {
        let path = std::path::Path::new(path.as_str()?);
        Some(path.strip_prefix(&root).ok()?.to_string_lossy().into_owned())
    };
    let mut all = BTreeMap::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let manifest = folder(&package["manifest_path"]).unwrap_or_default();
        let own = manifest.trim_end_matches("/Cargo.toml").to_owned();
        let uses = package["dependencies"].as_array().into_iter().flatten();
        let uses = uses.filter_map(|one| folder(&one["path"])).collect();
        let name = package["name"].as_str().unwrap_or_default().to_owned();
        all.insert(own, Package { name, uses });
    }
    Ok(all)
}

fn owner<'a>(file: &str, folders: impl Iterator<Item = &'a String>) -> Option<&'a str> {
    folders
        .map(String::as_str)
        .find(|folder| file.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/')))
}

/// These crates, and all that use them.
fn users<'a>(of: &BTreeSet<&'a str>, packages: &'a BTreeMap<String, Package>) -> BTreeSet<&'a str> {
    let mut all = of.clone();
    loop {
        let before = all.len();
        for (folder, package) in packages {
            if package.uses.iter().any(|used| all.contains(used.as_str())) {
                all.insert(folder);
            }
        }
        if all.len() == before {
            return all;
        }
    }
}

fn named(folders: &BTreeSet<&str>, packages: &BTreeMap<String, Package>) -> Vec<String> {
    let names = folders.iter().filter_map(|folder| packages.get(*folder));
    names.flat_map(|package| ["-p".to_owned(), package.name.clone()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_uses_a_changed_crate_is_built_too() {
        let package = |name: &str, uses: &[&str]| Package {
            name: name.to_owned(),
            uses: uses.iter().map(|&one| one.to_owned()).collect(),
        };
        let packages = BTreeMap::from([
            ("crates/a".to_owned(), package("a", &[])),
            ("crates/ab".to_owned(), package("ab", &["crates/a"])),
            ("crates/c".to_owned(), package("c", &["crates/ab"])),
            ("crates/d".to_owned(), package("d", &[])),
        ]);
        let touched = BTreeSet::from(["crates/a"]);
        assert_eq!(
            users(&touched, &packages),
            BTreeSet::from(["crates/a", "crates/ab", "crates/c"])
        );
        assert_eq!(owner("crates/ab/src/lib.rs", packages.keys()), Some("crates/ab"));
        assert_eq!(owner("docs/x.md", packages.keys()), None);
    }
}

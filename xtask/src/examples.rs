//! The programs in `examples/`, which are not members of the workspace: each is built as a user
//! would build it, and its tests run.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use crate::sh;

/// Builds and tests every example. The build uses the versions of the workspace's lock file, and
/// shares its target folder, so that only the crates of Packtrain are compiled a second time: cargo
/// gives them another identity outside the workspace. They are compiled without optimisation, in
/// half of the time; the tests wait for conditions and assert no times.
pub(crate) fn run() -> Result<()> {
    let own = own_crates()?;
    let dir = sh::root().join("examples");
    for entry in fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
        let example = entry?.path();
        let manifest = example.join("Cargo.toml");
        if !manifest.is_file() {
            continue;
        }
        let from = sh::root().join("Cargo.lock");
        fs::copy(&from, example.join("Cargo.lock")).with_context(|| from.display().to_string())?;
        let cargo = |word: &str| {
            let mut cargo: Command = sh::cargo();
            cargo.arg(word).arg("--manifest-path").arg(&manifest);
            cargo
        };
        sh::run(cargo("fmt").arg("--check"))?;
        let mut test = cargo("test");
        for name in &own {
            test.arg("--config").arg(format!("profile.dev.package.{name}.opt-level=0"));
        }
        test.env("CARGO_TARGET_DIR", sh::target_dir()).env("CARGO_INCREMENTAL", "0");
        eprintln!("$ cargo test --manifest-path {}", manifest.display());
        sh::run_quiet(&mut test)?;
    }
    Ok(())
}

/// The names of the crates of the workspace that an example can use.
fn own_crates() -> Result<Vec<String>> {
    let metadata = sh::metadata()?;
    let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    let names = packages.iter().filter_map(|package| package["name"].as_str());
    Ok(names.filter(|name| name.starts_with("packtrain")).map(str::to_owned).collect())
}

//! `xtask nightly`: what takes too long for every change: every experiment, every grid.

use anyhow::Result;

use crate::sh;

/// Runs everything and fails at the end if anything failed.
pub(crate) fn run() -> Result<()> {
    let mut failed = Vec::new();
    let mut step = |name: &str, words: &[&str]| {
        println!("nightly: {name}");
        if let Err(error) = sh::run(sh::cargo().args(words)) {
            eprintln!("nightly: {name}: {error:#}");
            failed.push(name.to_owned());
        }
    };
    let reproduce =
        ["run", "--release", "-p", "packtrain", "--", "sim", "reproduce", "--all", "--json"];
    step("every experiment", &reproduce);
    step(
        "the tests that are left out by day",
        &["test", "--release", "-p", "packtrain-sim", "--", "--ignored"],
    );
    let bench = ["run", "--release", "-p", "packtrain", "--", "sim", "bench"];
    step("the speed of the simulator", &bench);
    if failed.is_empty() { Ok(()) } else { anyhow::bail!("failed: {}", failed.join(", ")) }
}

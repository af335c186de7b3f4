//! `xtask nightly`: tests that take too long for every change: all experiments, all grids, a
//! thousand kills.

use anyhow::Result;

use crate::{ignored, sh};

/// If set, the measurements of the kernel and of the emulator are repeated (as root, on a quiet
/// machine, in three quarters of an hour), and the tests compare with them; the causes reported by
/// `packtrain diagnose` too.
const MEASURE: &str = "PACKTRAIN_NIGHTLY_MEASURE";

/// Number of kills in each of the two tests with kills; other runs use fewer.
const KILLS: &str = "1000";

/// Runs everything and fails at the end if anything failed.
pub(crate) fn run() -> Result<()> {
    let (mut failed, mut failed_to_measure) = (Vec::new(), Vec::new());
    let mut step = |name: &str, words: &[&str]| {
        println!("nightly: {name}");
        if let Err(error) = sh::run(sh::cargo().args(words)) {
            eprintln!("nightly: {name}: {error:#}");
            failed.push(name.to_owned());
        }
    };
    let program = ["run", "--release", "-p", "packtrain", "--"];
    let words = ["sim", "reproduce", "--all", "--check", "--whole"];
    step("every experiment", &[&program[..], &words[..]].concat());
    if std::env::var_os(MEASURE).is_some() {
        step("the command", &["build", "--release", "-p", "packtrain"]);
        for name in ["engine-validity", "kernel-validity"] {
            println!("nightly: {name} over the emulator");
            if let Err(error) = measure(name) {
                eprintln!("nightly: {name}: {error:#}");
                failed_to_measure.push(name.to_owned());
            }
        }
    }
    step(
        "the tests that are left out by day",
        &["test", "--release", "-p", "packtrain-sim", "--", "--ignored"],
    );
    step(
        "a transfer of 24 virtual hours",
        &["test", "--release", "-p", "packtrain-transfer", "--", "--ignored"],
    );
    step("the packages, and their program without a C library", &["xtask", "dist"]);
    let names = ["test", "-p", "packtrain-os", "--features", "resolver", "names"];
    step("names without the C library", &names);
    println!("nightly: {KILLS} kills of either end, and as many between renames");
    let words = ["test", "--release", "-p", "packtrain", "--test", "e2e"];
    let kills = ["--", "--ignored", "kills_of_either_end", "killed_between_the_renames"];
    let mut command = sh::cargo();
    if let Err(error) = sh::run(command.args(words).args(kills).env("PACKTRAIN_KILLS", KILLS)) {
        eprintln!("nightly: kills: {error:#}");
        failed_to_measure.push("kills".to_owned());
    }
    let e2e = ignored::nightly("crates/cli/tests/e2e")?;
    let (causes, rest): (Vec<_>, Vec<_>) =
        e2e.iter().partition(|test| test.file.starts_with("crates/cli/tests/e2e/diagnose"));
    let mut run = |name: &str, tests: &[&ignored::Ignored]| {
        println!("nightly: {name}");
        let base = ["test", "--release", "-p", "packtrain", "--test", "e2e", "--", "--ignored"];
        let names = tests.iter().map(|test| format!("::{}", test.name));
        let mut command = sh::cargo();
        command.args(base).arg("--test-threads=1").args(names);
        if let Err(error) = sh::run(&mut command) {
            eprintln!("nightly: {name}: {error:#}");
            failed_to_measure.push(name.to_owned());
        }
    };
    if !rest.is_empty() {
        run("the long end-to-end tests", &rest);
    }
    if std::env::var_os(MEASURE).is_some() {
        run("every cause that diagnose tells, provoked", &causes);
    } else {
        println!("nightly: not run, {MEASURE} is not set: {} causes of diagnose", causes.len());
    }
    let bench = ["run", "--release", "-p", "packtrain", "--", "sim", "bench"];
    step("the speed of the simulator", &bench);
    failed.extend(failed_to_measure);
    if failed.is_empty() { Ok(()) } else { anyhow::bail!("failed: {}", failed.join(", ")) }
}

/// Runs the script of an experiment that measures with the emulator.
fn measure(name: &str) -> Result<()> {
    let script = sh::root().join("experiments").join(name).join("measure.py");
    let packtrain = sh::target_dir().join("release/packtrain");
    sh::run(std::process::Command::new("python3").arg(script).arg("--packtrain").arg(packtrain))
}

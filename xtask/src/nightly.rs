//! `xtask nightly`: what takes too long for every change: every experiment, every grid.

use anyhow::Result;

use crate::sh;

/// Where it is set, the numbers of the kernel and of the emulator are measured anew (root, a quiet
/// machine, three quarters of an hour), and the tests compare with those; so are the causes that
/// `packtrain diagnose` tells.
const MEASURE: &str = "PACKTRAIN_NIGHTLY_MEASURE";

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
    let reproduce =
        ["run", "--release", "-p", "packtrain", "--", "sim", "reproduce", "--all", "--json"];
    step("every experiment", &reproduce);
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
    if std::env::var_os(MEASURE).is_some() {
        println!("nightly: every cause that diagnose tells, provoked");
        let words = ["test", "-p", "packtrain", "--test", "e2e", "diagnose::", "--", "--ignored"];
        if let Err(error) = sh::run(sh::cargo().args(words).env("PACKTRAIN_E2E_CAUSES", "1")) {
            eprintln!("nightly: causes: {error:#}");
            failed_to_measure.push("causes".to_owned());
        }
    }
    let bench = ["run", "--release", "-p", "packtrain", "--", "sim", "bench"];
    step("the speed of the simulator", &bench);
    failed.extend(failed_to_measure);
    if failed.is_empty() { Ok(()) } else { anyhow::bail!("failed: {}", failed.join(", ")) }
}

/// Runs the script of an experiment that fills its table over the emulator.
fn measure(name: &str) -> Result<()> {
    let script = sh::root().join("experiments").join(name).join("measure.py");
    let packtrain = sh::target_dir().join("release/packtrain");
    sh::run(std::process::Command::new("python3").arg(script).arg("--packtrain").arg(packtrain))
}

//! `xtask test`: runs all tests except the nightly ones, the cheapest first, and lists those not
//! run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::needs::{self, Need};
use crate::{examples, fuzz, ignored, sh};

const NEEDS: &[Need] = &[
    Need { program: "ssh", package: "openssh-client", for_what: "end-to-end tests over ssh" },
    Need { program: "sshd", package: "openssh-server", for_what: "end-to-end tests over ssh" },
    Need { program: "fish", package: "fish", for_what: "the bootstrap by the login shell fish" },
    Need { program: "tcsh", package: "tcsh", for_what: "the bootstrap by the login shell csh" },
    Need { program: "script", package: "bsdutils", for_what: "Ctrl-C on a terminal" },
    Need { program: "rsync", package: "rsync", for_what: "comparisons with rsync" },
    Need { program: "ip", package: "iproute2", for_what: "the test with a network that goes away" },
    Need { program: "jq", package: "jq", for_what: "the examples of the guide" },
    Need { program: "unshare", package: "util-linux", for_what: "tests with a full disk" },
    Need { program: "mkfs.xfs", package: "xfsprogs", for_what: "files that share blocks" },
    Need { program: "g++", package: "g++", for_what: "tests with the stock UDT library" },
    Need { program: "nft", package: "nftables", for_what: "tests of diagnose with a firewall" },
    Need { program: "strace", package: "strace", for_what: "tests of diagnose with slow disks" },
    Need {
        program: "/usr/bin/pg_createcluster",
        package: "postgresql",
        for_what: "tests of the history on PostgreSQL",
    },
    Need { program: "openssl", package: "openssl", for_what: "the history over TLS" },
    // A library has no program, so its file is checked.
    Need {
        program: "/usr/include/udt/udt.h",
        package: "libudt-dev",
        for_what: "tests with the stock UDT library",
    },
];

/// Installs requirements, builds, tests, and prints a list of the tests not run with the reasons.
pub(crate) fn run(args: &[String]) -> Result<()> {
    if let Some(other) = args.first() {
        bail!("`test` takes no argument, got {other}");
    }
    let mut skipped = Vec::new();
    for need in needs::provide(NEEDS) {
        skipped.push(format!("{} ({} is missing)", need.for_what, need.program));
    }
    if let Err(error) = needs::moto() {
        skipped.push(format!("tests with a store that speaks S3: {error:#}"));
    }
    if !needs::namespaces() {
        let what = "tests in namespaces (full and read-only disks): unshare does not work here";
        if needs::in_ci() {
            bail!("{what}, and CI=true allows no skipping");
        }
        skipped.push(what.to_owned());
    }
    if needs::in_ci() && !skipped.is_empty() {
        bail!("CI=true allows no skipping: {}", skipped.join("; "));
    }
    for what in &skipped {
        loud(what);
    }

    // Each skipped test writes a line to this file (crates/testkit), and fails if skipping is
    // forbidden.
    let skips = sh::target_dir().join("tests-skipped");
    let _ = fs::remove_file(&skips);
    let tests = |words: &[&str]| {
        let strict = if needs::in_ci() { "1" } else { "0" };
        let mut cargo = sh::cargo();
        cargo.args(["test", "--workspace", "--locked"]).args(words);
        cargo.env("PACKTRAIN_TEST_STRICT", strict).env("PACKTRAIN_TEST_SKIPS", &skips);
        cargo
    };
    let mut not_run = listen(&mut tests(&[])).context("the tests of the crates")?.ignored;
    let mut e2e = tests(&["--test", "e2e", "--", "--ignored", "--test-threads=2", "--exact"]);
    let nightly = |reason: &str| reason.contains(ignored::BY_NIGHTLY);
    for (test, _) in not_run.iter().filter(|(_, reason)| nightly(reason)) {
        e2e.args(["--skip", test]);
    }
    let ran = listen(&mut e2e).context("the end-to-end tests (over ssh, with kills and faults)")?;
    not_run.retain(|test, _| !ran.ran.contains(test));
    examples::run().context("the programs of examples/, such as a controller of one's own")?;
    fuzz::run(&["--seconds".into(), "2".into()])?;

    for (test, reason) in skipped_tests(&fs::read_to_string(&skips).unwrap_or_default()) {
        not_run.insert(test, reason);
    }
    report(&skipped, &not_run);
    let broken: Vec<&str> = not_run
        .iter()
        .filter(|(_, reason)| reason.contains(ignored::BY_TEST))
        .map(|(test, _)| test.as_str())
        .collect();
    if !broken.is_empty() {
        bail!("`cargo xtask test` should run these and does not: {}", broken.join(", "));
    }
    Ok(())
}

fn report(skipped: &[String], not_run: &BTreeMap<String, String>) {
    for what in skipped {
        loud(what);
    }
    eprintln!("\nall tests that ran have passed");
    eprintln!("not run: {} tests", not_run.len());
    for (test, reason) in not_run {
        eprintln!("  {test}: {reason}");
    }
}

/// The results of a test run.
#[derive(Default)]
struct Run {
    /// Tests that passed.
    ran: BTreeSet<String>,
    /// Tests that were not run, with the reasons.
    ignored: BTreeMap<String, String>,
}

impl Run {
    /// Reads a line of libtest.
    fn read(&mut self, line: &str) {
        let Some((test, end)) = line.strip_prefix("test ").and_then(|l| l.split_once(" ... "))
        else {
            return;
        };
        if let Some(reason) = end.strip_prefix("ignored") {
            let reason = reason.strip_prefix(", ").unwrap_or("no reason is given");
            self.ignored.insert(test.to_owned(), reason.to_owned());
        } else {
            self.ran.insert(test.to_owned());
        }
    }
}

/// Runs tests, forwards their output and collects their results.
fn listen(command: &mut Command) -> Result<Run> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("running cargo test")?;
    let mut run = Run::default();
    let stdout = child.stdout.take().context("no output")?;
    for line in BufReader::new(stdout).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        run.read(&line);
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("cargo test ended with {status}");
    }
    Ok(run)
}

/// Tests and reasons of the report of `crates/testkit`.
fn skipped_tests(report: &str) -> impl Iterator<Item = (String, String)> {
    report.lines().filter_map(|line| {
        let mut parts = line.splitn(3, '\t');
        let (package, test, reason) = (parts.next()?, parts.next()?, parts.next()?);
        Some((format!("{package}: {test}"), format!("skipped: {reason}")))
    })
}

fn loud(what: &str) {
    eprintln!("\n*** SKIPPED: {what} ***");
}

#[cfg(test)]
mod tests {
    use super::{Run, skipped_tests};

    #[test]
    fn what_ran_and_what_did_not_is_told_apart() {
        let mut run = Run::default();
        let lines = [
            "running 4 tests",
            "test a::b ... ok",
            "test c ... ignored, takes minutes; `cargo xtask nightly` runs it",
            "test d ... ignored",
            "test result: ok. 1 passed; 0 failed; 2 ignored",
        ];
        lines.iter().for_each(|line| run.read(line));
        assert_eq!(run.ran.iter().map(String::as_str).collect::<Vec<_>>(), ["a::b"]);
        assert_eq!(run.ignored["c"], "takes minutes; `cargo xtask nightly` runs it");
        assert_eq!(run.ignored["d"], "no reason is given");
    }

    #[test]
    fn the_report_of_skips_is_read() {
        let found: Vec<_> = skipped_tests("packtrain-net\ta::b\tno IPv6\ntorn").collect();
        assert_eq!(found, [("packtrain-net: a::b".to_owned(), "skipped: no IPv6".to_owned())]);
    }
}

//! `xtask test`: every test there is, in order of cost.

use anyhow::{Context, Result, bail};

use crate::needs::{self, Need};
use crate::{fuzz, sh};

const NEEDS: &[Need] = &[
    Need { program: "ssh", package: "openssh-client", for_what: "end-to-end tests over ssh" },
    Need { program: "sshd", package: "openssh-server", for_what: "end-to-end tests over ssh" },
    Need { program: "fish", package: "fish", for_what: "the bootstrap by the login shell fish" },
    Need { program: "tcsh", package: "tcsh", for_what: "the bootstrap by the login shell csh" },
    Need { program: "script", package: "bsdutils", for_what: "Ctrl-C on a terminal" },
    Need { program: "ip", package: "iproute2", for_what: "the test with a network that goes away" },
    Need { program: "unshare", package: "util-linux", for_what: "tests with a full disk" },
    Need { program: "g++", package: "g++", for_what: "tests with the stock UDT library" },
    Need { program: "nft", package: "nftables", for_what: "tests of diagnose with a firewall" },
    Need { program: "strace", package: "strace", for_what: "tests of diagnose with slow disks" },
    Need {
        program: "/usr/bin/pg_createcluster",
        package: "postgresql",
        for_what: "tests of the history on PostgreSQL",
    },
    Need { program: "openssl", package: "openssl", for_what: "the history over TLS" },
    // A library has no program to look for.
    Need {
        program: "/usr/include/udt/udt.h",
        package: "libudt-dev",
        for_what: "tests with the stock UDT library",
    },
];

/// Installs, builds, tests; ends with a list of what was not run and why.
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

    // The tests skip on their own what they see missing; where nothing may be skipped they fail.
    let strict = if needs::in_ci() { "1" } else { "0" };
    sh::run(
        sh::cargo().args(["test", "--workspace", "--locked"]).env("PACKTRAIN_TEST_STRICT", strict),
    )
    .context("the tests of the crates")?;
    sh::run(
        sh::cargo()
            .args(["test", "--locked", "-p", "packtrain", "--test", "e2e", "--"])
            .args(["--ignored", "--test-threads=2"])
            .env("PACKTRAIN_TEST_STRICT", strict),
    )
    .context("the end-to-end tests (over ssh, with kills and faults)")?;
    fuzz::run(&["--seconds".into(), "3".into()])?;

    eprintln!();
    if skipped.is_empty() {
        eprintln!("every test there is has run and passed");
    } else {
        for what in &skipped {
            loud(what);
        }
        eprintln!("all tests that ran have passed; those above did NOT run");
    }
    Ok(())
}

fn loud(what: &str) {
    eprintln!("\n*** SKIPPED: {what} ***");
}

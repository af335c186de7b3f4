//! Commands for the repository: `cargo xtask test | quick | tidy | licences | examples | fuzz |
//! nightly | bench | dist`.
//!
//! This is not part of the product: it may read clocks, print and run other programs.
#![allow(clippy::disallowed_methods, clippy::print_stdout)]

mod bench;
mod examples;
mod fuzz;
mod ignored;
mod licences;
mod needs;
mod nightly;
mod quick;
mod sh;
mod sshd;
mod test;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test       all tests but the nightly ones: installs what they need, lists what was not run
  quick      checks and unit tests of what differs from the last commit (or from BASE)
  tidy       arrows between crates, import cycles, file lengths, dead files, documents, words
             (--write: bring the map in ARCHITECTURE.md up to date)
  licences   the licence of every dependency is one we accept
  examples   build and test the programs of examples/, as `test` does
  fuzz       run every fuzz body on random and mutated input   [--seconds N] (per target)
  nightly    every experiment, the nightly tests, the speed of the simulator
  bench      compare with peers, write bench/results/          [raw|file|grid ...] [--runs N]
             [--seconds N] [--quick] [--dir DIR] [--keep-rmem] [--binary FILE]
             [--form short|full] (grid, company)
  dist       the static program under 15 MB, as tarball, deb and rpm, with SHA256SUMS
             [--dir DIR] [--target TARGET ...] [--binary FILE]
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let rest = args.get(1..).unwrap_or_default();
    let done = match args.first().map(String::as_str) {
        Some("test") => test::run(rest),
        Some("quick") => quick::run(rest),
        Some("tidy") => tidy::run(rest.iter().any(|word| word == "--write")),
        Some("licences" | "licenses") => licences::run(),
        Some("examples") => examples::run(),
        Some("fuzz") => fuzz::run(rest),
        Some("nightly") => nightly::run(),
        Some("bench") => bench::run(rest),
        // A crate of its own: its dependencies would slow down every other command.
        Some("dist") => sh::run(
            sh::cargo().args(["run", "--quiet", "--package", "packtrain-dist", "--"]).args(rest),
        ),
        Some("help" | "--help" | "-h") => {
            println!("{USAGE}");
            Ok(())
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

//! The `packtrain` command: reads the command line, calls the crate of each subcommand, and prints
//! the results.
//!
//! It is a library so that another program can be `packtrain` with congestion controllers of its
//! own: it registers them with `packtrain_cc::register` and then calls [`main`]. The folder
//! `examples/own-controller` is such a program.

mod args;
mod cmd;
mod exit;
mod out;
mod signals;

use std::process::ExitCode;

/// Runs the command line of this process, and returns the exit code for it. Call it once, from the
/// `main` of the program and on its first thread: it installs signal handlers, and some commands
/// start this same program again.
pub fn main() -> ExitCode {
    let line: Vec<_> = std::env::args_os().collect();
    let code = match args::parse(&line) {
        Ok(parsed) => cmd::run(parsed, &line).unwrap_or_else(exit::Exit::report),
        Err(exit) => exit.report_early(&line),
    };
    code.with_output_lost(out::stdout_error()).into()
}

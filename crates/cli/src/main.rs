//! The `packtrain` command: reads the command line, calls the crate of each subcommand, and prints
//! the results.

mod args;
mod cmd;
mod exit;
mod out;
mod signals;

use std::process::ExitCode;

fn main() -> ExitCode {
    let line: Vec<_> = std::env::args_os().collect();
    let code = match args::parse(&line) {
        Ok(parsed) => cmd::run(parsed, &line).unwrap_or_else(exit::Exit::report),
        Err(exit) => exit.report_early(&line),
    };
    code.with_output_lost(out::stdout_error()).into()
}

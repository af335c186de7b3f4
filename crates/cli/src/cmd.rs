//! One file per command: converts arguments to a request, and the outcome to an exit code.

mod clean;
mod config;
mod cp;
mod demo;
mod depot;
mod diagnose;
mod doctor;
mod emulate;
mod explain;
mod extra;
mod files_from;
mod forecast;
mod generate;
mod history;
mod input;
mod key;
#[cfg(feature = "laboratory")]
mod loss;
mod manifest;
mod perf;
mod places;
#[cfg(feature = "laboratory")]
mod predict;
mod request;
mod route;
mod rules;
mod send;
mod serve;
#[cfg(feature = "laboratory")]
mod sim;
mod stores;

use std::ffi::OsString;

use packtrain_identity::config::{Dirs, Policy};

use crate::args::{Command, Parsed};
use crate::exit::{Code, Exit};

/// Runs the command of `line`, which was parsed into `parsed`.
pub(crate) fn run(parsed: Parsed, line: &[OsString]) -> Result<Code, Exit> {
    let Parsed { command, matches, settings } = parsed;
    match command {
        Command::Cp(args) => Ok(cp::copy(&args, &matches, line)),
        Command::Verify(args) => Ok(cp::verify(&args, &matches, line)),
        Command::Serve(args) => serve::run(&args),
        Command::Depot(args) => depot::run(&args),
        Command::Send(args) => Ok(send::send(&args, &matches, line)),
        Command::Claim(args) => Ok(send::claim(&args, line)),
        Command::Perf(args) => perf::run(args, &matches),
        Command::Diagnose(args) => diagnose::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Clean(args) => clean::run(&args),
        Command::History(args) => history::run(&args),
        #[cfg(feature = "laboratory")]
        Command::Predict(args) => predict::run(&args),
        Command::Demo(args) => demo::run(args, &matches),
        Command::Emulate(args) => emulate::run(&args, &matches, line),
        #[cfg(feature = "laboratory")]
        Command::Sim(args) => Ok(sim::run(args)),
        #[cfg(feature = "laboratory")]
        Command::Loss(args) => loss::run(&args),
        Command::Forecast(args) => forecast::run(&args),
        Command::Route(args) => route::run(&args),
        Command::Key(args) => key::run(&args),
        Command::Config(args) => config::run(&args, &settings),
        Command::Completions(args) => Ok(generate::completions(&args)),
        Command::Man(args) => generate::man(&args),
    }
}

/// The site's ceilings. They apply even without a home directory.
fn policy() -> Result<Policy, Exit> {
    let site = std::path::PathBuf::from(packtrain_identity::config::SITE);
    let dirs = Dirs::from_env().unwrap_or_else(|_| Dirs {
        config: std::path::PathBuf::new(),
        state: std::path::PathBuf::new(),
        site,
    });
    Ok(Policy::load(&dirs)?)
}

//! Definitions of the command line: one file per command, shared options, and values.

mod choose;
mod clean;
mod common;
mod config;
mod cp;
mod demo;
mod depot;
mod diagnose;
mod doctor;
mod emulate;
mod forecast;
mod generate;
mod habits;
mod help;
mod history;
mod keep;
mod key;
#[cfg(feature = "laboratory")]
mod loss;
mod perf;
#[cfg(feature = "laboratory")]
mod predict;
mod route;
mod send;
mod serve;
mod settings;
#[cfg(feature = "laboratory")]
mod sim;
mod tips;
mod values;
mod verify;

use std::ffi::{OsStr, OsString};

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

pub(crate) use clean::CleanArgs;
pub(crate) use common::{
    FilterArgs, OutputArgs, ProgressMode, RemoteArgs, TicketArg, TransportArgs, WriteArgs,
};
pub(crate) use config::{ConfigArgs, ConfigCommand};
pub(crate) use cp::CpArgs;
pub(crate) use demo::{DemoArgs, DemoEnd};
pub(crate) use depot::DepotArgs;
pub(crate) use diagnose::DiagnoseArgs;
pub(crate) use doctor::DoctorArgs;
pub(crate) use emulate::{Buffers, Device, EmulateArgs, EmulateCommand, EmulateExecArgs, Queue};
pub(crate) use forecast::ForecastArgs;
pub(crate) use generate::{CompletionArgs, ManArgs};
pub(crate) use history::{Export, HistoryArgs, When};
pub(crate) use keep::{KeepArgs, without_password};
pub(crate) use key::{KeyArgs, KeyCommand};
#[cfg(feature = "laboratory")]
pub(crate) use loss::{LossArgs, LossClassifyArgs, LossCommand, LossTrainArgs};
pub(crate) use perf::{PerfArgs, PerfClientArgs, PerfCommand, PerfServerArgs};
#[cfg(feature = "laboratory")]
pub(crate) use predict::PredictArgs;
pub(crate) use route::{EpsilonArg, RouteArgs};
pub(crate) use send::{ClaimArgs, SendArgs};
pub(crate) use serve::ServeArgs;
pub(crate) use settings::{Origin, Settings, options, precedence, variable};
#[cfg(feature = "laboratory")]
pub(crate) use sim::{
    SimArgs, SimBenchArgs, SimCommand, SimListArgs, SimRegion, SimReproduceArgs, SimRunArgs,
    SimSignaturesArgs,
};
pub(crate) use values::{Streams, Via};
pub(crate) use verify::{HashArg, VerifyArgs};

use packtrain_service::Versions;

use crate::exit::Exit;

/// Moves files over long fat networks: encrypted, verified, resumable.
#[derive(Debug, Parser)]
#[command(
    name = "packtrain",
    version,
    long_version = long_version(),
    propagate_version = true,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Every long option can also be set by the variable PACKTRAIN_LONG_OPTION or in \
                  $XDG_CONFIG_HOME/packtrain/config.toml; see `packtrain config show`.\n\
                  Exit codes: 0 done, 2 usage, 3 source missing, 4 target missing, 5 temporary, \
                  7 fatal, 9 nothing to do (with --error-on-no-transfer), 12 not authorised, \
                  13 integrity, 23 some files failed, 24 some source files vanished, 128+n signal n."
)]
pub(crate) struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What `--version` prints after the name. An initiator that looks for a program over ssh reads it
/// (`find.sh` of `crates/client`).
fn long_version() -> String {
    format!("{}\nprotocol {}", env!("CARGO_PKG_VERSION"), Versions::OWN)
}

/// The commands of this version, and hidden commands of later versions.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Copy files and directory trees.
    Cp(Box<CpArgs>),
    /// Compare two trees by content; change nothing.
    Verify(Box<VerifyArgs>),
    /// Serve a directory to clients with known keys or a ticket.
    Serve(ServeArgs),
    /// Relay the encrypted sessions of clients with known keys to allowed destinations.
    Depot(Box<DepotArgs>),
    /// Send files to depots, which keep them until receivers claim them.
    Send(Box<SendArgs>),
    /// Fetch files from depots with the ticket that `send` wrote.
    Claim(Box<ClaimArgs>),
    /// Measure throughput from memory to memory.
    Perf(PerfArgs),
    /// Find what limits a transfer: the cause, its likelihood, the evidence and the remedy.
    Diagnose(Box<DiagnoseArgs>),
    /// Check this machine, and another one, for what makes transfers slow or impossible.
    Doctor(DoctorArgs),
    /// Remove the files that interrupted transfers left in a directory.
    Clean(CleanArgs),
    /// List finished and running transfers.
    History(Box<HistoryArgs>),
    #[cfg(feature = "laboratory")]
    /// Predict the best number of parallel TCP streams, and their throughput, from measurements.
    Predict(PredictArgs),
    /// Demonstrate a transfer that is interrupted and damaged on purpose, or compare programs on a
    /// path.
    Demo(DemoArgs),
    #[cfg(feature = "laboratory")]
    /// Simulate networks in virtual time: scenarios, sweeps, published experiments.
    Sim(SimArgs),
    /// Run a program on hosts that an emulated network connects, in real time.
    Emulate(Box<EmulateArgs>),
    #[cfg(feature = "laboratory")]
    /// Classify the cause of packet losses from the pattern of received and lost packets.
    Loss(LossArgs),
    /// Forecast the throughput of a path from past measurements.
    Forecast(Box<ForecastArgs>),
    /// Compute the best paths from one host to all others from the bandwidths between them.
    Route(RouteArgs),
    /// Show this user's key, or forget the key of a server.
    Key(KeyArgs),
    /// Show the configuration.
    Config(ConfigArgs),
    /// Print the completions of a shell.
    Completions(CompletionArgs),
    /// Write manual pages.
    Man(ManArgs),
}

/// A command line that was parsed.
pub(crate) struct Parsed {
    /// The subcommand with its arguments.
    pub(crate) command: Command,
    /// The matches of the subcommand, for the order and the origin of its options.
    pub(crate) matches: clap::ArgMatches,
    /// The configuration that was read.
    pub(crate) settings: Settings,
}

/// Parses a command line; `line[0]` is the program.
pub(crate) fn parse(line: &[OsString]) -> Result<Parsed, Exit> {
    keep::refuse_password(line)?;
    let joined = habits::joined(line);
    let line = &*joined;
    let settings = if line.get(1).is_some_and(|word| needs_no_settings(word)) {
        Settings::default()
    } else {
        Settings::load(line)?
    };
    let command = settings.apply(bare())?;
    let explained = |mut error: clap::Error| {
        tips::improve(&mut error, line);
        let origin = settings.origin_of(&error, line);
        Exit::Clap(Box::new(error), origin)
    };
    let matches = command
        .try_get_matches_from(line)
        .map_err(|error| habits::rsync_help(&error, line).unwrap_or_else(|| explained(error)))?;
    let mut command = Cli::from_arg_matches(&matches).map_err(explained)?.command;
    let own = matches.subcommand().map(|(_, own)| own.clone()).unwrap_or_default();
    match &mut command {
        Command::Cp(args) => args.output.resolve_quiet(&own)?,
        Command::Verify(args) => args.output.resolve_quiet(&own)?,
        Command::Send(args) => args.output.resolve_quiet(&own)?,
        Command::Claim(args) => args.output.resolve_quiet(&own)?,
        _ => {}
    }
    Ok(Parsed { command, matches: own, settings })
}

/// Commands that work whatever the configuration says, among them those that shells and packagers
/// run.
fn needs_no_settings(word: &OsStr) -> bool {
    const NAMES: &[&str] =
        &["completions", "man", "demo", "help", "--help", "-h", "--version", "-V"];
    NAMES.iter().any(|name| word == *name)
}

/// The command as defined here, without variables and configuration files.
pub(crate) fn bare() -> clap::Command {
    help::add(Cli::command())
}

#[cfg(test)]
mod documents_tests;
#[cfg(test)]
mod tests;

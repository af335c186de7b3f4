//! The command line: one file a command, and the values and settings they share.

mod clean;
mod common;
mod config;
mod cp;
mod demo;
mod depot;
mod diagnose;
mod emulate;
mod forecast;
mod generate;
mod history;
mod keep;
mod key;
mod later;
mod loss;
mod perf;
mod predict;
mod route;
mod send;
mod serve;
mod settings;
mod sim;
mod values;
mod verify;

use std::ffi::OsString;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

pub(crate) use clean::CleanArgs;
pub(crate) use common::{
    Bootstrap, FilterArgs, OutputArgs, ProgressMode, RemoteArgs, TicketArg, TransportArgs,
    WriteArgs,
};
pub(crate) use config::{ConfigArgs, ConfigCommand};
pub(crate) use cp::CpArgs;
pub(crate) use demo::{DemoArgs, DemoEnd};
pub(crate) use depot::DepotArgs;
pub(crate) use diagnose::DiagnoseArgs;
pub(crate) use emulate::{Buffers, Device, EmulateArgs, EmulateCommand, EmulateExecArgs, Queue};
pub(crate) use forecast::ForecastArgs;
pub(crate) use generate::{CompletionArgs, ManArgs};
pub(crate) use history::{Export, HistoryArgs, When};
pub(crate) use keep::{KeepArgs, without_password};
pub(crate) use key::{KeyArgs, KeyCommand};
pub(crate) use loss::{LossArgs, LossClassifyArgs, LossCommand, LossTrainArgs};
pub(crate) use perf::{PerfArgs, PerfClientArgs, PerfCommand, PerfServerArgs};
pub(crate) use predict::PredictArgs;
pub(crate) use route::{EpsilonArg, RouteArgs};
pub(crate) use send::{ClaimArgs, SendArgs};
pub(crate) use serve::ServeArgs;
pub(crate) use settings::{Origin, Settings, nearness, options, variable};
pub(crate) use sim::{
    SimArgs, SimBenchArgs, SimCommand, SimListArgs, SimRegion, SimReproduceArgs, SimRunArgs,
    SimSignaturesArgs,
};
pub(crate) use values::{Streams, Via};
pub(crate) use verify::VerifyArgs;

use crate::exit::Exit;

/// Moves files over long fat networks: encrypted, verified, resumable.
#[derive(Debug, Parser)]
#[command(
    name = "packtrain",
    version,
    propagate_version = true,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Every long option has a variable PACKTRAIN_LONG_OPTION and may stand in \
                  $XDG_CONFIG_HOME/packtrain/config.toml; see `packtrain config show`.\n\
                  Exit codes: 0 done, 2 usage, 3 source missing, 4 target missing, 5 temporary, \
                  7 fatal, 9 nothing to do (only if asked), 12 not authorised, 13 integrity, \
                  23 some files failed, 24 some source files vanished, 128+n signal n."
)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands of this version, and, hidden, those of later ones.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Copy files and directory trees.
    Cp(Box<CpArgs>),
    /// Compare two trees by content; change nothing.
    Verify(Box<VerifyArgs>),
    /// Serve a directory to clients with known keys or a ticket.
    Serve(ServeArgs),
    /// Relay sessions in the middle of a path, for known keys to named places.
    Depot(Box<DepotArgs>),
    /// Send to depots that keep it for those who come later.
    Send(Box<SendArgs>),
    /// Get what was sent to depots, with its ticket.
    Claim(Box<ClaimArgs>),
    /// Measure throughput from memory to memory.
    Perf(PerfArgs),
    /// Why a transfer is slow: the cause, how sure that is, the evidence, what helps.
    Diagnose(Box<DiagnoseArgs>),
    /// Remove what interrupted transfers left in a directory.
    Clean(CleanArgs),
    /// What became of transfers.
    History(Box<HistoryArgs>),
    /// How many parallel TCP streams to use, and how fast they will be, from measurements.
    Predict(PredictArgs),
    /// Show on this machine what an interrupted and damaged transfer does.
    Demo(DemoArgs),
    /// Networks in virtual time: scenarios, sweeps, results of papers.
    Sim(SimArgs),
    /// A network in real time between hosts of their own, for any program.
    Emulate(Box<EmulateArgs>),
    /// Why packets were lost, read from which were.
    Loss(LossArgs),
    /// What a path will give next, from what it gave.
    Forecast(Box<ForecastArgs>),
    /// Over which hosts to go from one to all others, by the bandwidths between them.
    Route(RouteArgs),
    /// The key of this user and the keys of known servers.
    Key(KeyArgs),
    /// What the configuration says.
    Config(ConfigArgs),
    /// Print a shell's completions.
    Completions(CompletionArgs),
    /// Write manual pages.
    Man(ManArgs),
    /// Commands that later versions have.
    #[command(flatten)]
    Later(later::Later),
}

/// A command line that was understood.
pub(crate) struct Parsed {
    /// What to do.
    pub(crate) command: Command,
    /// The command's own matches, for the order and the origin of its options.
    pub(crate) matches: clap::ArgMatches,
    /// What configuration was taken in.
    pub(crate) settings: Settings,
}

/// Reads a command line, `line[0]` being the program.
pub(crate) fn parse(line: &[OsString]) -> Result<Parsed, Exit> {
    keep::refuse_password(line)?;
    let settings = if line.get(1).is_some_and(|word| later::needs_no_settings(word)) {
        Settings::default()
    } else {
        Settings::load(line)?
    };
    let command = settings.apply(Cli::command())?;
    let explained = |error: clap::Error| {
        let origin = settings.origin_of(&error, line);
        Exit::Clap(Box::new(error), origin)
    };
    let matches = command.try_get_matches_from(line).map_err(explained)?;
    let mut command = Cli::from_arg_matches(&matches).map_err(explained)?.command;
    let own = matches.subcommand().map(|(_, own)| own.clone()).unwrap_or_default();
    match &mut command {
        Command::Later(later) => return Err(Exit::usage(later.refusal())),
        Command::Cp(args) => args.output.settle(&own)?,
        Command::Verify(args) => args.output.settle(&own)?,
        Command::Send(args) => args.output.settle(&own)?,
        Command::Claim(args) => args.output.settle(&own)?,
        _ => {}
    }
    Ok(Parsed { command, matches: own, settings })
}

/// The command as defined here, without anybody's configuration.
pub(crate) fn bare() -> clap::Command {
    Cli::command()
}

#[cfg(test)]
mod documents_tests;
#[cfg(test)]
mod tests;

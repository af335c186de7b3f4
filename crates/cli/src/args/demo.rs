//! `packtrain demo`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgMatches, Args, Subcommand, ValueHint};

use super::settings::nearness;
use super::values::{self, Words};
use crate::exit::Exit;

/// What `demo` takes.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct DemoArgs {
    /// Compare movers over an emulated path of 1 Gbit/s, 100 ms and 0.01 % loss.
    #[arg(long, conflicts_with = "to")]
    pub(crate) wan: bool,
    /// Seed of the emulated path of --wan.
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,
    /// Ten seconds on the path to a machine of yours, beside an ssh pipe.
    #[arg(long, value_name = "USER@HOST", value_hint = ValueHint::Hostname)]
    pub(crate) to: Option<String>,
    /// The ssh command of --to, such as 'ssh -p 2222'.
    #[arg(short = 'e', long = "ssh", value_name = "COMMAND", default_value = "ssh", value_parser = values::words)]
    pub(crate) ssh: Words,
    /// Command to start on the other machine of --to, if packtrain is not in its PATH.
    #[arg(long, value_name = "COMMAND", default_value = "packtrain")]
    pub(crate) remote_path: String,
    /// The demo's own processes.
    #[command(subcommand)]
    pub(crate) end: Option<DemoEnd>,
}

impl DemoArgs {
    /// Options that mean nothing without another are refused on the command line alone: a
    /// variable may be set for other commands.
    pub(crate) fn check(&self, matches: &ArgMatches) -> Result<(), Exit> {
        let pairs = [("seed", "wan", self.wan), ("ssh", "to", self.to.is_some())];
        let pairs = pairs.into_iter().chain([("remote_path", "to", self.to.is_some())]);
        for (option, other, there) in pairs {
            if !there && nearness(matches, option) == 3 {
                let option = option.replace('_', "-");
                return Err(Exit::usage(format!("--{option} belongs to --{other}: add --{other}")));
            }
        }
        Ok(())
    }
}

/// Processes that `demo --wan` starts inside its emulation.
#[derive(Debug, Subcommand)]
pub(crate) enum DemoEnd {
    /// Waits for the far end and times a command.
    #[command(hide = true)]
    Near(NearArgs),
    /// Sends files over one TCP connection.
    #[command(hide = true)]
    PlainSend(PlainArgs),
    /// Receives them.
    #[command(hide = true)]
    PlainReceive(PlainArgs),
}

/// What the near host runs.
#[derive(Args, Debug)]
pub(crate) struct NearArgs {
    /// Until somebody listens here.
    #[arg(long)]
    pub(crate) address: SocketAddr,
    /// Until this file is there.
    #[arg(long)]
    pub(crate) file: Option<PathBuf>,
    /// Where the output goes.
    #[arg(long)]
    pub(crate) out: PathBuf,
    /// What is run.
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

/// One end of the plain mover.
#[derive(Args, Debug)]
pub(crate) struct PlainArgs {
    /// The receiver.
    #[arg(long)]
    pub(crate) address: SocketAddr,
    /// The kernel's congestion control.
    #[arg(long)]
    pub(crate) cc: String,
    /// What is sent, or where it goes.
    #[arg(long)]
    pub(crate) dir: PathBuf,
}

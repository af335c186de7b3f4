//! `packtrain demo`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgMatches, Args, Subcommand, ValueHint};

use super::settings::precedence;
use super::values::{self, Words};
use crate::exit::Exit;

/// Arguments of `demo`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct DemoArgs {
    /// Compare programs over an emulated path of 1 Gbit/s, 100 ms round-trip time and 0.01 % loss.
    #[arg(long, conflicts_with = "to")]
    pub(crate) wan: bool,
    /// Random seed of the emulated path of --wan.
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,
    /// Send to this machine for five seconds through an ssh pipe and for five seconds with packtrain.
    #[arg(long, value_name = "USER@HOST", value_hint = ValueHint::Hostname)]
    pub(crate) to: Option<String>,
    /// The ssh command of --to, such as 'ssh -p 2222'.
    #[arg(short = 'e', long = "ssh", value_name = "COMMAND", default_value = "ssh", value_parser = values::words)]
    pub(crate) ssh: Words,
    /// Command that starts packtrain at the other machine of --to, if it is not in the PATH there.
    #[arg(long, value_name = "COMMAND", default_value = "packtrain")]
    pub(crate) remote_path: String,
    /// The processes that the demo starts.
    #[command(subcommand)]
    pub(crate) end: Option<DemoEnd>,
}

impl DemoArgs {
    /// Refuses an option on the command line that has no effect without another. A variable may be
    /// set for other commands, so it is not refused.
    pub(crate) fn check(&self, matches: &ArgMatches) -> Result<(), Exit> {
        let pairs = [("seed", "wan", self.wan), ("ssh", "to", self.to.is_some())];
        let pairs = pairs.into_iter().chain([("remote_path", "to", self.to.is_some())]);
        for (option, other, there) in pairs {
            if !there && precedence(matches, option) == 3 {
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
    /// Waits for the remote host and measures the time of a command.
    #[command(hide = true)]
    Near(NearArgs),
    /// Sends files over one TCP connection.
    #[command(hide = true)]
    PlainSend(PlainArgs),
    /// Receives them.
    #[command(hide = true)]
    PlainReceive(PlainArgs),
}

/// Arguments of the process on the sending host.
#[derive(Args, Debug)]
pub(crate) struct NearArgs {
    /// Wait until a process listens at this address.
    #[arg(long)]
    pub(crate) address: SocketAddr,
    /// Wait until this file exists.
    #[arg(long)]
    pub(crate) file: Option<PathBuf>,
    /// The file for the output.
    #[arg(long)]
    pub(crate) out: PathBuf,
    /// The command to run.
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

/// One end of the plain copy over one TCP connection.
#[derive(Args, Debug)]
pub(crate) struct PlainArgs {
    /// The address of the receiver.
    #[arg(long)]
    pub(crate) address: SocketAddr,
    /// The congestion control of the kernel.
    #[arg(long)]
    pub(crate) cc: String,
    /// The directory to send, or to receive into.
    #[arg(long)]
    pub(crate) dir: PathBuf,
}

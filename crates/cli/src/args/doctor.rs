//! `packtrain doctor`.

use std::ffi::OsString;

use clap::{Args, ValueHint};

use super::Bootstrap;
use super::values::{self, Words};

/// Arguments of `doctor`.
#[derive(Args, Debug)]
#[command(
    override_usage = "packtrain doctor [user@host] [OPTIONS]",
    after_help = "The output names what was checked, what was found, and what to change. Exit code \
                  0: transfers work; 7: something must be changed first."
)]
pub(crate) struct DoctorArgs {
    /// Another machine that ssh reaches. It is checked too, and so are UDP and the clocks between
    /// the two.
    #[arg(value_name = "user@host", value_hint = ValueHint::Hostname)]
    pub(crate) host: Option<OsString>,
    /// Command that connects to user@host, such as 'ssh -p 2222'.
    #[arg(short = 'e', long = "ssh", value_name = "COMMAND", default_value = "ssh", value_parser = values::words)]
    pub(crate) ssh: Words,
    /// Command that starts packtrain at the other end, if it is not in the PATH there: a program, or
    /// a command line for the login shell.
    #[arg(long, value_name = "COMMAND", default_value = "packtrain")]
    pub(crate) remote_path: String,
    /// Whether to send this program to the other end, once, if no compatible packtrain is installed
    /// there: auto or never.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(crate) bootstrap: Bootstrap,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    /// Answer another doctor over standard input and output.
    #[arg(long, hide = true, conflicts_with_all = ["host", "json"])]
    pub(crate) stdio: bool,
}

//! `packtrain diagnose`.

use std::ffi::OsString;

use clap::{Args, ValueHint};

use super::{KeepArgs, RemoteArgs, TransportArgs};

/// What `diagnose` takes.
#[derive(Args, Debug)]
#[command(
    after_help = "It names the cause, how sure that is (likely, possible, inconclusive), the \
                  numbers it goes by and what helps. No root and no service is needed: cp keeps \
                  the evidence in the history."
)]
pub(crate) struct DiagnoseArgs {
    /// last, the id of a transfer, the process id of a running or finished one, or a host:
    /// `user@host` or `user@host:directory` is tried with a file that is removed again.
    #[arg(value_name = "last|ID|PID|user@host", value_hint = ValueHint::Hostname)]
    pub(crate) what: OsString,
    #[command(flatten)]
    pub(crate) transport: TransportArgs,
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
    /// Findings, ceilings and the whole evidence as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
}

//! `packtrain diagnose`.

use std::ffi::OsString;

use clap::{Args, ValueHint};

use super::{KeepArgs, RemoteArgs, TransportArgs};

/// Arguments of `diagnose`.
#[derive(Args, Debug)]
#[command(
    after_help = "The output names the cause, its likelihood (likely, possible, inconclusive), the \
                  numbers behind it and a remedy. diagnose needs neither root nor a service: cp \
                  writes the evidence to the history."
)]
pub(crate) struct DiagnoseArgs {
    /// The transfer: last (the last copy), its id, or the id of a running or finished process.
    /// `user@host` and `user@host:directory` measure with a temporary file that diagnose removes.
    #[arg(value_name = "last|ID|PID|user@host", value_hint = ValueHint::Hostname)]
    pub(crate) what: OsString,
    #[command(flatten)]
    pub(crate) transport: TransportArgs,
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
    /// Print the findings, the ceilings and all evidence as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
}

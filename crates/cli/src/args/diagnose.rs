//! `packtrain diagnose`.

use std::ffi::OsString;

use clap::{Args, ValueHint};

/// What `diagnose` takes.
#[derive(Args, Debug)]
#[command(
    after_help = "It names the cause, how sure that is (likely, possible, inconclusive), the \
                  numbers it goes by and what helps. No root and no service is needed: cp keeps \
                  the evidence in $XDG_STATE_HOME/packtrain/transfers."
)]
pub(crate) struct DiagnoseArgs {
    /// last, the id of a transfer, or the process id of a running or finished one.
    #[arg(value_name = "last|ID|PID", value_hint = ValueHint::Other)]
    pub(crate) what: OsString,
    /// Findings, ceilings and the whole evidence as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

//! `packtrain verify`.

use std::ffi::OsString;

use clap::{Args, ValueHint};

use super::{FilterArgs, OutputArgs, RemoteArgs, TransportArgs};

/// What `verify` takes.
#[derive(Args, Debug)]
#[command(after_help = "Ends with 0 if everything in SRC is in DST with the same content, with \
                        13 if not. Places are those of cp.")]
pub(crate) struct VerifyArgs {
    /// What it should be.
    #[arg(value_hint = ValueHint::AnyPath)]
    pub(crate) src: OsString,
    /// What is compared with it.
    #[arg(value_hint = ValueHint::AnyPath)]
    pub(crate) dst: OsString,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    #[command(flatten)]
    pub(crate) transport: TransportArgs,
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

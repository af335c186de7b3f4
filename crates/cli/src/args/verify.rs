//! `packtrain verify`.

use std::ffi::OsString;

use clap::{Args, ValueHint};

use super::{FilterArgs, OutputArgs, RemoteArgs, TransportArgs};

/// Arguments of `verify`.
#[derive(Args, Debug)]
#[command(after_help = "Exit code 0: everything in SRC is in DST with the same content; 13: \
                       something differs or is missing. Places are those of cp.")]
pub(crate) struct VerifyArgs {
    /// The reference.
    #[arg(value_hint = ValueHint::AnyPath)]
    pub(crate) src: OsString,
    /// The copy to compare with it.
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

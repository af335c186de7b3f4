//! `packtrain clean`.

use std::ffi::OsString;

use clap::{Args, ValueHint};

/// Arguments of `clean`.
#[derive(Args, Debug)]
#[command(
    after_help = "clean keeps the temporary files, journals and locks of running transfers. \
                       It removes those of other users only with --all-owners. If it removes the \
                       files of an interrupted transfer, the transfer starts from the beginning. \
                       Exit code 23: some files could not be removed."
)]
pub(crate) struct CleanArgs {
    /// A directory on this machine. clean searches everything below it and follows no links.
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) place: OsString,
    /// List what would be removed; remove nothing.
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Remove the files of other users too.
    #[arg(long)]
    pub(crate) all_owners: bool,
    /// Print one JSON object per file and one at the end.
    #[arg(long)]
    pub(crate) json: bool,
}

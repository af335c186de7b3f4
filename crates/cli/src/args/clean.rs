//! `packtrain clean`.

use std::ffi::OsString;

use clap::{Args, ValueHint};

/// What `clean` takes.
#[derive(Args, Debug)]
#[command(after_help = "Temporaries, journals and locks of transfers that run are never touched, \
                        and those of other users only with --all-owners. An interrupted transfer \
                        whose files are removed begins anew. Ends with 23 if something could not \
                        be removed.")]
pub(crate) struct CleanArgs {
    /// A directory of this machine; everything below it is looked at, and links are not followed.
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) place: OsString,
    /// List what would be removed; remove nothing.
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Remove what belongs to other users too.
    #[arg(long)]
    pub(crate) all_owners: bool,
    /// Print one JSON object a file and one at the end.
    #[arg(long)]
    pub(crate) json: bool,
}

//! `packtrain cp`.

use std::ffi::OsString;

use clap::{Args, ValueHint};

use super::{FilterArgs, OutputArgs, RemoteArgs, TransportArgs, WriteArgs};

/// What `cp` takes.
#[derive(Args, Debug)]
#[command(
    override_usage = "packtrain cp [-r] [OPTIONS] SRC... DST",
    after_help = "A place is a path, user@host:path (over ssh), pt://host:port/path (a server), \
                  udt4://host:port/name (a stock UDT file server, in clear) or - (standard input \
                  or output).\n\
                  SRC/ with a slash copies what is in it, SRC copies the directory itself. The \
                  same command again goes on where an interrupted one ended."
)]
pub(crate) struct CpArgs {
    /// What to copy, and last where to.
    #[arg(required = true, value_name = "PLACE", value_hint = ValueHint::AnyPath)]
    pub(crate) places: Vec<OsString>,
    /// Directories with all that is in them.
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Go on where an earlier run ended (the default); =trust believes its journal without
    /// reading the data again.
    #[arg(
        long,
        value_name = "trust",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "on",
        value_parser = ["on", "trust"],
        hide_possible_values = true
    )]
    pub(crate) resume: Option<String>,
    /// Begin anew and keep nothing for a resume.
    #[arg(long)]
    pub(crate) no_resume: bool,
    /// Compare contents, not size and modification time.
    #[arg(long)]
    pub(crate) checksum: bool,
    /// Leave files alone that are newer at the target.
    #[arg(long)]
    pub(crate) update: bool,
    /// Remove at the target what the source does not have, at the end, if nothing failed.
    #[arg(long)]
    pub(crate) delete: bool,
    /// Let --delete act even where a source has no file.
    #[arg(long, requires = "delete")]
    pub(crate) force_delete: bool,
    /// Remove at most so many names with --delete; if there are more, the rest stays and the exit
    /// code is 23.
    #[arg(long, value_name = "N", requires = "delete")]
    pub(crate) max_delete: Option<u64>,
    #[command(flatten)]
    pub(crate) writing: WriteArgs,
    /// End with 9 if nothing needed doing.
    #[arg(long)]
    pub(crate) error_on_no_transfer: bool,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    #[command(flatten)]
    pub(crate) transport: TransportArgs,
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

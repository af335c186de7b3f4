//! `packtrain cp`.

use std::ffi::OsString;

use clap::{Args, ValueHint};

use super::choose::{ChooseArgs, KeepOldArgs, RsyncArgs};
use super::{FilterArgs, OutputArgs, RemoteArgs, TransportArgs, WriteArgs};

/// Arguments of `cp`.
#[derive(Args, Debug)]
#[command(
    override_usage = "packtrain cp [-r] [OPTIONS] SRC... DST",
    after_help = "A place is a path, user@host:path (over ssh), pt://host:port/path (a server), \
                  https://host/path (a web server, source only), s3://bucket/key (an S3 store), \
                  udt4://host:port/name (a stock UDT file server, source only, unencrypted) or - \
                  (standard input or output).\n\
                  SRC/ with a slash copies the contents of a directory, SRC the directory itself. \
                  The same command resumes an interrupted copy."
)]
pub(crate) struct CpArgs {
    /// One or more sources, then the target.
    #[arg(required = true, value_name = "PLACE", value_hint = ValueHint::AnyPath)]
    pub(crate) places: Vec<OsString>,
    /// Copy directories with everything in them.
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Resume an interrupted copy; this is the default. =trust uses the chunks that the journal
    /// lists as durable without reading them again.
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
    /// Start from the beginning, and keep nothing for a later resume.
    #[arg(long)]
    pub(crate) no_resume: bool,
    /// Read both files and compare their contents. Without the option, files with the same size and
    /// modification time are unchanged.
    #[arg(long)]
    pub(crate) checksum: bool,
    /// Skip files that are newer at the target.
    #[arg(short, long, conflicts_with = "inplace")]
    pub(crate) update: bool,
    /// Remove files at the target that the source does not have. They are removed at the end, and
    /// only if nothing failed.
    #[arg(long)]
    pub(crate) delete: bool,
    /// Let --delete remove files even if a source has no file.
    #[arg(long, requires = "delete")]
    pub(crate) force_delete: bool,
    /// Remove at most N names with --delete [default: no limit]. If there are more, the others stay
    /// and the exit code is 23.
    #[arg(long, value_name = "N", requires = "delete")]
    pub(crate) max_delete: Option<u64>,
    #[command(flatten)]
    pub(crate) writing: WriteArgs,
    /// Exit with code 9 if nothing had to be copied.
    #[arg(long)]
    pub(crate) error_on_no_transfer: bool,
    #[command(flatten)]
    pub(crate) keep_old: KeepOldArgs,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    #[command(flatten)]
    pub(crate) choose: ChooseArgs,
    #[command(flatten)]
    pub(crate) rsync: RsyncArgs,
    #[command(flatten)]
    pub(crate) transport: TransportArgs,
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

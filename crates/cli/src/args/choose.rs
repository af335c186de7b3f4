//! Options of `cp` that choose among files and say what becomes of them, named as in rsync.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::values;

/// Which files `cp` leaves alone.
#[derive(Args, Debug)]
#[command(next_help_heading = "Which files")]
pub(crate) struct ChooseArgs {
    /// Copy what symbolic links lead to instead of the links.
    #[arg(short = 'L', long)]
    pub(crate) copy_links: bool,
    /// Do not enter directories on other file systems than the source.
    #[arg(short = 'x', long)]
    pub(crate) one_file_system: bool,
    /// Leave alone what exists at the target.
    #[arg(long, conflicts_with = "inplace")]
    pub(crate) ignore_existing: bool,
    /// Create nothing that does not exist at the target; only update.
    #[arg(long)]
    pub(crate) existing: bool,
    /// Files of the same size are unchanged, whatever their modification time.
    #[arg(long, conflicts_with_all = ["checksum", "inplace"])]
    pub(crate) size_only: bool,
    /// Skip files larger than SIZE: bytes, or with a suffix as in rsync (10M, 1.5G, 500KB, 1M-1).
    #[arg(long, value_name = "SIZE", value_parser = values::rsync_size)]
    pub(crate) max_size: Option<u64>,
    /// Skip files smaller than SIZE.
    #[arg(long, value_name = "SIZE", value_parser = values::rsync_size)]
    pub(crate) min_size: Option<u64>,
}

/// What becomes of modes, of old versions and of the source.
#[derive(Args, Debug)]
pub(crate) struct KeepOldArgs {
    /// Create the missing parent directories of the target.
    #[arg(long)]
    pub(crate) mkpath: bool,
    /// Change the modes that are preserved, as chmod does: D755,F644 or Dg+s,ugo-w,F+X. D applies
    /// to directories, F to files.
    #[arg(long, value_name = "CHANGES", allow_hyphen_values = true)]
    pub(crate) chmod: Option<String>,
    /// Move changed files as a whole. Between machines, `cp` otherwise leaves out the aligned 4 MiB
    /// pieces of a file that its old version at the target has at the same place.
    #[arg(short = 'W', long)]
    pub(crate) whole_file: bool,
    /// Make names of one file in the source names of one file at the target. Its content is sent
    /// once.
    #[arg(short = 'H', long, conflicts_with = "inplace")]
    pub(crate) hard_links: bool,
    /// Copy extended attributes of the namespace user, and remove others of that namespace at the
    /// target.
    #[arg(short = 'X', long)]
    pub(crate) xattrs: bool,
    /// Copy POSIX access control lists, with modes (-p). Users and groups are copied as numbers.
    #[arg(short = 'A', long, conflicts_with = "chmod")]
    pub(crate) acls: bool,
    /// Remove each source file and link once it is verified and durable at the target. Directories stay.
    #[arg(long, conflicts_with_all = ["inplace", "copy_links", "backup", "delete", "hard_links"])]
    pub(crate) remove_source_files: bool,
    /// Keep the old version of each file that is replaced or deleted, as NAME~.
    #[arg(short, long, conflicts_with = "inplace")]
    pub(crate) backup: bool,
    /// Suffix of old versions [default: ~; none with --backup-dir].
    #[arg(long, value_name = "SUFFIX", requires = "backup", allow_hyphen_values = true)]
    pub(crate) suffix: Option<OsString>,
    /// Directory for old versions, below the target.
    #[arg(long, value_name = "DIR", requires = "backup", value_hint = ValueHint::DirPath)]
    pub(crate) backup_dir: Option<PathBuf>,
}

/// Options that are there for users of rsync and scp: they ask for what `cp` does anyway, or `cp`
/// says what it does instead.
#[derive(Args, Debug)]
#[command(next_help_heading = "As in rsync")]
pub(crate) struct RsyncArgs {
    /// Copy a tree and keep modes, times, owners and groups: -r --preserve.
    #[arg(short, long)]
    pub(crate) archive: bool,
    /// Keep modification times; this is the default.
    #[arg(short, long)]
    pub(crate) times: bool,
    /// Keep modes; this is the default.
    #[arg(short, long)]
    pub(crate) perms: bool,
    /// Keep owners, together with -g: --preserve=mode,times,owner.
    #[arg(short, long)]
    pub(crate) owner: bool,
    /// Keep groups, together with -o.
    #[arg(short, long)]
    pub(crate) group: bool,
    /// Copy symbolic links as links; this is the default.
    #[arg(short, long, conflicts_with = "copy_links")]
    pub(crate) links: bool,
    /// Accepted: devices, sockets and named pipes are always skipped.
    #[arg(short = 'D', long)]
    pub(crate) devices: bool,
    /// Accepted: cp does not compress.
    #[arg(short = 'z', long)]
    pub(crate) compress: bool,
    /// Accepted: an interrupted copy always resumes.
    #[arg(long)]
    pub(crate) partial: bool,
    /// Accepted: a terminal shows progress, and an interrupted copy resumes.
    #[arg(short = 'P', long = "partial-progress")]
    pub(crate) partial_progress: bool,
    /// Accepted: an interrupted copy resumes, and between machines a file that grew is sent without the
    /// pieces that the target has.
    #[arg(long)]
    pub(crate) append: bool,
}

//! `packtrain verify`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

use super::{FilterArgs, OutputArgs, RemoteArgs, TransportArgs};

/// Arguments of `verify`.
#[derive(Args, Debug)]
#[command(
    override_usage = "packtrain verify [OPTIONS] SRC DST\n       packtrain verify --manifest-out FILE PLACE\n       packtrain verify --manifest FILE PLACE",
    after_help = "Exit code 0: everything in SRC is in DST with the same content; 13: \
                  something differs or is missing. Names that only DST has are listed as extra. \
                  Places are those of cp: SRC/ means the contents of a directory."
)]
pub(crate) struct VerifyArgs {
    /// The reference and the copy to compare with it; with --manifest or --manifest-out one
    /// directory: a path, user@host:path or pt://host:port/path.
    #[arg(required = true, num_args = 1..=2, value_name = "PLACE", value_hint = ValueHint::AnyPath)]
    pub(crate) places: Vec<OsString>,
    /// Compare the one PLACE with the digests in FILE, as b3sum and sha256sum write them; - is
    /// standard input.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "manifest_out")]
    pub(crate) manifest: Option<PathBuf>,
    /// Write the digests of the files in the one PLACE to FILE, for b3sum -c or sha256sum -c run
    /// there; - is standard output. A remote machine makes them itself: only digests travel.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) manifest_out: Option<PathBuf>,
    /// Hash function of the manifest: blake3 or sha256.
    #[arg(long, value_name = "NAME", default_value = "blake3")]
    pub(crate) hash: HashArg,
    /// Names of one file in SRC must be names of one file in DST.
    #[arg(short = 'H', long, conflicts_with_all = ["manifest", "manifest_out"])]
    pub(crate) hard_links: bool,
    /// Compare extended attributes of the namespace user too.
    #[arg(short = 'X', long, conflicts_with_all = ["manifest", "manifest_out"])]
    pub(crate) xattrs: bool,
    /// Compare POSIX access control lists too.
    #[arg(short = 'A', long, conflicts_with_all = ["manifest", "manifest_out"])]
    pub(crate) acls: bool,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    #[command(flatten)]
    pub(crate) transport: TransportArgs,
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// The hash function of a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HashArg {
    /// As b3sum.
    Blake3,
    /// As sha256sum.
    Sha256,
}

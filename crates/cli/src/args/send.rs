//! `packtrain send` and `packtrain claim`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use packtrain_client::store_forward::DepotPlan;
use packtrain_service::Place;
use packtrain_units::{DataRate, Duration};

use super::values::{self, Buffer};
use super::{FilterArgs, OutputArgs, TicketArg, WriteArgs};

/// Arguments of `send`.
#[derive(Args, Debug)]
#[command(
    override_usage = "packtrain send [-r] --via D1[,D2...] [OPTIONS] SRC...\n       packtrain send --via 'D1(D2,D3(D4,D5))' [OPTIONS] SRC...",
    after_help = "The ticket gives access to the data: keep it secret. It is printed, or with \
                  --ticket written to a file that only its owner can read. The same command with \
                  the same file resumes an interrupted send. SRC may be - (standard input)."
)]
pub(crate) struct SendArgs {
    /// Files and directories to send.
    #[arg(required = true, value_name = "SRC", value_hint = ValueHint::AnyPath)]
    pub(crate) sources: Vec<OsString>,
    /// Send directories with everything in them.
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Depots in a chain (D1,D2), or a tree with one root (D1(D2,D3)). In a tree, wait: before a
    /// depot makes all others wait for it when it is slow; drop: drops it.
    #[arg(long, required = true, value_name = "DEPOTS", value_parser = values::plan)]
    pub(crate) via: DepotPlan,
    /// File for the ticket. If the file exists, its session is resumed [default: print the ticket].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) ticket: Option<PathBuf>,
    /// Print a code of 18 letters in place of the ticket. With the address of the last depot it gives
    /// access to the data: keep it secret. Whoever has the code and controls that depot can also
    /// replace the data.
    #[arg(long, conflicts_with = "ticket")]
    pub(crate) code: bool,
    /// How long depots keep the data.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = values::duration)]
    pub(crate) keep: Duration,
    /// File name for standard input.
    #[arg(long, value_name = "NAME", default_value = "stdin")]
    pub(crate) name: OsString,
    /// Highest rate, such as 500mbit or 60MB/s [default: no limit].
    #[arg(long, value_name = "RATE", visible_alias = "bwlimit", value_parser = values::limit)]
    pub(crate) rate: Option<DataRate>,
    /// Size of TCP's send and receive buffers, such as 16MiB. auto leaves them to the kernel
    /// [default: auto].
    #[arg(long, value_name = "SIZE", value_parser = values::buffer)]
    pub(crate) tcp_buffer: Option<Buffer>,
    /// How many times to try again after a temporary failure. Only tries in which no byte moved
    /// count.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = values::count)]
    pub(crate) retries: u32,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Arguments of `claim`.
#[derive(Args, Debug)]
#[command(
    override_usage = "packtrain claim @FILE|- DST [OPTIONS]",
    after_help = "A ticket is a secret, so it is not accepted as an argument: @FILE names its file, \
                  - reads it from standard input. DST is a path or - (standard output, for one \
                  file). The same command resumes an interrupted claim."
)]
pub(crate) struct ClaimArgs {
    /// The ticket or the code: @FILE, or - for standard input.
    #[arg(value_name = "TICKET")]
    pub(crate) ticket: TicketArg,
    /// The target.
    #[arg(value_name = "DST", value_hint = ValueHint::AnyPath)]
    pub(crate) dst: OsString,
    /// The depot to ask first, as the sender named it; a code needs it [default: the last of the
    /// ticket].
    #[arg(long, value_name = "DEPOT")]
    pub(crate) at: Option<Place>,
    /// How long to wait for data that is still on its way to the depots.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = values::duration)]
    pub(crate) wait: Duration,
    /// Allow the depots to remove the data after everything is here.
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) release: bool,
    /// Start from the beginning, and keep nothing for a later resume.
    #[arg(long)]
    pub(crate) no_resume: bool,
    /// Skip files that are newer at the target.
    #[arg(long, conflicts_with = "inplace")]
    pub(crate) update: bool,
    #[command(flatten)]
    pub(crate) writing: WriteArgs,
    /// Size of TCP's send and receive buffers, such as 16MiB. auto leaves them to the kernel
    /// [default: auto].
    #[arg(long, value_name = "SIZE", value_parser = values::buffer)]
    pub(crate) tcp_buffer: Option<Buffer>,
    /// How many times in a row to try again after a temporary failure. The count begins anew after
    /// a try that moved data which the next one keeps.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = values::count)]
    pub(crate) retries: u32,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

//! `packtrain send` and `packtrain claim`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use packtrain_client::store_forward::DepotPlan;
use packtrain_service::Place;
use packtrain_units::{DataRate, Duration};

use super::values::{self, Buffer};
use super::{FilterArgs, OutputArgs, TicketArg, WriteArgs};

/// What `send` takes.
#[derive(Args, Debug)]
#[command(
    override_usage = "packtrain send [-r] --via D1[,D2...] [OPTIONS] SRC...\n       packtrain send --via 'D1(D2,D3(D4,D5))' [OPTIONS] SRC...",
    after_help = "The ticket is what claims it, and a secret: it is printed, or with --ticket in a file of its \
                  owner's alone. The same command with the same file goes on where an interrupted one \
                  ended. SRC may be - (standard input)."
)]
pub(crate) struct SendArgs {
    /// What to send.
    #[arg(required = true, value_name = "SRC", value_hint = ValueHint::AnyPath)]
    pub(crate) sources: Vec<OsString>,
    /// Directories with all that is in them.
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Depots one behind the other, or a tree of them with one root; wait: or drop: before one of
    /// a tree says that all wait for it when it is slow, or that it is left.
    #[arg(long, required = true, value_name = "DEPOTS", value_parser = values::plan)]
    pub(crate) via: DepotPlan,
    /// Write the ticket here; one that is there is gone on with.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) ticket: Option<PathBuf>,
    /// How long depots are to keep it.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = values::duration)]
    pub(crate) keep: Duration,
    /// What standard input is to be called.
    #[arg(long, value_name = "NAME", default_value = "stdin")]
    pub(crate) name: OsString,
    /// Send no faster than this, such as 500mbit or 60MB/s.
    #[arg(long, value_name = "RATE", visible_alias = "bwlimit", value_parser = values::rate)]
    pub(crate) rate: Option<DataRate>,
    /// TCP's send and receive buffers, such as 16MiB; auto leaves them to the kernel.
    #[arg(long, value_name = "SIZE", value_parser = values::buffer)]
    pub(crate) tcp_buffer: Option<Buffer>,
    /// How often to begin again after a temporary failure in which nothing moved.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) retries: u32,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// What `claim` takes.
#[derive(Args, Debug)]
#[command(
    override_usage = "packtrain claim @FILE|- DST [OPTIONS]",
    after_help = "A ticket is a secret and never an argument itself: @FILE names the file it is in, - reads it \
                  from standard input. DST is a path or - (standard output, for one file). The same \
                  command goes on where an interrupted one ended."
)]
pub(crate) struct ClaimArgs {
    /// The ticket: @FILE, or - for standard input.
    #[arg(value_name = "TICKET")]
    pub(crate) ticket: TicketArg,
    /// Where to.
    #[arg(value_name = "DST", value_hint = ValueHint::AnyPath)]
    pub(crate) dst: OsString,
    /// The depot to ask first, one of the ticket's [default: the last].
    #[arg(long, value_name = "DEPOT")]
    pub(crate) at: Option<Place>,
    /// How long to wait for what is still on its way to the depots.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = values::duration)]
    pub(crate) wait: Duration,
    /// Let the depots forget it once all is here.
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) release: bool,
    /// Begin anew and keep nothing for a resume.
    #[arg(long)]
    pub(crate) no_resume: bool,
    /// Leave files alone that are newer at the target.
    #[arg(long)]
    pub(crate) update: bool,
    #[command(flatten)]
    pub(crate) writing: WriteArgs,
    /// TCP's send and receive buffers, such as 16MiB; auto leaves them to the kernel.
    #[arg(long, value_name = "SIZE", value_parser = values::buffer)]
    pub(crate) tcp_buffer: Option<Buffer>,
    /// How often to begin again after a temporary failure.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) retries: u32,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

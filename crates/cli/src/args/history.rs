//! `packtrain history`.

use clap::{Args, ValueEnum};
use packtrain_units::Duration;

use super::keep::KeepArgs;
use super::values;

/// What `history` takes.
#[derive(Args, Debug)]
#[command(
    after_help = "Every transfer leaves a row: cp and verify at both ends, perf, serve. What runs \
                  at this machine is listed too. Times are UTC; columns of an export carry their \
                  unit in their name."
)]
pub(crate) struct HistoryArgs {
    /// One transfer by its id, or the beginning of it: all that is known of it.
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    /// Only those with this machine at either end, or a caller of this address.
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<String>,
    /// Only those that moved most over this transport.
    #[arg(long, value_name = "NAME")]
    pub(crate) transport: Option<String>,
    /// Only those begun since: a day (2026-11-22) or so long ago (12h, 7d).
    #[arg(long, value_name = "WHEN", value_parser = values::when)]
    pub(crate) since: Option<When>,
    /// Only those that did not end well.
    #[arg(long)]
    pub(crate) failed: bool,
    /// At most so many, the newest; 0 is all [default: 20, in an export all].
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u32>,
    /// Print rows for programs: csv, or jsonl (a JSON object a line).
    #[arg(long, value_name = "FORMAT")]
    pub(crate) export: Option<Export>,
    /// The same as --export jsonl.
    #[arg(long, conflicts_with = "export")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
}

/// A point in time as it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Since 1970.
    At(Duration),
    /// Before now.
    Ago(Duration),
}

/// How rows are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Export {
    /// Comma-separated values with a header.
    Csv,
    /// JSON, an object a line.
    Jsonl,
}

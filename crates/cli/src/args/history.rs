//! `packtrain history`.

use clap::{Args, ValueEnum};
use packtrain_units::Duration;

use super::keep::KeepArgs;
use super::values;

/// Arguments of `history`.
#[derive(Args, Debug)]
#[command(
    after_help = "cp and verify at both ends, perf and serve write a row for each transfer. Running \
                  transfers of this machine are listed too. Times are UTC. The column names of an \
                  export contain the units."
)]
pub(crate) struct HistoryArgs {
    /// Show everything about the transfer with this id, or with an id that begins so; last is the one
    /// that began last.
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    /// Show only transfers with this machine at either end, or with a caller of this address.
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<String>,
    /// Show only transfers that moved most of their bytes over this transport.
    #[arg(long, value_name = "NAME")]
    pub(crate) transport: Option<String>,
    /// Show only transfers that began since a day (2026-11-22) or a time ago (12h, 7d).
    #[arg(long, value_name = "WHEN", value_parser = values::when)]
    pub(crate) since: Option<When>,
    /// Show only transfers that did not succeed, running ones included.
    #[arg(long)]
    pub(crate) failed: bool,
    /// Show at most N transfers, the newest; 0 is all [default: 20; for an export all].
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u32>,
    /// Print rows for programs: csv, or jsonl (one JSON object a line).
    #[arg(long, value_name = "FORMAT")]
    pub(crate) export: Option<Export>,
    /// Same as --export jsonl.
    #[arg(long, conflicts_with = "export")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
}

/// A point in time as given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Time since 1970.
    At(Duration),
    /// Time before now.
    Ago(Duration),
}

/// Format of exported rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Export {
    /// Comma-separated values with a header.
    Csv,
    /// One JSON object a line.
    Jsonl,
}

//! `packtrain forecast`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use packtrain_units::ByteCount;

use super::history::When;
use super::keep::KeepArgs;
use super::values;

/// What `forecast` takes.
#[derive(Args, Debug)]
#[command(after_help = "Machines have the names that `packtrain history` shows. Measurements are \
                        the transfers between them that the history has, and those of --perfsonar.")]
pub(crate) struct ForecastArgs {
    /// The machine that bytes come from.
    #[arg(value_name = "FROM")]
    pub(crate) from: String,
    /// The machine they go to.
    #[arg(value_name = "TO")]
    pub(crate) to: String,
    /// FROM is a depot, HOST:PORT, that is asked what it measured of its hop to TO (HOST, or HOST:PORT
    /// of another depot). With --export, --explain, --since or --perfsonar its measurements take the
    /// place of the history's.
    #[arg(long, conflicts_with = "transport")]
    pub(crate) depot: bool,
    /// Throughputs from perfSONAR besides: an esmond series or pScheduler results; - for standard
    /// input.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) perfsonar: Vec<PathBuf>,
    /// Only transfers over this transport.
    #[arg(long, value_name = "NAME")]
    pub(crate) transport: Option<String>,
    /// Only transfers begun since: a day (2026-11-22) or so long ago (12h, 7d).
    #[arg(long, value_name = "WHEN", value_parser = values::when)]
    pub(crate) since: Option<When>,
    /// Only transfers that moved so much: shorter ones tell more of their start than of the path.
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = values::bytes)]
    pub(crate) at_least: ByteCount,
    /// Print the measurements as an esmond series, and no forecast.
    #[arg(long, conflicts_with_all = ["json", "explain"])]
    pub(crate) export: bool,
    /// Show how wrong each method was.
    #[arg(long)]
    pub(crate) explain: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
}

//! `packtrain forecast`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use packtrain_units::ByteCount;

use super::history::When;
use super::keep::KeepArgs;
use super::values;

/// Arguments of `forecast`.
#[derive(Args, Debug)]
#[command(after_help = "Machines have the names that `packtrain history` shows. Measurements are \
                       the transfers between the two machines in the history, and the results of \
                       --perfsonar.")]
pub(crate) struct ForecastArgs {
    /// The machine that sends.
    #[arg(value_name = "FROM")]
    pub(crate) from: String,
    /// The machine that receives.
    #[arg(value_name = "TO")]
    pub(crate) to: String,
    /// FROM is a depot (HOST:PORT): ask it for its measurements of its hop to TO (HOST, or
    /// HOST:PORT of another depot). With --export, --explain, --since or --perfsonar they replace
    /// the measurements of the history.
    #[arg(long, conflicts_with = "transport")]
    pub(crate) depot: bool,
    /// Use throughputs from perfSONAR too: an esmond series or pScheduler results; - is standard
    /// input.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) perfsonar: Vec<PathBuf>,
    /// Use only transfers over this transport.
    #[arg(long, value_name = "NAME")]
    pub(crate) transport: Option<String>,
    /// Use only transfers that began since a day (2026-11-22) or a time ago (12h, 7d).
    #[arg(long, value_name = "WHEN", value_parser = values::when)]
    pub(crate) since: Option<When>,
    /// Use only transfers that moved at least this much. The rate of a shorter transfer depends
    /// more on its start than on the path.
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = values::bytes)]
    pub(crate) at_least: ByteCount,
    /// Print the measurements as an esmond series instead of a forecast.
    #[arg(long, conflicts_with_all = ["json", "explain"])]
    pub(crate) export: bool,
    /// Print the mean error of each method.
    #[arg(long)]
    pub(crate) explain: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
}

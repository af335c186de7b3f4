//! `packtrain predict`.

use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::keep::KeepArgs;

/// What `predict` takes.
#[derive(Args, Debug)]
#[command(after_help = "The file has a line `streams,throughput_mbps` and below it one line a \
                        measurement, such as `4,940.5`. Measure with 1, 2, 4 and 8 streams: \
                        `packtrain perf client --transport tcp --parallel N`.")]
pub(crate) struct PredictArgs {
    /// Where the measurements are: a file, - for standard input, or `history` for past transfers.
    #[arg(long, value_name = "FILE|history", value_hint = ValueHint::FilePath)]
    pub(crate) from: PathBuf,
    /// With the history: the machine that bytes went to, as `packtrain history` names it; that of
    /// the newest measurement if none.
    #[arg(long, value_name = "HOST")]
    pub(crate) to: Option<String>,
    /// With the history: the machine that they came from; this one if none.
    #[arg(long, value_name = "HOST", requires = "to")]
    pub(crate) sender: Option<String>,
    /// Tell also what this many streams would move.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub(crate) at: Option<u32>,
    /// Answer no more streams than these.
    #[arg(long, value_name = "N", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub(crate) max_streams: u32,
    /// Print one JSON object a model, and last the answer.
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw measurements, models and answer into this file (.svg or .png).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) plot: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
}

impl PredictArgs {
    /// The most streams that may be answered.
    pub(crate) fn max(&self) -> NonZeroU32 {
        NonZeroU32::new(self.max_streams).unwrap_or(NonZeroU32::MIN)
    }
}

//! `packtrain predict`.

use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::keep::KeepArgs;

/// Arguments of `predict`.
#[derive(Args, Debug)]
#[command(
    after_help = "FILE has the header `streams,throughput_mbps` and one line per measurement, \
                       such as `4,940.5`. Measure with 1, 2, 4 and 8 streams: \
                       `packtrain perf client --transport tcp --parallel N`."
)]
pub(crate) struct PredictArgs {
    /// Source of the measurements: a file, - for standard input, or `history` for past transfers.
    #[arg(long, value_name = "FILE|history", value_hint = ValueHint::FilePath)]
    pub(crate) from: PathBuf,
    /// With --from history: the receiving machine, as `packtrain history` names it [default: that
    /// of the newest measurement].
    #[arg(long, value_name = "HOST")]
    pub(crate) to: Option<String>,
    /// With --from history: the sending machine [default: this one].
    #[arg(long, value_name = "HOST", requires = "to")]
    pub(crate) sender: Option<String>,
    /// Predict also the throughput of this many streams.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub(crate) at: Option<u32>,
    /// Largest number of streams to recommend.
    #[arg(long, value_name = "N", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub(crate) max_streams: u32,
    /// Print one JSON object per model, and the answer last.
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw measurements, models and answer to this file (.svg or .png).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) plot: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
}

impl PredictArgs {
    /// The largest number of streams to recommend.
    pub(crate) fn max(&self) -> NonZeroU32 {
        NonZeroU32::new(self.max_streams).unwrap_or(NonZeroU32::MIN)
    }
}

//! `packtrain loss`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

/// Arguments of `loss`.
#[derive(Args, Debug)]
pub(crate) struct LossArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub(crate) command: LossCommand,
}

/// Subcommands of `loss`.
#[derive(Debug, Subcommand)]
pub(crate) enum LossCommand {
    /// Classify the cause of the losses of each signature.
    #[command(
        after_help = "FILE has one signature a line (1 received, 0 lost), or labelled records. \
                           It can also be a qlog, or a capture of UDT at the receiver (pcap, \
                           pcapng). It may be compressed with gzip."
    )]
    Classify(LossClassifyArgs),
    /// Fit a model to labelled signatures, and evaluate it.
    #[command(after_help = "DATA are files of labelled records, as `packtrain sim signatures` \
                           writes them. Records with \"split\":\"train\" fit the model, records \
                           with \"split\":\"test\" evaluate it.")]
    Train(LossTrainArgs),
}

/// Arguments of `loss classify`.
#[derive(Args, Debug)]
pub(crate) struct LossClassifyArgs {
    /// The file; - is standard input.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Print one JSON object per signature.
    #[arg(long)]
    pub(crate) json: bool,
    /// A model file of `loss train` [default: the built-in model].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) model: Option<PathBuf>,
    /// Cut signatures into windows of N packets [default: 97656 for captures and logs; lines are
    /// not cut].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=67_108_864))]
    pub(crate) window: Option<u32>,
}

/// Arguments of `loss train`.
#[derive(Args, Debug)]
pub(crate) struct LossTrainArgs {
    /// Files of labelled records.
    #[arg(value_name = "DATA", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) data: Vec<PathBuf>,
    /// File for the model.
    #[arg(long, value_name = "MODEL", value_hint = ValueHint::FilePath)]
    pub(crate) out: PathBuf,
    /// Random seed.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Length, in packets, of the words that the complexity measure counts.
    #[arg(long, value_name = "N", default_value_t = 17,
          value_parser = clap::value_parser!(u32).range(1..=24))]
    pub(crate) word_length: u32,
    /// Write an evaluation on the test records to this directory: report.md, judgement.json,
    /// reliability.svg.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) report: Option<PathBuf>,
    /// A note that is stored in the model as its provenance.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) notes: String,
}

//! `packtrain loss`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

/// What `loss` takes.
#[derive(Args, Debug)]
pub(crate) struct LossArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: LossCommand,
}

/// Why packets were lost.
#[derive(Debug, Subcommand)]
pub(crate) enum LossCommand {
    /// Name the cause of each signature's losses.
    #[command(after_help = "FILE holds one signature a line (1 received, 0 lost), labelled \
                            records, a qlog, or a capture of UDT at the receiver (pcap, pcapng); \
                            gzip too.")]
    Classify(LossClassifyArgs),
    /// Fit a model to labelled signatures, and judge it.
    #[command(after_help = "DATA are files of labelled records, as `packtrain sim signatures` \
                            writes them. Records with \"split\":\"train\" are fitted, those with \
                            \"split\":\"test\" are judged.")]
    Train(LossTrainArgs),
}

/// What `loss classify` takes.
#[derive(Args, Debug)]
pub(crate) struct LossClassifyArgs {
    /// The file; - for standard input.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Print one JSON object a signature.
    #[arg(long)]
    pub(crate) json: bool,
    /// A model made by `loss train`; left out: the one that is built in.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) model: Option<PathBuf>,
    /// Cut signatures in windows of N packets; left out: captures and logs in windows of 97656,
    /// lines not at all.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=67_108_864))]
    pub(crate) window: Option<u32>,
}

/// What `loss train` takes.
#[derive(Args, Debug)]
pub(crate) struct LossTrainArgs {
    /// Files of labelled records.
    #[arg(value_name = "DATA", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) data: Vec<PathBuf>,
    /// Where the model is written.
    #[arg(long, value_name = "MODEL", value_hint = ValueHint::FilePath)]
    pub(crate) out: PathBuf,
    /// Seed of all random choices.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Length of the words that the complexity counts.
    #[arg(long, value_name = "N", default_value_t = 17,
          value_parser = clap::value_parser!(u32).range(1..=24))]
    pub(crate) word_length: u32,
    /// Write there how the model does on the windows for testing: report.md, judgement.json,
    /// reliability.svg.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) report: Option<PathBuf>,
    /// A sentence for the model's provenance.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) notes: String,
}

//! `packtrain sim`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

/// What `sim` takes.
#[derive(Args, Debug)]
pub(crate) struct SimArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: SimCommand,
}

/// Networks in virtual time.
#[derive(Debug, Subcommand)]
pub(crate) enum SimCommand {
    /// Play a scenario, or every run of a sweep.
    Run(Box<SimRunArgs>),
    /// List the experiments that `reproduce` knows.
    List(SimListArgs),
    /// Play a paper's experiment and compare.
    Reproduce(SimReproduceArgs),
    /// Measure how fast the simulator is.
    Bench(SimBenchArgs),
    /// Make loss signatures whose cause is known.
    Signatures(SimSignaturesArgs),
}

/// What `sim run` takes.
#[derive(Args, Debug)]
pub(crate) struct SimRunArgs {
    /// The scenario, in TOML.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Seed of everything random, in place of the file's.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    pub(crate) seed: Option<u64>,
    /// Change a value, such as link.wan.loss=1e-3; may be repeated.
    #[arg(long, value_name = "PATH=VALUE")]
    pub(crate) set: Vec<String>,
    /// Print one JSON object a line; the last has all results.
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw curves over time, or goodput over the sweep's first axis.
    #[arg(long, value_name = "OUT.svg|png", value_hint = ValueHint::FilePath)]
    pub(crate) plot: Option<PathBuf>,
    /// Write a line for each flow of each run.
    #[arg(long, value_name = "OUT.csv", value_hint = ValueHint::FilePath)]
    pub(crate) columns: Option<PathBuf>,
    /// Write the curves of a single run.
    #[arg(long, value_name = "OUT.csv", value_hint = ValueHint::FilePath)]
    pub(crate) curves: Option<PathBuf>,
    /// Runs at once; left out: one for each core.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) jobs: Option<u32>,
    /// Play only this part of a sweep: run I, or part I of --tasks.
    #[arg(long, value_name = "I")]
    pub(crate) task: Option<u64>,
    /// Into how many parts --task divides the sweep; left out: one for each run.
    #[arg(long, value_name = "N", requires = "task", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) tasks: Option<u64>,
    /// Print a Slurm job array that plays the sweep, and play nothing.
    #[arg(long, conflicts_with_all = ["json", "plot", "columns", "curves", "task"])]
    pub(crate) sbatch: bool,
    /// The most tasks of the array (Slurm's MaxArraySize, less one).
    #[arg(long, value_name = "N", default_value = "1000", requires = "sbatch", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) array_max: u64,
}

/// What `sim list` takes.
#[derive(Args, Debug)]
pub(crate) struct SimListArgs {
    /// Print one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `sim reproduce` takes.
#[derive(Args, Debug)]
pub(crate) struct SimReproduceArgs {
    /// An experiment that `list` names, or the folder of another.
    #[arg(value_name = "NAME", required_unless_present = "all", conflicts_with = "all")]
    pub(crate) name: Option<String>,
    /// All of them.
    #[arg(long)]
    pub(crate) all: bool,
    /// Of all, only those that take seconds.
    #[arg(long, requires = "all")]
    pub(crate) quick: bool,
    /// Print one JSON object a line; the last has the result.
    #[arg(long)]
    pub(crate) json: bool,
    /// Write expected.csv and plot.svg into this folder, and the table into its README.md.
    #[arg(long, value_name = "DIR", conflicts_with = "all", value_hint = ValueHint::DirPath)]
    pub(crate) out: Option<PathBuf>,
    /// Draw the figure: OUT.svg or OUT.png.
    #[arg(long, value_name = "OUT", conflicts_with = "all", value_hint = ValueHint::FilePath)]
    pub(crate) plot: Option<PathBuf>,
    /// Runs at once; left out: one for each core.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) jobs: Option<u32>,
}

/// What `sim signatures` takes.
#[derive(Args, Debug)]
pub(crate) struct SimSignaturesArgs {
    /// List the models of loss instead.
    #[arg(long)]
    pub(crate) list: bool,
    /// The file: a line of JSON a window, compressed if it ends in .gz; left out: standard output.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) out: Option<PathBuf>,
    /// Seed of everything random.
    #[arg(long, value_name = "N", default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    pub(crate) seed: u64,
    /// Models: names, `all`, `trained`, `unseen` (there for tests only), or a cause.
    #[arg(long, value_name = "NAME,...", default_value = "all", value_delimiter = ',')]
    pub(crate) families: Vec<String>,
    /// Windows of each model.
    #[arg(long, value_name = "N", default_value = "10")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) per_family: u64,
    /// Packets in a window.
    #[arg(long, value_name = "N", default_value = "97656")]
    #[arg(value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    pub(crate) packets: u32,
    /// Which parameters are drawn: those to train on, or others.
    #[arg(long, value_name = "WHICH", value_enum, default_value = "train")]
    pub(crate) region: SimRegion,
    /// Windows at once; left out: one for each core.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) jobs: Option<u32>,
}

/// Which parameters are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SimRegion {
    /// Those to train on.
    Train,
    /// Those to test with.
    Test,
}

/// What `sim bench` takes.
#[derive(Args, Debug)]
pub(crate) struct SimBenchArgs {
    /// Print one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
    /// Only the cases whose names hold this.
    #[arg(value_name = "CASE")]
    pub(crate) case: Option<String>,
}

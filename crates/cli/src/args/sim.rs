//! `packtrain sim`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

/// Arguments of `sim`.
#[derive(Args, Debug)]
pub(crate) struct SimArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub(crate) command: SimCommand,
}

/// Subcommands of `sim`.
#[derive(Debug, Subcommand)]
pub(crate) enum SimCommand {
    /// Run a scenario, or all runs of a sweep.
    Run(Box<SimRunArgs>),
    /// List the experiments that `reproduce` can run.
    List(SimListArgs),
    /// Run the experiment of a publication, and compare the results.
    Reproduce(SimReproduceArgs),
    /// Measure the speed of the simulator.
    Bench(SimBenchArgs),
    /// Generate loss signatures with known causes.
    Signatures(SimSignaturesArgs),
}

/// Arguments of `sim run`.
#[derive(Args, Debug)]
pub(crate) struct SimRunArgs {
    /// The scenario file, in TOML.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Random seed, instead of the file's.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    pub(crate) seed: Option<u64>,
    /// Override a value of the file, such as link.wan.loss=1e-3; may be repeated.
    #[arg(long, value_name = "PATH=VALUE")]
    pub(crate) set: Vec<String>,
    /// Print one JSON object a line; the last line has all results.
    #[arg(long)]
    pub(crate) json: bool,
    /// Plot curves over time, or for a sweep goodput over its first axis.
    #[arg(long, value_name = "OUT.svg|png", value_hint = ValueHint::FilePath)]
    pub(crate) plot: Option<PathBuf>,
    /// For --plot of a sweep: the path of the horizontal axis, such as link.wan.loss [default: the
    /// first path by name].
    #[arg(long, value_name = "PATH", requires = "plot")]
    pub(crate) x: Option<String>,
    /// Write one line per flow of each run.
    #[arg(long, value_name = "OUT.csv", value_hint = ValueHint::FilePath)]
    pub(crate) columns: Option<PathBuf>,
    /// Write the curves of a single run.
    #[arg(long, value_name = "OUT.csv", value_hint = ValueHint::FilePath)]
    pub(crate) curves: Option<PathBuf>,
    /// Number of concurrent runs [default: one per core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) jobs: Option<u32>,
    /// Run only this part of a sweep: run I, or part I of --tasks.
    #[arg(long, value_name = "I")]
    pub(crate) task: Option<u64>,
    /// Number of parts of the sweep for --task [default: one per run].
    #[arg(long, value_name = "N", requires = "task", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) tasks: Option<u64>,
    /// Print a Slurm job array that runs the sweep, and run nothing.
    #[arg(long, conflicts_with_all = ["json", "plot", "columns", "curves", "task"])]
    pub(crate) sbatch: bool,
    /// Maximum number of tasks in the array: Slurm's MaxArraySize minus one.
    #[arg(long, value_name = "N", default_value = "1000", requires = "sbatch", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) array_max: u64,
}

/// Arguments of `sim list`.
#[derive(Args, Debug)]
pub(crate) struct SimListArgs {
    /// Print one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `sim reproduce`.
#[derive(Args, Debug)]
pub(crate) struct SimReproduceArgs {
    /// The name of an experiment from `list`, or the folder of another.
    #[arg(value_name = "NAME", required_unless_present = "all", conflicts_with = "all")]
    pub(crate) name: Option<String>,
    /// Run all experiments.
    #[arg(long)]
    pub(crate) all: bool,
    /// With --all: run only the experiments that take seconds.
    #[arg(long, requires = "all")]
    pub(crate) quick: bool,
    /// Compare with expected.csv, not with the paper, and list the numbers that differ. Plays only
    /// the runs that the `check` of experiment.toml needs.
    #[arg(long, conflicts_with_all = ["out", "plot"])]
    pub(crate) check: bool,
    /// With --check: play all runs.
    #[arg(long, requires = "check")]
    pub(crate) whole: bool,
    /// Play the runs for the `spread_of` of experiment.toml (default: all) with N seeds, and print
    /// median, minimum and maximum of each number as CSV; with --out, write them to spread.csv
    /// there.
    #[arg(long, value_name = "N", conflicts_with_all = ["all", "check", "plot", "json"])]
    #[arg(value_parser = clap::value_parser!(u64).range(2..=10_000))]
    pub(crate) seeds: Option<u64>,
    /// Print one JSON object a line; the last line has the result.
    #[arg(long)]
    pub(crate) json: bool,
    /// Write expected.csv and plot.svg into this folder, which is made if it is missing, and the
    /// table into its README.md.
    #[arg(long, value_name = "DIR", conflicts_with = "all", value_hint = ValueHint::DirPath)]
    pub(crate) out: Option<PathBuf>,
    /// Draw the figure to this file (.svg or .png).
    #[arg(long, value_name = "OUT", conflicts_with = "all", value_hint = ValueHint::FilePath)]
    pub(crate) plot: Option<PathBuf>,
    /// Number of concurrent runs [default: one per core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) jobs: Option<u32>,
}

/// Arguments of `sim signatures`.
#[derive(Args, Debug)]
pub(crate) struct SimSignaturesArgs {
    /// List the loss models instead.
    #[arg(long)]
    pub(crate) list: bool,
    /// Output file with one JSON line per window, compressed if its name ends in .gz [default:
    /// standard output].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) out: Option<PathBuf>,
    /// Random seed.
    #[arg(long, value_name = "N", default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    pub(crate) seed: u64,
    /// Loss models: names, `all`, `trained`, `unseen` (models for tests only), or a cause.
    #[arg(long, value_name = "NAME,...", default_value = "all", value_delimiter = ',')]
    pub(crate) families: Vec<String>,
    /// Number of windows per model.
    #[arg(long, value_name = "N", default_value = "10")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) per_family: u64,
    /// Also write the windows of the flows beside the measured one that are like it (net-paper: up
    /// to ten). They cost no time, but have no delays.
    #[arg(long)]
    pub(crate) beside: bool,
    /// Only windows that lost this share of their packets, such as 0.00008..0.0005.
    #[arg(long, value_name = "LOW..HIGH", value_parser = loss_rates)]
    pub(crate) loss: Option<(f64, f64)>,
    /// Number of packets per window.
    #[arg(long, value_name = "N", default_value = "97656")]
    #[arg(value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    pub(crate) packets: u32,
    /// The range of the models' parameters: train, test (other values than for training), or the
    /// FOBS paper's rates with the draws of one of both (models net-paper and cpu-paper).
    #[arg(long, value_name = "WHICH", value_enum, default_value = "train")]
    pub(crate) region: SimRegion,
    /// Number of concurrent windows [default: one per core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) jobs: Option<u32>,
}

/// Parses `LOW..HIGH`, two shares.
fn loss_rates(text: &str) -> Result<(f64, f64), String> {
    let share = |text: &str| text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    let ends = text.split_once("..").and_then(|(low, high)| Some((share(low)?, share(high)?)));
    let valid = ends.filter(|(low, high)| 0.0 < *low && low < high);
    valid.ok_or_else(|| "expected two shares between 0 and 1, such as 0.00008..0.0005".to_owned())
}

/// The range of the models' parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SimRegion {
    /// Parameters for training.
    Train,
    /// Parameters for tests.
    Test,
    /// The paper's, for training.
    PaperTrain,
    /// The paper's, for tests.
    PaperTest,
}

/// Arguments of `sim bench`.
#[derive(Args, Debug)]
pub(crate) struct SimBenchArgs {
    /// Print one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
    /// Run only the cases whose names contain this text.
    #[arg(value_name = "CASE")]
    pub(crate) case: Option<String>,
}

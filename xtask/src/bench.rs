//! `xtask bench`: measures the product and comparable programs in the same run, on the same
//! machine.
//!
//! Programs take turns (one run each per round), so that a slow minute of the machine affects all
//! of them. The table shows medians. All traffic stays in namespaces made here or on loopback.

mod company;
mod emulation;
mod file;
mod grid;
mod growth;
mod lab;
mod local;
mod machine;
mod netns;
mod noise;
mod raw;
mod relay;
mod report;
mod rivals;
mod small;
mod starved;
mod streams;
mod tasks;
mod wan;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::needs::{self, Need};
use crate::sh;

const NEEDS: &[Need] = &[
    Need { program: "iperf3", package: "iperf3", for_what: "kernel TCP beside us" },
    Need { program: "rsync", package: "rsync", for_what: "many small files beside us" },
    Need { program: "ssh", package: "openssh-client", for_what: "everything over ssh" },
    Need { program: "sshd", package: "openssh-server", for_what: "everything over ssh" },
    Need { program: "ip", package: "iproute2", for_what: "the two namespaces" },
    Need { program: "haproxy", package: "haproxy", for_what: "a relay beside our depot" },
    Need { program: "socat", package: "socat", for_what: "a relay beside our depot" },
    Need { program: "g++", package: "g++", for_what: "the UDT4 program" },
];

/// The suites that run if none is named.
const SUITES: [&str; 9] =
    ["raw", "file", "small", "local", "wan", "streams", "relay", "starved", "congested"];

/// What only the grid needs.
const GRID_NEEDS: &[Need] = &[
    Need { program: "srt-file-transmit", package: "srt-tools", for_what: "SRT in the grid" },
    Need {
        program: "globus-gridftp-server",
        package: "globus-gridftp-server-progs",
        for_what: "GridFTP in the grid",
    },
    Need {
        program: "globus-url-copy",
        package: "globus-gass-copy-progs",
        for_what: "GridFTP in the grid",
    },
    Need { program: "rclone", package: "rclone", for_what: "rclone in the grid" },
];

/// What only the tasks need.
const TASKS_NEEDS: &[Need] = &[Need { program: "rclone", package: "rclone", for_what: "tasks" }];

/// The selected measurements.
pub(crate) struct Plan {
    suites: Vec<String>,
    runs: usize,
    /// The number of the first round, if earlier runs did the previous rounds.
    first: usize,
    seconds: u32,
    file_mib: u64,
    small_files: u32,
    dir: PathBuf,
    keep_rmem: bool,
    binary: Option<PathBuf>,
    /// An earlier build of the product, measured alternately with this one.
    baseline: Option<PathBuf>,
    only: Option<String>,
    cases: Option<String>,
    losses: Option<String>,
    counts: Option<String>,
    /// `short` or `full`: the form of `grid` and `company`.
    form: String,
    /// The number of rounds of `grid` and `company`, if it is not that of the form.
    grid_rounds: Option<usize>,
    /// Whether `grid` repeats doubtful runs.
    repeat: bool,
}

impl Plan {
    /// The rounds. Random parameters of a round depend on its number.
    fn rounds(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.runs
    }

    /// Whether this loss rate is selected.
    fn wants_loss(&self, loss: &str) -> bool {
        self.losses.as_ref().is_none_or(|list| list.split(',').any(|one| one == loss))
    }

    /// Whether the case of this name is selected: a list of words, where `a+b` requires both.
    fn wants_case(&self, name: &str) -> bool {
        let fits = |part: &str| part.split('+').all(|word| name.contains(word));
        self.cases.as_ref().is_none_or(|list| list.split(',').any(fits))
    }

    /// Whether this number of streams is selected.
    fn wants_count(&self, count: &str) -> bool {
        self.counts.as_ref().is_none_or(|list| list.split(',').any(|one| one == count))
    }

    /// Whether the program of this name is selected: it contains one of the texts, or is one with `=`.
    fn wants(&self, name: &str) -> bool {
        let fits = |part: &str| match part.strip_prefix('=') {
            Some(whole) => name == whole,
            None => name.contains(part),
        };
        self.only.as_ref().is_none_or(|parts| parts.split(',').any(fits))
    }
}

/// Runs the selected suites (all by default) and writes the results.
pub(crate) fn run(args: &[String]) -> Result<()> {
    if let [verb, rest @ ..] = args
        && verb == rivals::VERB
    {
        return rivals::run(rest);
    }
    if let [verb, rest @ ..] = args
        && verb == growth::VERB
    {
        return growth::run(rest);
    }
    let plan = parse(args)?;
    let named = |name: &str| plan.suites.iter().any(|suite| suite == name);
    let grid = if named("grid") { GRID_NEEDS } else { &[] };
    let tasks = if named("tasks") { TASKS_NEEDS } else { &[] };
    for need in [NEEDS, grid, tasks].into_iter().flat_map(needs::provide) {
        eprintln!("*** MISSING: {}: {} ***", need.program, need.for_what);
    }
    let binary = match &plan.binary {
        Some(binary) => binary.clone(),
        None => {
            sh::run(sh::cargo().args(["build", "--release", "--locked", "-p", "packtrain"]))?;
            sh::target_dir().join("release/packtrain")
        }
    };
    let lab = lab::Lab::new(&plan.dir, &binary, plan.baseline.as_deref())?;
    let mut report = report::Report::new(machine::describe(&lab.dir)?);
    let limit =
        (!plan.keep_rmem).then(|| machine::SocketLimits::set(machine::DEFAULT)).transpose()?;
    report.note("rmem_max during the run", &machine::rmem_max());
    for suite in &plan.suites {
        eprintln!("\n== {suite} ==");
        match suite.as_str() {
            "raw" => raw::run(&lab, &plan, &mut report)?,
            "file" => file::run(&lab, &plan, &mut report)?,
            "small" => small::run(&lab, &plan, &mut report)?,
            "local" => local::run(&lab, &plan, &mut report)?,
            "wan" => wan::run(&lab, &plan, &mut report)?,
            "starved" => starved::run(&lab, &plan, &mut report)?,
            "streams" => streams::run(&lab, &plan, &mut report)?,
            "relay" => relay::run(&lab, &plan, &mut report)?,
            "congested" => starved::congested(&lab, &plan, &mut report)?,
            "grid" => grid::run(&lab, &plan, &mut report)?,
            "company" => company::run(&lab, &plan, &mut report)?,
            "tasks" => tasks::run(&lab, &plan, &mut report)?,
            other => bail!("no suite {other}: {}, grid, company, tasks", SUITES.join(", ")),
        }
    }
    drop(limit);
    report.write(&sh::root().join("bench/results"))
}

fn parse(args: &[String]) -> Result<Plan> {
    let mut plan = Plan {
        suites: Vec::new(),
        runs: 5,
        first: 0,
        seconds: 8,
        file_mib: 4096,
        small_files: 100_000,
        dir: sh::target_dir().join("bench"),
        keep_rmem: false,
        binary: None,
        baseline: None,
        only: None,
        cases: None,
        losses: None,
        counts: None,
        form: "short".to_owned(),
        grid_rounds: None,
        repeat: true,
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} wants a value"));
        match arg.as_str() {
            "--runs" => {
                plan.runs = value()?.parse().context("--runs")?;
                plan.grid_rounds = Some(plan.runs);
            }
            "--form" => plan.form = value()?.clone(),
            "--first" => plan.first = value()?.parse().context("--first")?,
            "--seconds" => plan.seconds = value()?.parse().context("--seconds")?,
            "--dir" => plan.dir = value()?.into(),
            "--binary" => plan.binary = Some(value()?.into()),
            "--baseline" => plan.baseline = Some(value()?.into()),
            "--small-files" => plan.small_files = value()?.parse().context("--small-files")?,
            "--only" => plan.only = Some(value()?.clone()),
            "--cases" => plan.cases = Some(value()?.clone()),
            "--counts" => plan.counts = Some(value()?.clone()),
            "--losses" => plan.losses = Some(value()?.clone()),
            "--once" => plan.repeat = false,
            "--keep-rmem" => plan.keep_rmem = true,
            "--quick" => {
                plan.runs = 1;
                plan.seconds = 3;
                plan.file_mib = 512;
                plan.small_files = 10_000;
            }
            suite if !suite.starts_with('-') => plan.suites.push(suite.to_owned()),
            other => bail!("bench does not know {other}"),
        }
    }
    if plan.suites.is_empty() {
        plan.suites = SUITES.map(str::to_owned).to_vec();
    }
    if plan.runs == 0 || plan.seconds == 0 || plan.small_files == 0 {
        bail!("--runs, --seconds and --small-files want at least 1");
    }
    Ok(plan)
}

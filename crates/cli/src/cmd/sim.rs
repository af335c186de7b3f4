//! `packtrain sim`.

mod run;
mod sbatch;
mod signatures;

use packtrain_reproduce::{Experiment, ExperimentError, Part, plot};
use packtrain_service::{FailureKind, RequestError};
use packtrain_sim::bench;
use packtrain_units::Duration;

use crate::args::{SimArgs, SimBenchArgs, SimCommand, SimListArgs, SimReproduceArgs};
use crate::exit::{Code, Exit};
use crate::out::sim;

/// Some numbers are outside their tolerance.
const DIFFERS: Code = Code(13);

/// `packtrain sim`.
pub(super) fn run(args: SimArgs) -> Code {
    let (json, result) = match args.command {
        SimCommand::Run(args) => (args.json, run::run(&args)),
        SimCommand::List(args) => (args.json, list(&args)),
        SimCommand::Reproduce(args) => (args.json, reproduce(&args)),
        SimCommand::Bench(args) => (args.json, bench(&args)),
        SimCommand::Signatures(args) => (false, signatures::run(&args)),
    };
    result.unwrap_or_else(|exit| {
        let error = exit.into_error();
        if json {
            sim::failed(&error.text, error.exit_code());
        }
        Exit::from(error).report()
    })
}

/// An error in a scenario or an experiment.
fn usage(error: impl std::fmt::Display) -> Exit {
    Exit::usage(error.to_string())
}

/// An error of an output file.
fn unwritable(error: impl std::fmt::Display) -> Exit {
    Exit::from(RequestError::new(FailureKind::Fatal, error.to_string()))
}

/// The number of threads: as requested, or one per core.
fn jobs(asked: Option<u32>) -> usize {
    asked.map_or_else(
        || std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        |jobs| jobs as usize,
    )
}

fn list(args: &SimListArgs) -> Result<Code, Exit> {
    for name in packtrain_reproduce::names() {
        let experiment = packtrain_reproduce::find(name).map_err(usage)?;
        let runs = experiment.scenarios.iter().map(|(_, file)| file.runs()).sum();
        sim::listed(&experiment, runs, args.json);
    }
    Ok(Code::DONE)
}

fn reproduce(args: &SimReproduceArgs) -> Result<Code, Exit> {
    plot_name(args.plot.as_deref())?;
    let mut ok = true;
    let names = match &args.name {
        Some(name) => vec![name.clone()],
        None => packtrain_reproduce::names().into_iter().map(str::to_owned).collect(),
    };
    let experiments: Result<Vec<_>, _> =
        names.iter().map(|name| packtrain_reproduce::find(name)).collect();
    let experiments = experiments.map_err(usage)?;
    if let Some(dir) = &args.out {
        // Before the runs, which may take hours.
        std::fs::create_dir_all(dir)
            .map_err(|error| unwritable(format!("{}: {error}", dir.display())))?;
    }
    for experiment in experiments {
        if let Some(reason) = &experiment.not_simulated {
            if args.name.is_some() {
                let what = format!("{}: is not simulated: {reason}", experiment.name);
                return Err(usage(what));
            }
            sim::not_simulated(&experiment.name, reason, args.json);
            continue;
        }
        if args.quick && !experiment.quick {
            continue;
        }
        if let Some(seeds) = args.seeds {
            spread(&experiment, seeds, args)?;
            continue;
        }
        ok &= if args.check { checked(&experiment, args)? } else { one(&experiment, args)? };
    }
    Ok(if ok { Code::DONE } else { DIFFERS })
}

fn checked(experiment: &Experiment, args: &SimReproduceArgs) -> Result<bool, Exit> {
    let part = if args.whole { Part::Whole } else { Part::KeyCells };
    let bar = sim::bar(experiment.runs(part).map_err(usage)?, &experiment.name);
    let result = packtrain_reproduce::check(experiment, part, jobs(args.jobs), &mut |_| bar.inc(1));
    bar.finish_and_clear();
    let result = result.map_err(usage)?;
    sim::checked(&result, args.json);
    Ok(result.ok)
}

fn spread(experiment: &Experiment, seeds: u64, args: &SimReproduceArgs) -> Result<(), Exit> {
    let runs = experiment.runs(Part::Spread).map_err(usage)?;
    let bar = sim::bar(runs.saturating_mul(seeds), &experiment.name);
    let mut finished = |_: &packtrain_sim::results::RunRow| bar.inc(1);
    let result = packtrain_reproduce::spread(experiment, seeds, jobs(args.jobs), &mut finished);
    bar.finish_and_clear();
    let text = result.map_err(usage)?.text();
    match &args.out {
        Some(dir) => {
            let path = dir.join("spread.csv");
            std::fs::write(&path, text)
                .map_err(|error| unwritable(format!("{}: {error}", path.display())))
        }
        None => {
            sim::spread(&text);
            Ok(())
        }
    }
}

fn one(experiment: &Experiment, args: &SimReproduceArgs) -> Result<bool, Exit> {
    let bar = sim::bar(experiment.runs(Part::Whole).map_err(usage)?, &experiment.name);
    let mut finished = |row: &packtrain_sim::results::RunRow| {
        if args.json {
            sim::row(row);
        }
        bar.inc(1);
    };
    let result = packtrain_reproduce::reproduce(experiment, jobs(args.jobs), &mut finished);
    bar.finish_and_clear();
    let result = result.map_err(|error: ExperimentError| usage(error))?;
    if let Some(path) = &args.plot {
        result.figure(experiment).write(path).map_err(unwritable)?;
    }
    if let Some(dir) = &args.out {
        result.write_to(experiment, dir).map_err(unwritable)?;
    }
    sim::reproduced(&result, args);
    Ok(result.ok)
}

fn bench(args: &SimBenchArgs) -> Result<Code, Exit> {
    let wanted = args.case.as_deref().unwrap_or_default();
    let cases: Vec<_> = bench::CASES.iter().filter(|case| case.name.contains(wanted)).collect();
    if cases.is_empty() {
        let known: Vec<_> = bench::CASES.iter().map(|case| case.name).collect();
        return Err(usage(format!("no case is called `{wanted}`: known are {}", known.join(", "))));
    }
    // This hidden progress bar is the command's clock.
    let bar = indicatif::ProgressBar::hidden();
    let clock = || Duration::from(bar.elapsed());
    let mut all = Vec::new();
    for case in cases {
        let found = bench::bench(case, &clock).map_err(usage)?;
        sim::benched(case.title, &found, args.json);
        all.push(found);
    }
    if args.json {
        sim::bench_done(&all);
    }
    Ok(Code::DONE)
}

/// Checks the name of a plot file before the work starts.
fn plot_name(path: Option<&std::path::Path>) -> Result<(), Exit> {
    path.map_or(Ok(()), |path| plot::check_name(path).map_err(usage))
}

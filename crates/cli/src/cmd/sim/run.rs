//! `packtrain sim run`.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::ops::Range;
use std::path::Path;

use packtrain_reproduce::plot;
use packtrain_sim::file::ScenarioFile;
use packtrain_sim::outcome::Outcome;
use packtrain_sim::repeats::Repeats;
use packtrain_sim::results::{self, FlowRow, RunRow};
use packtrain_sim::spec::Scenario;
use packtrain_sim::{Progress, sweep};
use packtrain_units::Duration;

use super::{jobs, plot_name, sbatch, unwritable, usage};
use crate::args::SimRunArgs;
use crate::exit::{Code, Exit};
use crate::out::sim;

/// Number of points of a curve for a plot, if the scenario sets none.
const DEFAULT_CURVE_POINTS: u64 = 400;

/// Maximum number of rows in the last line of a sweep.
const MAX_ROWS: usize = 10_000;

/// `packtrain sim run`.
pub(super) fn run(args: &SimRunArgs) -> Result<Code, Exit> {
    let mut sets = args.set.clone();
    sets.extend(args.seed.map(|seed| format!("seed={seed}")));
    let file = ScenarioFile::load(&args.file, &sets).map_err(usage)?;
    file.check().map_err(usage)?;
    if args.sbatch {
        sbatch::print(args, file.runs())?;
        return Ok(Code::DONE);
    }
    plot_name(args.plot.as_deref())?;
    if file.scenario(0).map_err(usage)?.flows.is_empty() {
        return Err(usage(format!("{}: there is no sender: write a [[flow]]", file.name())));
    }
    let Some(axis) = file.axis_of(args.x.as_deref()) else {
        let known: Vec<_> = file.axes().collect();
        let x = args.x.as_deref().unwrap_or_default();
        let known = known.join(", ");
        return Err(usage(format!("--x {x}: the sweep does not vary it; it varies: {known}")));
    };
    let range = range(args, file.runs())?;
    let columns = args.columns.as_deref().map(|path| Columns::create(path, &file)).transpose()?;
    if file.runs() == 1 {
        single(args, &file, columns)
    } else if args.curves.is_some() {
        Err(usage("--curves is for a single run: leave it out, or choose a run with --set"))
    } else {
        many(args, &file, &axis, range, columns)
    }
}

/// The runs of `--task`.
fn range(args: &SimRunArgs, runs: u64) -> Result<Range<u64>, Exit> {
    let Some(task) = args.task else { return Ok(0..runs) };
    let tasks = args.tasks.unwrap_or(runs);
    if task >= tasks {
        let last = tasks - 1;
        return Err(usage(format!("--task {task}: there are {tasks} tasks: write 0 to {last}")));
    }
    Ok(sweep::share(runs, task, tasks))
}

fn single(args: &SimRunArgs, file: &ScenarioFile, columns: Option<Columns>) -> Result<Code, Exit> {
    let mut scenario = file.scenario(0).map_err(usage)?;
    if scenario.sample.is_none() && (args.plot.is_some() || args.curves.is_some()) {
        let step = (scenario.duration.as_nanos() / DEFAULT_CURVE_POINTS).max(1);
        scenario.sample = Some(Duration::from_nanos(step));
    }
    let bar = sim::bar(scenario.duration.as_millis(), &scenario.name);
    let mut progress = |progress: Progress| bar.set_position(progress.at.as_nanos() / 1_000_000);
    let outcome = packtrain_sim::run(&scenario, &mut progress);
    bar.finish_and_clear();
    let outcome = outcome.map_err(|error| usage(format!("{}: {error}", file.name())))?;
    let mut row = RunRow::new(&outcome, 0, Vec::new());
    if let Some(mut columns) = columns {
        columns.push(&row)?;
        columns.finish()?;
    }
    if let Some(path) = &args.curves {
        let text = results::curves(&outcome).join("\n") + "\n";
        std::fs::write(path, text)
            .map_err(|error| unwritable(format!("{}: {error}", path.display())))?;
    }
    if let Some(path) = &args.plot {
        plot::curves(&outcome, title(&scenario)).write(path).map_err(unwritable)?;
    }
    if args.json {
        results::samples(&outcome).for_each(|sample| sim::row(&sample));
        results::packets(&outcome).for_each(|packet| sim::row(&packet));
        row.event = "done";
        sim::done(&row);
    } else {
        sim::table(title(&scenario), &row);
    }
    Ok(Code::DONE)
}

/// The title of a plot or a table.
fn title(scenario: &Scenario) -> &str {
    if scenario.title.is_empty() { &scenario.name } else { &scenario.title }
}

fn many(
    args: &SimRunArgs,
    file: &ScenarioFile,
    axis: &[&str],
    range: Range<u64>,
    mut columns: Option<Columns>,
) -> Result<Code, Exit> {
    let bar = sim::bar(range.end - range.start, "runs");
    let mut failed = None;
    let mut rows: Vec<RunRow> = Vec::new();
    let mut flows: Vec<FlowRow> = Vec::new();
    let mut hashes = Vec::new();
    if !args.json {
        sim::sweep_heading(file);
    }
    let mut repeats = Repeats::new(file.repeat());
    let mut equal = false;
    let mut finished = |run: u64, outcome: Outcome| {
        let row = RunRow::new(&outcome, run, file.settings(run));
        if args.json {
            sim::row(&row);
        } else {
            bar.suspend(|| sim::sweep_row(&row));
        }
        if let Some(Err(error)) = columns.as_mut().map(|columns| columns.push(&row)) {
            failed = Some(error);
        }
        bar.inc(1);
        if let Some(repeats) = repeats.push(&row) {
            equal |= repeats.distinct == 1;
            if args.json {
                sim::row(&repeats);
            } else {
                bar.suspend(|| sim::repeats(&repeats));
            }
        }
        hashes.push(row.trace_hash.clone());
        let own = row.flows.iter().map(|flow| FlowRow { run: Some(run), ..flow.clone() });
        flows.extend(own.take(MAX_ROWS - flows.len().min(MAX_ROWS)));
        if args.plot.is_some() {
            rows.push(row);
        }
        failed.is_none()
    };
    // The output of a sweep has no curves, and they would need much memory.
    let adapt = |scenario: &mut Scenario| (scenario.sample, scenario.record) = (None, None);
    let result = sweep::sweep(file, range, jobs(args.jobs), &adapt, &mut finished);
    bar.finish_and_clear();
    result.map_err(usage)?;
    failed.map_or(Ok(()), Err)?;
    if equal {
        sim::equal_repeats();
    }
    columns.map_or(Ok(()), Columns::finish)?;
    if let Some(path) = &args.plot {
        let scenario = file.scenario(0).map_err(usage)?;
        plot::over_axis(&rows, axis, title(&scenario)).write(path).map_err(unwritable)?;
    }
    if args.json {
        let hash = results::together(hashes.iter().map(String::as_str));
        sim::sweep_done(hashes.len(), &hash, &flows);
    }
    Ok(Code::DONE)
}

/// A CSV file to which each run appends a line, so that an interruption keeps the finished runs.
struct Columns {
    out: BufWriter<File>,
    name: String,
}

impl Columns {
    fn create(path: &Path, file: &ScenarioFile) -> Result<Self, Exit> {
        let name = path.display().to_string();
        let out = File::create(path).map_err(|error| unwritable(format!("{name}: {error}")))?;
        let mut columns = Self { out: BufWriter::new(out), name };
        columns.line(&results::heading(file.axes()))?;
        Ok(columns)
    }

    fn line(&mut self, text: &str) -> Result<(), Exit> {
        writeln!(self.out, "{text}").map_err(|error| unwritable(format!("{}: {error}", self.name)))
    }

    fn push(&mut self, row: &RunRow) -> Result<(), Exit> {
        results::columns(row).iter().try_for_each(|line| self.line(line))?;
        self.out.flush().map_err(|error| unwritable(format!("{}: {error}", self.name)))
    }

    fn finish(mut self) -> Result<(), Exit> {
        self.out.flush().map_err(|error| unwritable(format!("{}: {error}", self.name)))
    }
}

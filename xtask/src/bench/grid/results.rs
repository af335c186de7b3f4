//! The results of the grid: medians, verdicts, the table of misses, and all runs as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::cells::{CELLS, Cell};
use super::judge::{Check, Entry, OF_BETTER, OF_CEILING, OVER_PEER, Verdict, judge};
use super::{Form, Grid, Part, Run};
use crate::bench::noise::{Attempt as _, counted};
use crate::bench::report::{Report, Suite, median};

/// What the keys of all suites of the grid start with.
const KEY: &str = "grid, ";

/// The runs of a program in a part of a cell.
struct Row<'a> {
    name: &'a str,
    runs: Vec<&'a Run>,
}

/// A part of a cell, judged.
struct Judged<'a> {
    cell: &'static Cell,
    part: Part,
    rows: Vec<Row<'a>>,
    verdict: Verdict,
}

/// Puts all results so far into the report, in place of those of earlier rounds.
pub(super) fn publish(grid: &Grid<'_>, chosen: &[usize], rounds: usize, report: &mut Report) {
    let judged = judged(&grid.runs, chosen);
    report.replace(KEY, judged.iter().map(suite).collect());
    report.headline("grid", headline(grid, &judged, rounds));
    report.attach("grid", json(grid, &judged));
}

fn judged<'a>(runs: &'a [Run], chosen: &[usize]) -> Vec<Judged<'a>> {
    let parts = chosen.iter().flat_map(|&at| [(at, Part::Memory), (at, Part::File)]);
    let judged = parts.filter_map(|(at, part)| {
        let rows = rows(runs.iter().filter(|run| run.cell == at && run.part == part));
        if rows.is_empty() {
            return None;
        }
        let entries: Vec<Entry> = rows.iter().filter_map(Row::entry).collect();
        let verdict = judge(&entries, CELLS[at].ceiling());
        Some(Judged { cell: &CELLS[at], part, rows, verdict })
    });
    judged.collect()
}

/// The rows in the order of the first runs.
fn rows<'a>(runs: impl Iterator<Item = &'a Run>) -> Vec<Row<'a>> {
    let mut rows: Vec<Row<'a>> = Vec::new();
    for run in runs {
        match rows.iter_mut().find(|row| row.name == run.program) {
            Some(row) => row.runs.push(run),
            None => rows.push(Row { name: &run.program, runs: vec![run] }),
        }
    }
    rows
}

impl<'a> Row<'a> {
    /// The runs that count.
    fn counted(&self) -> Vec<&'a Run> {
        counted(self.runs.iter().copied())
    }

    fn values(&self) -> Vec<f64> {
        self.counted().iter().filter_map(|run| run.outcome.clone().ok()).collect()
    }

    fn entry(&self) -> Option<Entry> {
        let role = self.runs.first()?.role;
        Some(Entry { name: self.name.to_owned(), role, median: self.median() })
    }

    /// The median in bit/s. Rounds that failed count as zero: a program that ends in two of five
    /// rounds only has none.
    fn median(&self) -> Option<f64> {
        let counted = self.counted();
        let all: Vec<f64> =
            counted.iter().map(|run| run.outcome.clone().unwrap_or_default()).collect();
        median(&all).filter(|median| *median > 0.0)
    }

    /// How many of the rounds that count are doubtful.
    fn doubtful(&self) -> usize {
        self.counted().iter().filter(|run| !run.doubts().is_empty()).count()
    }
}

impl Judged<'_> {
    fn name(&self) -> String {
        match self.part {
            Part::Memory => self.cell.name(),
            Part::File => format!("{}, file of {} MB", self.cell.name(), self.cell.file),
        }
    }
}

fn suite(judged: &Judged<'_>) -> Suite {
    let what = match judged.part {
        Part::Memory => format!("memory to memory, {} s", super::cells::SECONDS),
        Part::File => format!("copy of a file of {} MB, the whole command", judged.cell.file),
    };
    let title = format!("{}: {}; {what}", judged.name(), judged.cell.path());
    let mut suite = Suite::new(&format!("{KEY}{}", judged.name()), &title, "Mbit/s", true);
    for row in &judged.rows {
        let doubtful = row.doubtful();
        let mark = if doubtful > 0 { format!(" ({doubtful} doubtful)") } else { String::new() };
        let counted = row.counted();
        let failures = counted.iter().filter_map(|run| run.outcome.clone().err()).collect();
        let values = row.values().iter().map(|bps| bps / 1e6).collect();
        suite.row(format!("{}{mark}", row.name), values, failures);
    }
    suite.say(sentence(&judged.verdict));
    for row in &judged.rows {
        for run in row.runs.iter().filter(|run| !run.doubts().is_empty()) {
            suite.say(doubt(run));
        }
    }
    suite
}

fn sentence(verdict: &Verdict) -> String {
    let mut text = format!("Payload ceiling {:.1} Mbit/s.", verdict.ceiling / 1e6);
    if let (Some((name, _)), Some(ratio)) = (&verdict.best, verdict.over_peer()) {
        let _ = write!(text, " native is {ratio:.3} times the best single connection ({name}).");
    }
    if let Some(share) = verdict.of_ceiling() {
        let _ = write!(text, " native is {share:.3} of the ceiling.");
    }
    for check in &verdict.checks {
        let word = if check.passed() { "reaches" } else { "MISSES" };
        let _ = write!(
            text,
            " {} {word} its target of {:.1} Mbit/s ({}).",
            check.who,
            check.target / 1e6,
            check.from
        );
    }
    text
}

fn doubt(run: &Run) -> String {
    let value = match &run.outcome {
        Ok(bps) => format!("{:.1} Mbit/s", bps / 1e6),
        Err(why) => why.clone(),
    };
    let attempt = if run.attempt > 0 { ", repeated" } else { "" };
    format!(
        "Doubtful: {}, round {}{attempt}, {value}: {}.",
        run.program,
        run.round + 1,
        run.doubts().join(", ")
    )
}

/// The table of misses, and what the tables below mean.
fn headline(grid: &Grid<'_>, judged: &[Judged<'_>], rounds: usize) -> String {
    let checks: Vec<(String, &Check, &Verdict)> = judged
        .iter()
        .flat_map(|one| one.verdict.checks.iter().map(|check| (one.name(), check, &one.verdict)))
        .collect();
    let missed: Vec<_> = checks.iter().filter(|(_, check, _)| !check.passed()).collect();
    let mut text = String::from("## Grid: cells that miss their target\n\n");
    if missed.is_empty() {
        let _ = writeln!(text, "None of {} checks.\n", checks.len());
    } else {
        let _ = writeln!(
            text,
            "{} of {} checks miss. Mbit/s:\n\n| cell | program | measured | target | computed from \
             | best single connection | payload ceiling |\n|---|---|---|---|---|---|---|",
            missed.len(),
            checks.len()
        );
    }
    for (name, check, verdict) in missed {
        let best = verdict
            .best
            .as_ref()
            .map_or_else(String::new, |(name, bps)| format!("{:.1} ({name})", bps / 1e6));
        let measured =
            check.measured.map_or_else(|| "none".to_owned(), |bps| format!("{:.1}", bps / 1e6));
        let _ = writeln!(
            text,
            "| {name} | {} | {measured} | {:.1} | {} | {best} | {:.1} |",
            check.who,
            check.target / 1e6,
            check.from,
            verdict.ceiling / 1e6
        );
    }
    text.push('\n');
    text.push_str(&explanation(grid, rounds));
    text
}

fn explanation(grid: &Grid<'_>, rounds: usize) -> String {
    let form = if grid.form == Form::Short { "short" } else { "full" };
    let doubtful = grid.runs.iter().filter(|run| !run.doubts().is_empty()).count();
    let mut text = format!(
        "Form {form}, medians of {rounds} round(s). `native` must reach the lesser of {OVER_PEER} \
         times the best single connection of another program, with either socket buffer limit, and \
         {OF_CEILING} of the payload ceiling; `auto` {OF_BETTER} of the better of `native` and \
         `tcp`. The ceiling is the mean rate x (1500 - 28 - 33) / 1500 x (1 - loss): full packets of \
         the native wire over IPv4. A run is doubtful if the emulator was late, other programs or \
         the hypervisor used the processor, or the machine stalled; it is repeated once, and the \
         run without doubts counts, or else the repetition. {doubtful} of {} runs are doubtful.\n\n\
         The machine, idle, before each round:\n\n",
        grid.runs.len()
    );
    for (index, idle) in grid.idle.iter().enumerate() {
        let _ = writeln!(text, "- round {}: {}", index + 1, idle.text());
    }
    text
}

fn json(grid: &Grid<'_>, judged: &[Judged<'_>]) -> Value {
    let cells: Vec<Value> = judged
        .iter()
        .map(|one| {
            let medians: serde_json::Map<String, Value> = one
                .rows
                .iter()
                .map(|row| (row.name.to_owned(), json!(row.median().map(|bps| bps / 1e6))))
                .collect();
            let mut cell = one.cell.json();
            cell["part"] = json!(part(one.part));
            cell["median_mbps"] = Value::Object(medians);
            cell["verdict"] = one.verdict.json();
            cell
        })
        .collect();
    let runs: Vec<Value> = grid
        .runs
        .iter()
        .map(|run| {
            json!({
                "cell": CELLS[run.cell].name(), "part": part(run.part), "program": run.program,
                "round": run.round, "attempt": run.attempt,
                "goodput_mbps": run.outcome.clone().ok().map(|bps| bps / 1e6),
                "failure": run.outcome.clone().err(),
                "noise": run.noise.as_ref().map(super::Noise::json), "links": run.links,
            })
        })
        .collect();
    let idle: Vec<Value> = grid.idle.iter().map(super::Idle::json).collect();
    json!({"cells": cells, "runs": runs, "idle": idle})
}

fn part(part: Part) -> &'static str {
    match part {
        Part::Memory => "memory",
        Part::File => "file",
    }
}

#[cfg(test)]
mod tests {
    use super::super::programs::Role;
    use super::*;
    use crate::bench::noise::Noise;

    fn run(round: usize, attempt: usize, outcome: Result<f64, &str>, others: f64) -> Run {
        Run {
            cell: 0,
            part: Part::Memory,
            program: "packtrain native".to_owned(),
            role: Role::Native,
            round,
            attempt,
            outcome: outcome.map_err(str::to_owned),
            noise: Some(Noise { others, ..Noise::default() }),
            links: Value::Null,
        }
    }

    #[test]
    fn a_repetition_counts_in_place_of_a_doubtful_run() {
        let runs = [
            run(0, 0, Ok(1.0), 0.0),
            run(1, 0, Ok(2.0), 0.9),
            run(1, 1, Ok(3.0), 0.0),
            run(2, 0, Ok(4.0), 0.9),
            run(2, 1, Ok(5.0), 0.8),
        ];
        let rows = rows(runs.iter());
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].values(), [1.0, 3.0, 5.0]);
        assert_eq!(rows[0].doubtful(), 1, "neither run of the last round is clean");
        let suite = judged(&runs, &[0]).iter().map(|one| one.rows[0].runs.len()).sum::<usize>();
        assert_eq!(suite, 5, "no run is dropped");
    }

    #[test]
    fn failed_rounds_count_as_zero_in_the_median() {
        let runs = [
            run(0, 0, Ok(8.0), 0.0),
            run(1, 0, Err("cut off"), 0.0),
            run(2, 0, Err("cut off"), 0.0),
        ];
        assert_eq!(rows(runs.iter())[0].median(), None);
        assert_eq!(rows(runs[..2].iter())[0].median(), None, "the lower middle");
        assert_eq!(rows(runs[..1].iter())[0].median(), Some(8.0));
    }
}

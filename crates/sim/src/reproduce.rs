//! Results of papers, played again: each a folder with what is simulated, what the paper says,
//! how near we must come, and what we found.
//!
//! The folders of `experiments/` are part of the program, so that it knows them everywhere; a
//! path names any other folder of the same shape.

mod csv;
mod embedded;
mod expression;
mod folder;

use std::collections::BTreeMap;

use serde::Serialize;

pub use csv::{Expected, PaperRow};
pub use folder::{Experiment, ExperimentError, RowSpec};

use crate::plot::{Figure, comparison};
use crate::results::RunRow;
use crate::sweep::{RunError, sweep};

/// One number of a paper, and ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Which.
    pub key: String,
    /// The paper's number.
    pub paper: f64,
    /// Ours; none: no run gave it.
    pub ours: Option<f64>,
    /// How far ours may be from the paper's, in the same unit.
    pub tolerance: f64,
}

/// What came of an experiment: the line `{"event":"reproduced",...}`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reproduced {
    /// `reproduced`.
    pub event: &'static str,
    /// Name of the experiment.
    pub name: String,
    /// Every row is within its tolerance.
    pub ok: bool,
    /// In the order of the paper's table.
    pub rows: Vec<Row>,
}

impl Row {
    /// Within its tolerance.
    pub fn ok(&self) -> bool {
        self.ours.is_some_and(|ours| (ours - self.paper).abs() <= self.tolerance)
    }
}

/// The experiments of this program, by name.
pub fn names() -> Vec<&'static str> {
    embedded::NAMES.to_vec()
}

/// An experiment of this program, or the one in the folder of this path.
///
/// # Errors
/// There is none, or its files are wrong.
pub fn find(name: &str) -> Result<Experiment, ExperimentError> {
    if embedded::NAMES.contains(&name) {
        return Experiment::read(name, &|file| {
            let path = format!("{name}/{file}");
            let found = embedded::FILES.iter().find(|(known, _)| *known == path);
            found.map(|(_, text)| (*text).to_owned()).ok_or_else(|| "is missing".to_owned())
        });
    }
    let dir = std::path::Path::new(name);
    if !dir.is_dir() {
        return Err(ExperimentError::Unknown(name.to_owned(), names().join(", ")));
    }
    Experiment::read(name, &|file| {
        std::fs::read_to_string(dir.join(file)).map_err(|error| error.to_string())
    })
}

/// Plays an experiment with `jobs` threads; `told` hears of each run.
///
/// # Errors
/// A scenario is wrong or cannot be played, or a row asks for what no run has.
pub fn reproduce(
    experiment: &Experiment,
    jobs: usize,
    told: &mut impl FnMut(&RunRow),
) -> Result<Reproduced, ExperimentError> {
    let mut found: BTreeMap<String, (f64, u32)> = BTreeMap::new();
    for (name, file) in &experiment.scenarios {
        let rules: Vec<_> = experiment.rows.iter().filter(|row| row.scenario == *name).collect();
        let mut failed = None;
        let mut hear = |run, outcome: crate::outcome::Outcome| {
            let row = RunRow::new(&outcome, run, file.settings(run));
            for rule in &rules {
                match rule.apply(&row) {
                    Ok((key, value)) => {
                        let sum = found.entry(key).or_default();
                        *sum = (sum.0 + value, sum.1 + 1);
                    }
                    Err(error) => failed = Some(error),
                }
            }
            told(&row);
            failed.is_none()
        };
        sweep(file, 0..file.runs(), jobs, &|_| {}, &mut hear)?;
        if let Some(error) = failed {
            return Err(error);
        }
    }
    let rows = experiment.paper.iter().map(|paper| Row {
        key: paper.key.clone(),
        paper: paper.value,
        ours: found.get(&paper.key).map(|(sum, count)| sum / f64::from(*count)),
        tolerance: paper.tolerance,
    });
    let rows: Vec<Row> = rows.collect();
    let ok = !rows.is_empty() && rows.iter().all(Row::ok);
    Ok(Reproduced { event: "reproduced", name: experiment.name.clone(), ok, rows })
}

impl Reproduced {
    /// The paper's numbers and ours, drawn.
    pub fn figure(&self, experiment: &Experiment) -> Figure {
        let row =
            |row: &Row| row.ours.map(|ours| (row.key.clone(), row.paper, ours, row.tolerance));
        let rows: Vec<_> = self.rows.iter().filter_map(row).collect();
        comparison(&experiment.title, &experiment.label, &rows)
    }

    /// Keys whose number is not the one kept in `expected.csv`. Runs are the same everywhere, but
    /// logarithms and powers may differ in their last digits between machines.
    pub fn changed(&self, experiment: &Experiment) -> Vec<String> {
        let expected: BTreeMap<_, _> =
            experiment.expected.iter().map(|row| (row.key.as_str(), row.ours)).collect();
        let same = |row: &&Row| match (row.ours, expected.get(row.key.as_str())) {
            (Some(ours), Some(kept)) => (ours - kept).abs() <= 1e-6 * kept.abs(),
            _ => false,
        };
        self.rows.iter().filter(|row| !same(row)).map(|row| row.key.clone()).collect()
    }

    /// The text of `expected.csv`.
    pub fn expected(&self, experiment: &Experiment) -> String {
        let seeds = experiment.scenarios.iter().map(|(_, file)| file.scenario(0));
        let seed = seeds.flatten().map(|s| s.seed).next().unwrap_or_default();
        csv::expected(&self.rows, seed)
    }
}

impl From<RunError> for ExperimentError {
    fn from(error: RunError) -> Self {
        Self::Run(Box::new(error))
    }
}

#[cfg(test)]
mod tests;

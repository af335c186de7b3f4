//! Reproductions of results of papers. Each is a folder with the simulated scenarios, the paper's
//! numbers, the tolerances, and the measured numbers.
//!
//! The folders of `experiments/` are embedded in the program; a path names any other folder of the
//! same structure.
//!
//! The crate also has the plots of experiments and of the command ([`plot`]), the losses on which
//! classifiers are trained and tested ([`signatures`]), and the paper's simulation without a
//! network ([`direct`]). The simulator depends on none of them.

mod csv;
pub mod direct;
mod embedded;
mod expression;
mod figure;
mod folder;
mod group;
pub mod plot;
pub mod signatures;
mod table;
mod trend;

use std::collections::BTreeMap;

use packtrain_sim::results::RunRow;
use packtrain_sim::sweep::{RunError, sweep};
use serde::Serialize;

pub use csv::{Bound, Expected, PaperRow};
pub use folder::{DerivedSpec, Experiment, ExperimentError, PlotSpec, RowSpec};
pub use table::{spliced, table};

use crate::plot::{Figure, Panel, comparison};
use group::RunContext;

/// One number of a paper, and the measured number.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Its name.
    pub key: String,
    /// The paper's number.
    pub paper: f64,
    /// The measured number, of several variants the closest; none: no run gave it.
    pub ours: Option<f64>,
    /// The variant of `ours`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// The maximum deviation from the paper's number, in the same unit.
    pub tolerance: f64,
    /// The relation of the measured number to the paper's.
    pub bound: Bound,
    /// The measured numbers, in the order of the runs.
    pub found: Vec<Found>,
}

/// A measured number.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Found {
    /// The variant, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// The number.
    pub ours: f64,
}

/// The result of an experiment: the line `{"event":"reproduced",...}`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reproduced {
    /// `reproduced`.
    pub event: &'static str,
    /// Name of the experiment.
    pub name: String,
    /// Whether every row is within its tolerance.
    pub ok: bool,
    /// In the order of the paper's table.
    pub rows: Vec<Row>,
    /// The panels of the plot of the runs.
    #[serde(skip)]
    pub panels: Vec<Panel>,
}

impl Row {
    fn new(paper: &PaperRow, found: Vec<Found>) -> Self {
        let miss = |found: &&Found| paper.bound.miss(found.ours, paper.value);
        let nearest = found.iter().min_by(|a, b| miss(a).total_cmp(&miss(b))).cloned();
        Self {
            key: paper.key.clone(),
            paper: paper.value,
            ours: nearest.as_ref().map(|found| found.ours),
            variant: nearest.and_then(|found| found.variant),
            tolerance: paper.tolerance,
            bound: paper.bound,
            found,
        }
    }

    /// Whether the closest number is within the tolerance.
    pub fn ok(&self) -> bool {
        self.ours.is_some_and(|ours| self.fits(ours))
    }

    /// Whether a number is within the tolerance.
    pub fn fits(&self, ours: f64) -> bool {
        self.bound.miss(ours, self.paper) <= self.tolerance
    }
}

impl Found {
    /// The name in `expected.csv`.
    fn key(&self, key: &str) -> String {
        match &self.variant {
            Some(variant) => format!("{key}{VARIANT}{variant}"),
            None => key.to_owned(),
        }
    }
}

/// The separator of key and variant in `expected.csv`.
const VARIANT: &str = " @ ";

/// The names of the embedded experiments.
pub fn names() -> Vec<&'static str> {
    embedded::NAMES.to_vec()
}

/// The embedded experiment of this name, or the one in the folder of this path.
///
/// # Errors
/// There is none, or its files are invalid.
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

/// Runs an experiment with `jobs` threads; `on_run` is called for each run.
///
/// # Errors
/// A scenario is invalid or a run fails, or a row requires a number that no run has.
pub fn reproduce(
    experiment: &Experiment,
    jobs: usize,
    on_run: &mut impl FnMut(&RunRow),
) -> Result<Reproduced, ExperimentError> {
    let mut sums: Vec<Sum> = Vec::new();
    let mut sketch = figure::Sketch::new(experiment);
    for (name, file) in &experiment.scenarios {
        let rules: Vec<_> = experiment.rows.iter().filter(|row| row.scenario == *name).collect();
        let mut failed = None;
        let mut collect = |run, outcome: packtrain_sim::outcome::Outcome| {
            let row = RunRow::new(&outcome, run, file.settings(run));
            let context = RunContext { row: &row, outcome: &outcome };
            for rule in &rules {
                match rule.apply(&context) {
                    Ok(Some((key, variant, value))) => add(&mut sums, key, variant, value),
                    Ok(None) => {}
                    Err(error) => failed = Some(error),
                }
            }
            if let Err(error) = sketch.add(name, &context) {
                failed = Some(error);
            }
            on_run(&row);
            failed.is_none()
        };
        sweep(file, 0..file.runs(), jobs, &|_| {}, &mut collect)?;
        if let Some(error) = failed {
            return Err(error);
        }
    }
    derive(experiment, &mut sums)?;
    let rows = experiment.paper.iter().map(|paper| {
        let own = sums.iter().filter(|(key, ..)| *key == paper.key);
        let found = own.map(|(_, variant, sum, count)| Found {
            variant: variant.clone(),
            ours: sum / f64::from(*count),
        });
        Row::new(paper, found.collect())
    });
    let mut result = Reproduced::of(experiment, rows.collect());
    result.panels = sketch.panels();
    Ok(result)
}

fn add(sums: &mut Vec<Sum>, key: String, variant: Option<String>, value: f64) {
    match sums.iter_mut().find(|sum| sum.0 == key && sum.1 == variant) {
        Some(sum) => (sum.2, sum.3) = (sum.2 + value, sum.3 + 1),
        None => sums.push((key, variant, value, 1)),
    }
}

type Sum = (String, Option<String>, f64, u32);

/// Adds the derived numbers.
fn derive(experiment: &Experiment, sums: &mut Vec<Sum>) -> Result<(), ExperimentError> {
    for spec in &experiment.derived {
        let mut variants: Vec<Option<String>> = Vec::new();
        for (_, variant, ..) in sums.iter() {
            if !variants.contains(variant) {
                variants.push(variant.clone());
            }
        }
        let several = variants.iter().any(Option::is_some);
        for variant in variants.into_iter().filter(|variant| variant.is_some() || !several) {
            let own = sums.iter().filter(|sum| sum.1.is_none() || sum.1 == variant);
            let known: Vec<_> =
                own.map(|(key, _, sum, count)| (key.as_str(), sum / f64::from(*count))).collect();
            let value = spec.value(&known).map_err(|what| ExperimentError::Folder {
                folder: experiment.name.clone(),
                file: "experiment.toml".to_owned(),
                what: format!("derived `{}`: {what}", spec.key),
            })?;
            let of_variants = sums.iter().any(|sum| sum.1.is_some() && spec.uses(&sum.0));
            let variant = variant.filter(|_| of_variants);
            let known = sums.iter().any(|sum| sum.0 == spec.key && sum.1 == variant);
            if let Some(value) = value.filter(|_| !known) {
                sums.push((spec.key.clone(), variant, value, 1));
            }
        }
    }
    Ok(())
}

/// The result that is stored in `expected.csv`.
pub fn kept(experiment: &Experiment) -> Reproduced {
    let rows = experiment.paper.iter().map(|paper| {
        let found = experiment.expected.iter().filter_map(|kept| {
            let variant = kept.key.strip_prefix(&paper.key)?;
            let variant = match variant.strip_prefix(VARIANT) {
                Some(variant) => Some(variant.to_owned()),
                None if variant.is_empty() => None,
                None => return None,
            };
            Some(Found { variant, ours: kept.ours })
        });
        Row::new(paper, found.collect())
    });
    Reproduced::of(experiment, rows.collect())
}

impl Reproduced {
    fn of(experiment: &Experiment, rows: Vec<Row>) -> Self {
        let ok = !rows.is_empty() && rows.iter().all(Row::ok);
        let name = experiment.name.clone();
        Self { event: "reproduced", name, ok, rows, panels: Vec::new() }
    }

    /// The plots of the experiment, or a comparison with the paper's numbers.
    pub fn figure(&self, experiment: &Experiment) -> Figure {
        if !self.panels.is_empty() {
            return figure::of(experiment, self.panels.clone());
        }
        comparison(&experiment.title, &experiment.label, &self.rows)
    }

    /// Keys whose number differs from `expected.csv`. Runs are the same on every machine, but
    /// logarithms and powers may differ in their last digits.
    pub fn changed(&self, experiment: &Experiment) -> Vec<String> {
        let expected: BTreeMap<_, _> =
            experiment.expected.iter().map(|row| (row.key.as_str(), row.ours)).collect();
        let same = |key: &str, ours: f64| {
            expected.get(key).is_some_and(|kept| (ours - kept).abs() <= 1e-6 * kept.abs())
        };
        let mut changed = Vec::new();
        for row in &self.rows {
            let keys = row.found.iter().map(|found| (found.key(&row.key), found.ours));
            changed.extend(keys.filter(|(key, ours)| !same(key, *ours)).map(|(key, _)| key));
            if row.found.is_empty() {
                changed.push(row.key.clone());
            }
        }
        changed
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

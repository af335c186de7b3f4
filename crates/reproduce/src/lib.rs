//! Results of papers, played again: each a folder with what is simulated, what the paper says,
//! how near we must come, and what we found.
//!
//! The folders of `experiments/` are part of the program, so that it knows them everywhere; a
//! path names any other folder of the same shape.
//!
//! Beside them is what experiments and the command are drawn with ([`plot`]), the losses that
//! classifiers are trained and tested on ([`signatures`]), and the paper's simulation that has
//! no network ([`direct`]). The simulator needs none of it.

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
use group::Seen;

/// One number of a paper, and ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Which.
    pub key: String,
    /// The paper's number.
    pub paper: f64,
    /// Ours, of several variants the nearest; none: no run gave it.
    pub ours: Option<f64>,
    /// The variant that `ours` is of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// How far ours may be from the paper's, in the same unit.
    pub tolerance: f64,
    /// What the paper's number is to ours.
    pub bound: Bound,
    /// What we found, in the order of the runs.
    pub found: Vec<Found>,
}

/// A number that we found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Found {
    /// The variant, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// The number.
    pub ours: f64,
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
    /// What is drawn of the runs.
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

    /// Within its tolerance.
    pub fn ok(&self) -> bool {
        self.ours.is_some_and(|ours| self.fits(ours))
    }

    /// Whether a number is within the tolerance.
    pub fn fits(&self, ours: f64) -> bool {
        self.bound.miss(ours, self.paper) <= self.tolerance
    }
}

impl Found {
    /// What `expected.csv` calls it.
    fn key(&self, key: &str) -> String {
        match &self.variant {
            Some(variant) => format!("{key}{VARIANT}{variant}"),
            None => key.to_owned(),
        }
    }
}

/// Between key and variant in `expected.csv`.
const VARIANT: &str = " @ ";

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
    let mut sums: Vec<Sum> = Vec::new();
    let mut sketch = figure::Sketch::new(experiment);
    for (name, file) in &experiment.scenarios {
        let rules: Vec<_> = experiment.rows.iter().filter(|row| row.scenario == *name).collect();
        let mut failed = None;
        let mut hear = |run, outcome: packtrain_sim::outcome::Outcome| {
            let row = RunRow::new(&outcome, run, file.settings(run));
            let seen = Seen { row: &row, outcome: &outcome };
            for rule in &rules {
                match rule.apply(&seen) {
                    Ok(Some((key, variant, value))) => add(&mut sums, key, variant, value),
                    Ok(None) => {}
                    Err(error) => failed = Some(error),
                }
            }
            if let Err(error) = sketch.see(name, &seen) {
                failed = Some(error);
            }
            told(&row);
            failed.is_none()
        };
        sweep(file, 0..file.runs(), jobs, &|_| {}, &mut hear)?;
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

/// Adds the numbers that are made of others.
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

/// What is kept in `expected.csv`, as if it had been found now.
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

    /// What the experiment says is to be drawn, or the paper's numbers and ours.
    pub fn figure(&self, experiment: &Experiment) -> Figure {
        if !self.panels.is_empty() {
            return figure::of(experiment, self.panels.clone());
        }
        comparison(&experiment.title, &experiment.label, &self.rows)
    }

    /// Keys whose number is not the one kept in `expected.csv`. Runs are the same everywhere, but
    /// logarithms and powers may differ in their last digits between machines.
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

//! Reproductions of results of papers. Each is a folder with the simulated scenarios, the paper's
//! numbers, the tolerances, and the measured numbers.
//!
//! The folders of `experiments/` are embedded in the program; a path names any other folder of the
//! same structure.
//!
//! The crate also has the plots of experiments and of the command ([`plot`]), the losses on which
//! classifiers are trained and tested ([`signatures`]), and the paper's simulation without a
//! network ([`direct`]). The simulator depends on none of them.

mod cells;
mod check;
mod csv;
pub mod direct;
mod embedded;
mod expression;
mod figure;
mod folder;
mod group;
mod play;
pub mod plot;
pub mod signatures;
mod spread;
mod table;
mod trend;

use std::path::Path;

use packtrain_sim::sweep::RunError;
use serde::Serialize;

pub use cells::Part;
pub use check::{Changed, Checked, check};
pub use csv::{Basis, Bound, Expected, PaperRow, Spread};
pub use folder::{DerivedSpec, Experiment, ExperimentError, Item, PlotSpec, RowSpec};
pub use play::reproduce;
pub use spread::{Spreads, spread};
pub use table::{spliced, table};

use crate::plot::{Figure, Panel, comparison};

/// One number of a paper, and the measured number.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Its name.
    pub key: String,
    /// The paper's number.
    pub paper: f64,
    /// The measured number, of several variants the one that `scored` in `experiment.toml` names;
    /// none: no run gave it.
    pub ours: Option<f64>,
    /// The variant of `ours`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// What the paper's number rests on; only the paper's own numbers are scored.
    pub basis: Basis,
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
    /// Whether every scored row is within its tolerance.
    pub ok: bool,
    /// In the order of the paper's table.
    pub rows: Vec<Row>,
    /// The panels of the plot of the runs.
    #[serde(skip)]
    pub panels: Vec<Panel>,
}

impl Row {
    fn new(paper: &PaperRow, found: Vec<Found>, scored: Option<&str>) -> Self {
        // A number of all variants together counts for the one that is scored.
        let is_scored =
            |found: &&Found| found.variant.is_none() || found.variant.as_deref() == scored;
        let meant = found.iter().find(is_scored).cloned();
        Self {
            key: paper.key.clone(),
            paper: paper.value,
            ours: meant.as_ref().map(|found| found.ours),
            variant: meant.and_then(|found| found.variant),
            basis: paper.basis,
            tolerance: paper.tolerance,
            bound: paper.bound,
            found,
        }
    }

    /// Whether the number is within the tolerance.
    pub fn ok(&self) -> bool {
        self.ours.is_some_and(|ours| self.fits(ours))
    }

    /// Of several variants the closest number; information only.
    pub fn nearest(&self) -> Option<&Found> {
        let miss = |found: &&Found| self.bound.miss(found.ours, self.paper);
        self.found.iter().min_by(|a, b| miss(a).total_cmp(&miss(b)))
    }

    /// Whether the paper states the number, so that agreement with it means something.
    pub fn is_scored(&self) -> bool {
        self.basis == Basis::Paper
    }

    /// Whether a number is within the tolerance.
    pub fn fits(&self, ours: f64) -> bool {
        self.bound.miss(ours, self.paper) <= self.tolerance
    }
}

impl Found {
    /// The name in `expected.csv`.
    fn key(&self, key: &str) -> String {
        cells::shown(key, self.variant.as_deref())
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
            embedded::text(&format!("{name}/{file}")).ok_or_else(|| "is missing".to_owned())
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
        Row::new(paper, found.collect(), experiment.scored.as_deref())
    });
    Reproduced::of(experiment, rows.collect())
}

impl Reproduced {
    fn of(experiment: &Experiment, rows: Vec<Row>) -> Self {
        let ok = !rows.is_empty() && rows.iter().all(|row| row.ok() || !row.is_scored());
        let name = experiment.name.clone();
        Self { event: "reproduced", name, ok, rows, panels: Vec::new() }
    }

    /// How many rows of a basis are within tolerance, and how many there are.
    pub fn score(&self, basis: Basis) -> (usize, usize) {
        let rows = self.rows.iter().filter(|row| row.basis == basis);
        (rows.clone().filter(|row| row.ok()).count(), rows.count())
    }

    /// The plots of the experiment, or a comparison with the paper's numbers.
    pub fn figure(&self, experiment: &Experiment) -> Figure {
        if !self.panels.is_empty() {
            return figure::of(experiment, self.panels.clone());
        }
        comparison(&experiment.title, &experiment.label, &self.rows)
    }

    /// Writes `expected.csv` and `plot.svg` into a folder, and the table into its `README.md`.
    ///
    /// # Errors
    /// Names the file that cannot be written.
    pub fn write_to(&self, experiment: &Experiment, dir: &Path) -> Result<(), String> {
        let write = |file: &str, text: &str| {
            let path = dir.join(file);
            std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
        };
        write("expected.csv", &self.expected(experiment))?;
        let plot = self.figure(experiment).write(&dir.join("plot.svg"));
        plot.map_err(|error| error.to_string())?;
        let readme = std::fs::read_to_string(dir.join("README.md")).unwrap_or_default();
        match spliced(&readme, &table(self)) {
            Some(new) => write("README.md", &new),
            None => Ok(()),
        }
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

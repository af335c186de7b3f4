//! Scenario files: TOML, read into a [`Scenario`]; errors name file, line and field.
//! `docs/guide/reference/sim.md` documents every key.

mod build;
mod error;
mod field;
mod flow;
mod host;
mod jitter;
mod link;
mod loss;
mod names;
mod queue;
mod routes;
mod sweep;
mod tree;

use std::path::Path;

use serde::Serialize;

pub use error::FileError;

use crate::spec::Scenario;
use field::Source;
use sweep::Sweep;
use tree::{Place, Table};

/// Maximum bytes of a scenario file.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// A scenario, or a sweep.
#[derive(Debug)]
pub struct ScenarioFile {
    source: Source,
    tree: Table,
    sweep: Sweep,
}

/// A value that a run of a sweep sets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// The path of the field, such as `link.bottleneck.loss`.
    pub path: String,
    /// Its value in the run, as written.
    pub value: String,
}

impl ScenarioFile {
    /// Reads a file; `sets` are changes such as `link.bottleneck.loss=1e-3`. Files that it names
    /// are read relative to its directory.
    pub fn load(path: &Path, sets: &[String]) -> Result<Self, FileError> {
        let name = path.display().to_string();
        let text = text_of(path, MAX_FILE_BYTES).map_err(|what| FileError {
            source_name: name.clone(),
            position: None,
            field: String::new(),
            what,
        })?;
        let dir = path.parent().map(Path::to_owned).unwrap_or_default();
        let include = move |name: &str| text_of(&dir.join(name), 64 << 20);
        Self::read(&name, text, sets, Box::new(include))
    }

    /// Parses a text that may not name other files; `name` is for messages.
    pub fn parse(name: &str, text: &str, sets: &[String]) -> Result<Self, FileError> {
        let include = |_: &str| Err("this scenario cannot name other files".to_owned());
        Self::read(name, text.to_owned(), sets, Box::new(include))
    }

    fn read(
        name: &str,
        text: String,
        sets: &[String],
        include: field::Include,
    ) -> Result<Self, FileError> {
        let mut tree = tree::parse(name, &text)?;
        let source = Source { name: name.to_owned(), text, sets: sets.to_owned(), include };
        for (index, set) in sets.iter().enumerate() {
            let place = Place::Set(index);
            let Some((path, value)) = set.split_once('=') else {
                return Err(source.error(place, "", "write PATH=VALUE, such as duration=10s"));
            };
            sweep::set(&source, &mut tree, path.trim(), tree::argument(value.trim(), place))?;
        }
        let sweep = Sweep::read(&source, tree.get("sweep"))?;
        tree.remove("sweep");
        Ok(Self { source, tree, sweep })
    }

    /// Name of the file.
    pub fn name(&self) -> &str {
        &self.source.name
    }

    /// Number of runs: one, except for a sweep.
    pub fn runs(&self) -> u64 {
        self.sweep.runs
    }

    /// The paths that a sweep varies.
    pub fn axes(&self) -> impl Iterator<Item = &str> {
        self.sweep.axes.iter().flat_map(|axis| &axis.paths).map(String::as_str)
    }

    /// The paths of the axis that contains `path`, that one first; without a path those of the first
    /// axis. `None`: the sweep does not vary `path`.
    pub fn axis_of(&self, path: Option<&str>) -> Option<Vec<&str>> {
        let Some(path) = path else {
            let first = self.sweep.axes.first().map(|axis| &axis.paths[..]).unwrap_or_default();
            return Some(first.iter().map(String::as_str).collect());
        };
        let has = |axis: &&sweep::Axis| axis.paths.iter().any(|known| known == path);
        let axis = self.sweep.axes.iter().find(has)?;
        let mut paths: Vec<&str> = axis.paths.iter().map(String::as_str).collect();
        paths.sort_by_key(|known| *known != path);
        Some(paths)
    }

    /// Number of runs of each combination of values.
    pub fn repeat(&self) -> u64 {
        self.sweep.repeat
    }

    /// The values that run `run` sets.
    pub fn settings(&self, run: u64) -> Vec<Setting> {
        let (indices, _) = self.sweep.indices(run);
        let mut settings = Vec::new();
        for (axis, index) in self.sweep.axes.iter().zip(indices) {
            for (at, path) in axis.paths.iter().enumerate() {
                let value = axis.part(&axis.values[index], at).kind.shown();
                settings.push(Setting { path: path.clone(), value });
            }
        }
        settings
    }

    /// Run `run`, below [`runs`](Self::runs). Repetition `k` of a combination has the seed of the
    /// file plus `k`, so that all combinations are compared with the same random numbers. Its flows
    /// start up to the sweep's `start_jitter` later; those of repetition 0 start as written.
    pub fn scenario(&self, run: u64) -> Result<Scenario, FileError> {
        let (indices, repetition) = self.sweep.indices(run);
        self.combination(&indices, repetition)
    }

    /// Delays the flows of run `run` by the sweep's `start_jitter`, if the run is a repetition 0, whose
    /// flows start as written. For further rounds of all runs, each with other seeds.
    pub fn delay_starts(&self, run: u64, scenario: &mut Scenario) {
        if self.sweep.indices(run).1 == 0 {
            jitter::delay_starts(scenario, self.sweep.start_jitter, 1);
        }
    }

    /// Checks the first run, and each value of each axis with the first values of the others.
    pub fn check(&self) -> Result<(), FileError> {
        let mut indices = vec![0; self.sweep.axes.len()];
        self.combination(&indices, 0)?;
        for (at, axis) in self.sweep.axes.iter().enumerate() {
            for index in 1..axis.values.len() {
                indices[at] = index;
                self.combination(&indices, 0)?;
            }
            indices[at] = 0;
        }
        Ok(())
    }

    fn combination(&self, indices: &[usize], repetition: u64) -> Result<Scenario, FileError> {
        let mut scenario = self.built(indices, repetition)?;
        jitter::delay_starts(&mut scenario, self.sweep.start_jitter, repetition);
        Ok(scenario)
    }

    fn built(&self, indices: &[usize], repetition: u64) -> Result<Scenario, FileError> {
        if self.sweep.axes.is_empty() {
            return build::scenario(&self.source, &self.tree, repetition);
        }
        let mut tree = self.tree.clone();
        for (axis, &index) in self.sweep.axes.iter().zip(indices) {
            axis.apply(&self.source, &mut tree, &axis.values[index])?;
        }
        build::scenario(&self.source, &tree, repetition)
    }
}

fn text_of(path: &Path, largest: u64) -> Result<String, String> {
    let size = std::fs::metadata(path).map_err(|error| error.to_string())?.len();
    if size > largest {
        return Err(format!("has {size} bytes; at most {largest} are read"));
    }
    std::fs::read_to_string(path).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;

//! The folder of an experiment: `experiment.toml`, scenarios, `paper.csv`, `expected.csv`.

use serde::Deserialize;

use super::csv::{self, Expected, PaperRow};
use super::expression;
use crate::file::{FileError, ScenarioFile};
use crate::results::RunRow;
use crate::sweep::RunError;

/// What is wrong with an experiment.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// No experiment has this name.
    #[error("there is no experiment `{0}`: known are {1}; a path names any other folder")]
    Unknown(String, String),
    /// A file is missing or wrong.
    #[error("{folder}/{file}: {what}")]
    Folder {
        /// The experiment.
        folder: String,
        /// The file in it.
        file: String,
        /// What is wrong.
        what: String,
    },
    /// A scenario is wrong.
    #[error(transparent)]
    Scenario(#[from] FileError),
    /// A run failed.
    #[error(transparent)]
    Run(Box<RunError>),
    /// A rule of `experiment.toml` cannot be applied to a run.
    #[error("{experiment}/experiment.toml: run {run} of {scenario}: {what}")]
    Rule {
        /// The experiment.
        experiment: String,
        /// The scenario.
        scenario: String,
        /// The run.
        run: u64,
        /// What is wrong.
        what: String,
    },
}

/// An experiment.
#[derive(Debug)]
pub struct Experiment {
    /// The folder's name.
    pub name: String,
    /// One sentence.
    pub title: String,
    /// It takes seconds: tests run it.
    pub quick: bool,
    /// What the numbers are, for the plot.
    pub label: String,
    /// File names and what is in them.
    pub scenarios: Vec<(String, ScenarioFile)>,
    /// How numbers come from runs.
    pub rows: Vec<RowSpec>,
    /// The paper's numbers.
    pub paper: Vec<PaperRow>,
    /// Ours, as kept.
    pub expected: Vec<Expected>,
}

/// How numbers come from the runs of a scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowSpec {
    /// The scenario's file.
    #[serde(default = "scenario_file")]
    pub scenario: String,
    /// The key; `{PATH}` in it stands for a setting. Runs with the same key are averaged.
    pub key: String,
    /// A formula, see `expression`.
    pub value: String,
    #[serde(skip)]
    experiment: String,
}

fn scenario_file() -> String {
    "scenario.toml".to_owned()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    title: String,
    #[serde(default)]
    quick: bool,
    #[serde(default)]
    label: String,
    row: Vec<RowSpec>,
}

impl Experiment {
    /// Reads a folder through `file`.
    pub(super) fn read(
        name: &str,
        file: &dyn Fn(&str) -> Result<String, String>,
    ) -> Result<Self, ExperimentError> {
        let wrong = |file: &str, what: String| ExperimentError::Folder {
            folder: name.to_owned(),
            file: file.to_owned(),
            what,
        };
        let text = |of: &str| file(of).map_err(|what| wrong(of, what));
        let head: Head = toml::from_str(&text("experiment.toml")?)
            .map_err(|error| wrong("experiment.toml", error.to_string().trim().to_owned()))?;
        let mut rows = head.row;
        let mut scenarios: Vec<(String, ScenarioFile)> = Vec::new();
        for row in &mut rows {
            row.experiment = name.to_owned();
            if !scenarios.iter().any(|(known, _)| *known == row.scenario) {
                let shown = format!("{name}/{}", row.scenario);
                let scenario = ScenarioFile::parse(&shown, &text(&row.scenario)?, &[])?;
                scenario.check()?;
                scenarios.push((row.scenario.clone(), scenario));
            }
        }
        let paper = csv::paper(&text("paper.csv")?).map_err(|what| wrong("paper.csv", what))?;
        // A new experiment has no results yet.
        let expected = file("expected.csv").ok().map(|text| csv::read_expected(&text));
        let expected = expected.transpose().map_err(|what| wrong("expected.csv", what))?;
        let short = name.trim_end_matches('/').rsplit('/').next().unwrap_or(name).to_owned();
        Ok(Self {
            name: short,
            title: head.title,
            quick: head.quick,
            label: head.label,
            scenarios,
            rows,
            paper,
            expected: expected.unwrap_or_default(),
        })
    }
}

impl RowSpec {
    /// Key and value of a run.
    pub(super) fn apply(&self, run: &RunRow) -> Result<(String, f64), ExperimentError> {
        let result = self.key_of(run).and_then(|key| {
            let value = expression::value(&self.value, run)?;
            Ok((key, value))
        });
        result.map_err(|what| ExperimentError::Rule {
            experiment: self.experiment.clone(),
            scenario: self.scenario.clone(),
            run: run.run,
            what,
        })
    }

    fn key_of(&self, run: &RunRow) -> Result<String, String> {
        let mut key = String::new();
        let mut rest = self.key.as_str();
        while let Some((before, after)) = rest.split_once('{') {
            let (path, after) = after.split_once('}').ok_or("a `}` is missing in the key")?;
            let setting = run.settings.iter().find(|setting| setting.path == path);
            let setting = setting.ok_or_else(|| format!("the sweep does not vary `{path}`"))?;
            key.push_str(before);
            key.push_str(&setting.value);
            rest = after;
        }
        key.push_str(rest);
        Ok(key)
    }
}

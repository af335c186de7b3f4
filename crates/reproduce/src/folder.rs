//! The folder of an experiment: `experiment.toml`, scenarios, `paper.csv`, `expected.csv`.

use std::collections::BTreeMap;

use packtrain_sim::file::{FileError, ScenarioFile, Setting};
use packtrain_sim::outcome::Outcome;
use packtrain_sim::results::RunRow;
use packtrain_sim::sweep::RunError;
use serde::Deserialize;

use super::csv::{self, Expected, PaperRow};
use super::expression;
use super::group::Seen;

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
    /// How numbers come from those, in this order.
    pub derived: Vec<DerivedSpec>,
    /// How the figure is drawn; none: paper and ours, key by key.
    pub plots: Vec<PlotSpec>,
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
    /// Of several variants of one thing, such as `{flow.udt.cc}`, the one that the run is of: each
    /// has its own number, and one within the tolerance is enough.
    pub variant: Option<String>,
    /// A formula, see `expression`.
    pub value: String,
    /// Only of runs with these settings.
    #[serde(default)]
    pub only: BTreeMap<String, String>,
    #[serde(skip)]
    experiment: String,
}

/// A number made of others of the same variant.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DerivedSpec {
    /// Its key.
    pub key: String,
    /// A formula; `{KEY}` stands for another number. One without variant serves every variant.
    pub value: String,
}

/// A panel of the experiment's figure. With `x = "time"` the curves of the flows, else points of
/// runs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlotSpec {
    /// The scenario's file.
    #[serde(default = "scenario_file")]
    pub scenario: String,
    /// `time`, or a formula.
    pub x: String,
    /// With `time` one of `goodput`, `rate`, `cwnd`, `acked` and `rtt`, in bit/s, bytes or seconds; else a
    /// formula.
    pub y: String,
    /// What is divided by for the vertical axis.
    #[serde(default = "one")]
    pub unit: f64,
    /// Name of the series; `{PATH}` in it stands for a setting, `{flow}` for a flow's name.
    pub series: String,
    /// With `time`: which flows.
    #[serde(default = "all")]
    pub flows: String,
    /// Only runs with these settings.
    #[serde(default)]
    pub only: BTreeMap<String, String>,
    /// The horizontal axis.
    pub x_label: String,
    /// The vertical axis.
    pub y_label: String,
    /// Whether it is logarithmic.
    #[serde(default)]
    pub log_x: bool,
    /// Whether it is logarithmic.
    #[serde(default)]
    pub log_y: bool,
    /// Keys, `{PATH}` being settings, whose numbers in the paper are drawn too.
    pub paper: Option<String>,
    #[serde(skip)]
    pub(super) experiment: String,
}

fn one() -> f64 {
    1.0
}

fn all() -> String {
    "*".to_owned()
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
    #[serde(default)]
    derived: Vec<DerivedSpec>,
    #[serde(default)]
    plot: Vec<PlotSpec>,
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
        let mut plots = head.plot;
        let mut scenarios: Vec<(String, ScenarioFile)> = Vec::new();
        rows.iter_mut().for_each(|row| row.experiment = name.to_owned());
        plots.iter_mut().for_each(|plot| plot.experiment = name.to_owned());
        let wanted = rows.iter().map(|row| &row.scenario);
        for wanted in wanted.chain(plots.iter().map(|plot| &plot.scenario)) {
            if !scenarios.iter().any(|(known, _)| known == wanted) {
                let shown = format!("{name}/{wanted}");
                let scenario = ScenarioFile::parse(&shown, &text(wanted)?, &[])?;
                scenario.check()?;
                scenarios.push((wanted.clone(), scenario));
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
            derived: head.derived,
            plots,
            paper,
            expected: expected.unwrap_or_default(),
        })
    }
}

impl RowSpec {
    /// Key, variant and value of a run; none: it is not one of those meant.
    pub(super) fn apply(
        &self,
        seen: &Seen<'_>,
    ) -> Result<Option<(String, Option<String>, f64)>, ExperimentError> {
        if !meant(&self.only, seen.row) {
            return Ok(None);
        }
        let result = filled(&self.key, seen.row).and_then(|key| {
            let variant = self.variant.as_ref().map(|of| filled(of, seen.row)).transpose()?;
            let value = expression::value(&self.value, seen)?;
            Ok(Some((key, variant, value)))
        });
        result.map_err(|what| rule(&self.experiment, &self.scenario, seen.row, what))
    }
}

impl PlotSpec {
    /// An error in it, at a run.
    pub(super) fn error(&self, run: &RunRow, what: String) -> ExperimentError {
        rule(&self.experiment, &self.scenario, run, what)
    }
}

impl DerivedSpec {
    /// Whether it is made of the number `key`.
    pub(super) fn uses(&self, key: &str) -> bool {
        self.value.contains(&format!("{{{key}}}"))
    }

    /// Its value where `known` are the numbers of a variant; none: one of them is not there.
    pub(super) fn value(&self, known: &[(&str, f64)]) -> Result<Option<f64>, String> {
        let setting = |(key, value): &(&str, f64)| Setting {
            path: (*key).to_owned(),
            value: value.to_string(),
        };
        let settings: Vec<Setting> = known.iter().map(setting).collect();
        let keys = self.value.split('{').skip(1).filter_map(|part| part.split_once('}'));
        for (key, _) in keys {
            if !known.iter().any(|(name, _)| *name == key) {
                return Ok(None);
            }
        }
        let outcome = Outcome::default();
        let row = RunRow::new(&outcome, 0, settings);
        expression::value(&self.value, &Seen { row: &row, outcome: &outcome }).map(Some)
    }
}

fn rule(experiment: &str, scenario: &str, run: &RunRow, what: String) -> ExperimentError {
    let (experiment, scenario) = (experiment.to_owned(), scenario.to_owned());
    ExperimentError::Rule { experiment, scenario, run: run.run, what }
}

/// Whether a run has these settings.
pub(super) fn meant(only: &BTreeMap<String, String>, run: &RunRow) -> bool {
    only.iter()
        .all(|(path, value)| run.settings.iter().any(|s| s.path == *path && s.value == *value))
}

/// A text with the run's settings in place of `{PATH}`.
pub(super) fn filled(text: &str, run: &RunRow) -> Result<String, String> {
    let mut whole = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let (path, after) = after.split_once('}').ok_or("a `}` is missing in the key")?;
        let setting = run.settings.iter().find(|setting| setting.path == path);
        let setting = setting.ok_or_else(|| format!("the sweep does not vary `{path}`"))?;
        whole.push_str(before);
        whole.push_str(&setting.value);
        rest = after;
    }
    whole.push_str(rest);
    Ok(whole)
}

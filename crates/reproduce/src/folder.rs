//! The folder of an experiment: `experiment.toml`, scenarios, `paper.csv`, `expected.csv`.

use std::collections::BTreeMap;

use packtrain_sim::file::{FileError, ScenarioFile, Setting};
use packtrain_sim::outcome::Outcome;
use packtrain_sim::results::RunRow;
use packtrain_sim::sweep::RunError;
use serde::Deserialize;

use super::csv::{self, Expected, PaperRow, Spread};
use super::expression;
use super::group::RunContext;

/// An error in an experiment.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// No experiment has this name. The second field lists the names.
    #[error("there is no experiment `{0}`: known are {1}; a path names any other folder")]
    Unknown(String, String),
    /// A file is missing or invalid.
    #[error("{folder}/{file}: {what}")]
    Folder {
        /// The experiment.
        folder: String,
        /// The file in it.
        file: String,
        /// The error.
        what: String,
    },
    /// A scenario is invalid.
    #[error(transparent)]
    Scenario(#[from] FileError),
    /// A run failed.
    #[error(transparent)]
    Run(Box<RunError>),
    /// A rule of `experiment.toml` does not apply to a run.
    #[error("{experiment}/experiment.toml: run {run} of {scenario}: {what}")]
    Rule {
        /// The experiment.
        experiment: String,
        /// The scenario.
        scenario: String,
        /// The run.
        run: u64,
        /// The error.
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
    /// Whether it takes seconds.
    pub quick: bool,
    /// Why the simulator does not play it, and what wrote its numbers instead; none: it does.
    pub not_simulated: Option<String>,
    /// The variant that is meant, and alone is scored; none: the rows have no variants.
    pub scored: Option<String>,
    /// The tables and figures of papers that it plays.
    pub items: Vec<Item>,
    /// Patterns of the numbers that tests play again (`key` or `key @ variant`, `*` for any text);
    /// none: all numbers.
    pub check: Vec<String>,
    /// Patterns of the numbers whose spread is measured; none: all numbers.
    pub spread_of: Vec<String>,
    /// The quantity of the numbers, for the plot.
    pub label: String,
    /// The scenarios by file name.
    pub scenarios: Vec<(String, ScenarioFile)>,
    /// The rules that take numbers from runs.
    pub rows: Vec<RowSpec>,
    /// The rules that compute numbers from those, in this order.
    pub derived: Vec<DerivedSpec>,
    /// The panels of the figure; none: the paper's and the measured number of each key.
    pub plots: Vec<PlotSpec>,
    /// The paper's numbers.
    pub paper: Vec<PaperRow>,
    /// The stored measured numbers.
    pub expected: Vec<Expected>,
    /// Their spread over several seeds, if it was measured.
    pub spread: Vec<Spread>,
}

/// A table or figure of a paper that an experiment plays, for `docs/fidelity.md`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// The paper: `fobs`, `lsl`, `sabul`, `udt` or `streams`.
    pub paper: String,
    /// Such as `Table 1` or `Figure 13`.
    pub name: String,
    /// Pattern of the keys of `paper.csv` that belong to it; `*`: all.
    #[serde(default = "all")]
    pub keys: String,
    /// Our result in one clause, where no `paper.csv` gives it.
    pub ours: Option<String>,
    /// Whether it agrees, where no `paper.csv` gives it.
    pub agrees: Option<bool>,
    /// One sentence on what agrees or differs and why.
    pub says: String,
}

/// A rule that takes numbers from the runs of a scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowSpec {
    /// The scenario's file.
    #[serde(default = "scenario_file")]
    pub scenario: String,
    /// The key; `{PATH}` in it is replaced by a setting. Runs with the same key are averaged.
    pub key: String,
    /// The variant of the run, such as `{flow.udt.cc}`, if there are several. Each variant has its
    /// own number; that of `scored` counts.
    pub variant: Option<String>,
    /// A formula, see `expression`.
    pub value: String,
    /// A formula; the run gives the number only if this is above zero. A share of nothing is no
    /// number.
    pub needs: Option<String>,
    /// Applies only to runs with these settings.
    #[serde(default)]
    pub only: BTreeMap<String, String>,
    #[serde(skip)]
    experiment: String,
}

/// A number computed from others of the same variant.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DerivedSpec {
    /// Its key.
    pub key: String,
    /// A formula; `{KEY}` is replaced by another number. A number without variant is used for every
    /// variant.
    pub value: String,
}

/// A panel of the experiment's figure. With `x = "time"` it shows the curves of the flows,
/// otherwise points of runs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlotSpec {
    /// The scenario's file.
    #[serde(default = "scenario_file")]
    pub scenario: String,
    /// `time`, or a formula.
    pub x: String,
    /// With `time` one of `goodput`, `rate`, `cwnd`, `acked` and `rtt`, in bit/s, bytes or seconds;
    /// otherwise a formula.
    pub y: String,
    /// Divisor of the values of the vertical axis.
    #[serde(default = "one")]
    pub unit: f64,
    /// Name of the series; `{PATH}` in it is replaced by a setting, `{flow}` by a flow's name.
    pub series: String,
    /// With `time`: the flows.
    #[serde(default = "all")]
    pub flows: String,
    /// Only runs with these settings.
    #[serde(default)]
    pub only: BTreeMap<String, String>,
    /// Label of the horizontal axis.
    pub x_label: String,
    /// Label of the vertical axis.
    pub y_label: String,
    /// Whether the horizontal axis is logarithmic.
    #[serde(default)]
    pub log_x: bool,
    /// Whether the vertical axis is logarithmic.
    #[serde(default)]
    pub log_y: bool,
    /// Keys of the paper's numbers to draw, with `{PATH}` for settings.
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
    not_simulated: Option<String>,
    scored: Option<String>,
    #[serde(default)]
    item: Vec<Item>,
    #[serde(default)]
    check: Vec<String>,
    #[serde(default)]
    spread_of: Vec<String>,
    #[serde(default)]
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
        if head.row.is_empty() == head.not_simulated.is_none() {
            let what = "has either `[[row]]`s, or `not_simulated` with a reason";
            return Err(wrong("experiment.toml", what.to_owned()));
        }
        if head.scored.is_some() != head.row.iter().any(|row| row.variant.is_some()) {
            let what =
                "`scored` names the variant that is meant if, and only if, rows have variants";
            return Err(wrong("experiment.toml", what.to_owned()));
        }
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
        let simulated = head.not_simulated.is_none();
        let paper = match simulated {
            true => csv::paper(&text("paper.csv")?).map_err(|what| wrong("paper.csv", what))?,
            false => Vec::new(),
        };
        // A new experiment has no stored results yet; those of other programs have other columns.
        let expected = file("expected.csv").ok().filter(|_| simulated);
        let expected = expected.map(|text| csv::read_expected(&text));
        let expected = expected.transpose().map_err(|what| wrong("expected.csv", what))?;
        let spread = file("spread.csv").ok().map(|text| csv::read_spread(&text));
        let spread = spread.transpose().map_err(|what| wrong("spread.csv", what))?;
        let short = name.trim_end_matches('/').rsplit('/').next().unwrap_or(name).to_owned();
        Ok(Self {
            name: short,
            title: head.title,
            quick: head.quick,
            not_simulated: head.not_simulated,
            scored: head.scored,
            items: head.item,
            check: head.check,
            spread_of: head.spread_of,
            label: head.label,
            scenarios,
            rows,
            derived: head.derived,
            plots,
            paper,
            expected: expected.unwrap_or_default(),
            spread: spread.unwrap_or_default(),
        })
    }
}

impl RowSpec {
    /// Key, variant and value of a run; none: the rule does not apply to it.
    pub(super) fn apply(
        &self,
        context: &RunContext<'_>,
    ) -> Result<Option<(String, Option<String>, f64)>, ExperimentError> {
        let Some((key, variant)) = self.named(context.row)? else { return Ok(None) };
        let value = |formula: &str| {
            expression::value(formula, context)
                .map_err(|what| rule(&self.experiment, &self.scenario, context.row, what))
        };
        if let Some(needs) = &self.needs
            && value(needs)? <= 0.0
        {
            return Ok(None);
        }
        Ok(Some((key, variant, value(&self.value)?)))
    }

    /// Key and variant of a run, of which only number and settings are read; none: the rule does
    /// not apply to it.
    pub(super) fn named(
        &self,
        run: &RunRow,
    ) -> Result<Option<(String, Option<String>)>, ExperimentError> {
        if !meant(&self.only, run) {
            return Ok(None);
        }
        let result = filled(&self.key, run).and_then(|key| {
            let variant = self.variant.as_ref().map(|of| filled(of, run)).transpose()?;
            Ok(Some((key, variant)))
        });
        result.map_err(|what| rule(&self.experiment, &self.scenario, run, what))
    }
}

impl PlotSpec {
    /// An error in it, at a run.
    pub(super) fn error(&self, run: &RunRow, what: String) -> ExperimentError {
        rule(&self.experiment, &self.scenario, run, what)
    }
}

impl DerivedSpec {
    /// Whether it is computed from the number `key`.
    pub(super) fn uses(&self, key: &str) -> bool {
        self.inputs().any(|input| input == key)
    }

    /// The keys that it is computed from.
    pub(super) fn inputs(&self) -> impl Iterator<Item = &str> {
        self.value.split('{').skip(1).filter_map(|part| Some(part.split_once('}')?.0))
    }

    /// Its value, where `known` are the numbers of a variant; none: one is missing.
    pub(super) fn value(&self, known: &[(&str, f64)]) -> Result<Option<f64>, String> {
        let setting = |(key, value): &(&str, f64)| Setting {
            path: (*key).to_owned(),
            value: value.to_string(),
        };
        let settings: Vec<Setting> = known.iter().map(setting).collect();
        if self.inputs().any(|key| !known.iter().any(|(name, _)| *name == key)) {
            return Ok(None);
        }
        let outcome = Outcome::default();
        let row = RunRow::new(&outcome, 0, settings);
        expression::value(&self.value, &RunContext { row: &row, outcome: &outcome }).map(Some)
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

/// A text with `{PATH}` replaced by the run's settings.
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

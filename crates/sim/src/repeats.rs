//! What the repeats of one combination of a sweep have in common: medians, and how far they differ.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use crate::file::Setting;
use crate::results::{FlowRow, RunRow};

/// All repeats of a combination: the line `{"event":"repeats",...}`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RepeatsRow {
    /// `repeats`.
    pub event: &'static str,
    /// Number of the first run.
    pub first_run: u64,
    /// Number of runs.
    pub runs: u64,
    /// How many of them differ from all others, by their trace hash. One: nothing in the scenario
    /// is random, and the runs are one run.
    pub distinct: u64,
    /// The values of the combination.
    pub settings: Vec<Setting>,
    /// One row per flow.
    pub flows: Vec<FlowRepeats>,
}

/// A flow over all repeats.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowRepeats {
    /// Its name.
    pub name: String,
    /// Its controller, or the kind of cross traffic.
    pub cc: String,
    /// The numbers of [`FlowRow`] by their JSON names. A number that some runs do not have is that
    /// of the runs that have it.
    #[serde(flatten)]
    pub numbers: BTreeMap<String, Spread>,
}

/// The values of a number.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The middle value; of an even count the mean of the middle two.
    pub median: f64,
    /// The lowest value.
    pub min: f64,
    /// The highest value.
    pub max: f64,
}

impl Spread {
    /// Of `values`; `None` if there is none.
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Self { median: f64::midpoint(low, high), min, max })
    }
}

/// Most repeats of a combination that are kept for its medians. A row of a run has some kilobytes.
const MAX_REPEATS: u64 = 10_000;

/// Collects the runs of a sweep, in order, into the repeats of each combination.
#[derive(Debug)]
pub struct Repeats {
    repeat: u64,
    rows: Vec<RunRow>,
}

impl Repeats {
    /// For a sweep with `repeat` runs of each combination.
    pub fn new(repeat: u64) -> Self {
        Self { repeat, rows: Vec::new() }
    }

    /// Takes the next run. Returns the row of its combination if this was the last repeat of it and
    /// all others were taken: a part of a sweep may begin within a combination. More than 10,000
    /// repeats have no row.
    pub fn push(&mut self, row: &RunRow) -> Option<RepeatsRow> {
        if !(2..=MAX_REPEATS).contains(&self.repeat) {
            return None;
        }
        if row.run.is_multiple_of(self.repeat) {
            self.rows.clear();
        }
        self.rows.push(row.clone());
        if row.run % self.repeat != self.repeat - 1 || self.rows.len() as u64 != self.repeat {
            return None;
        }
        let rows = std::mem::take(&mut self.rows);
        let distinct: BTreeSet<&str> = rows.iter().map(|row| row.trace_hash.as_str()).collect();
        Some(RepeatsRow {
            event: "repeats",
            first_run: rows[0].run,
            runs: self.repeat,
            distinct: distinct.len() as u64,
            settings: rows[0].settings.clone(),
            flows: (0..rows[0].flows.len()).map(|flow| flow_repeats(&rows, flow)).collect(),
        })
    }
}

fn flow_repeats(rows: &[RunRow], flow: usize) -> FlowRepeats {
    let flows: Vec<&FlowRow> = rows.iter().filter_map(|row| row.flows.get(flow)).collect();
    let mut values: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for row in &flows {
        let Ok(Value::Object(fields)) = serde_json::to_value(row) else { continue };
        for (name, value) in fields {
            if let Some(number) = value.as_f64() {
                values.entry(name).or_default().push(number);
            }
        }
    }
    let spread = |(name, values)| Some((name, Spread::of(values)?));
    FlowRepeats {
        name: flows.first().map_or_else(String::new, |flow| flow.name.clone()),
        cc: flows.first().map_or_else(String::new, |flow| flow.cc.clone()),
        numbers: values.into_iter().filter_map(spread).collect(),
    }
}

#[cfg(test)]
mod tests {
    use packtrain_units::DataRate;

    use super::*;
    use crate::outcome::{FlowOutcome, Outcome};

    fn row(run: u64, mbps: u64, hash: &str) -> RunRow {
        let flow = FlowOutcome {
            name: "a".into(),
            goodput: DataRate::from_mbps(mbps),
            ..FlowOutcome::default()
        };
        let outcome = Outcome { flows: vec![flow], trace_hash: hash.into(), ..Outcome::default() };
        RunRow::new(&outcome, run, Vec::new())
    }

    #[test]
    fn a_combination_ends_with_the_medians_of_its_repeats() {
        let mut repeats = Repeats::new(3);
        assert_eq!(repeats.push(&row(0, 30, "x")), None);
        assert_eq!(repeats.push(&row(1, 10, "y")), None);
        let whole = repeats.push(&row(2, 20, "x")).expect("three of three");
        assert_eq!((whole.first_run, whole.runs, whole.distinct), (0, 3, 2));
        let spread = whole.flows[0].numbers["goodput_bps"];
        assert_eq!(spread, Spread { median: 20e6, min: 10e6, max: 30e6 });
        // A part of a sweep that begins within a combination has no medians of it.
        let mut repeats = Repeats::new(3);
        assert_eq!(repeats.push(&row(4, 1, "x")), None);
        assert_eq!(repeats.push(&row(5, 1, "x")), None);
        assert_eq!(repeats.push(&row(6, 1, "x")), None);
        let mut many = Repeats::new(MAX_REPEATS + 1);
        assert_eq!((many.push(&row(0, 1, "x")), many.rows.len()), (None, 0), "nothing is kept");
        assert_eq!(Repeats::new(1).push(&row(0, 1, "x")), None, "one run has no spread");
    }

    #[test]
    fn an_even_count_has_the_mean_of_the_middle() {
        let spread = Spread::of(vec![4.0, 1.0, 3.0, 100.0]).expect("four values");
        assert_eq!((spread.median, spread.min, spread.max), (3.5, 1.0, 100.0));
        assert_eq!(Spread::of(Vec::new()), None);
    }
}

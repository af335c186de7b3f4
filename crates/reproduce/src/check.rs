//! Whether an experiment still gives the numbers of its `expected.csv`.

use std::collections::{BTreeMap, BTreeSet};

use packtrain_sim::results::RunRow;
use serde::Serialize;

use super::cells::{Name, Part, shown};
use super::folder::{Experiment, ExperimentError};
use super::play::{Sum, play};

/// The largest relative difference of equal numbers. A run is the same on every machine; only the
/// last digits of logarithms and powers may differ.
const SAME: f64 = 1e-9;

/// The result of a check: the line `{"event":"checked",...}`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Checked {
    /// `checked`.
    pub event: &'static str,
    /// Name of the experiment.
    pub name: String,
    /// Whether numbers were compared and all are the same.
    pub ok: bool,
    /// Number of runs that were played.
    pub runs: u64,
    /// Number of compared numbers.
    pub compared: usize,
    /// The numbers that differ.
    pub changed: Vec<Changed>,
}

/// A number that is not that of `expected.csv`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Changed {
    /// Its key there: `key`, or `key @ variant`.
    pub key: String,
    /// The number there; none: it is not there.
    pub expected: Option<f64>,
    /// The number that the runs gave; none: they gave none.
    pub ours: Option<f64>,
}

/// Plays a part of an experiment with `jobs` threads, and compares all numbers that the played runs
/// determine with `expected.csv`. `on_run` is called for each run.
///
/// # Errors
/// A scenario is invalid or a run fails, or a row requires a number that no run has.
pub fn check(
    experiment: &Experiment,
    part: Part,
    jobs: usize,
    on_run: &mut impl FnMut(&RunRow),
) -> Result<Checked, ExperimentError> {
    let cells = experiment.cells(part)?;
    let mut played = play(experiment, &cells, 0, jobs, on_run)?;
    let incomplete = incomplete(experiment, &played.sums)?;
    played.sums.retain(|(key, variant, ..)| !incomplete.contains(&(key.clone(), variant.clone())));
    let is_whole = part == Part::Whole || experiment.check.is_empty();
    Ok(compared(experiment, &played.sums, is_whole, cells.len() as u64))
}

/// The numbers of which some runs were not played, and those derived from them.
fn incomplete(experiment: &Experiment, sums: &[Sum]) -> Result<BTreeSet<Name>, ExperimentError> {
    let counts = experiment.counts()?;
    let name = |sum: &Sum| (sum.0.clone(), sum.1.clone());
    let mut incomplete: BTreeSet<Name> = sums
        .iter()
        .filter(|sum| counts.get(&name(sum)).is_some_and(|count| *count != sum.3))
        .map(name)
        .collect();
    for sum in sums.iter().filter(|sum| !counts.contains_key(&name(sum))) {
        let specs = experiment.derived.iter().filter(|spec| spec.key == sum.0);
        let inputs = specs.flat_map(|spec| spec.inputs());
        let of = |input: &str, variant| incomplete.contains(&(input.to_owned(), variant));
        let mut inputs = inputs.map(|input| of(input, sum.1.clone()) || of(input, None));
        if inputs.any(|is| is) {
            incomplete.insert(name(sum));
        }
    }
    Ok(incomplete)
}

fn compared(experiment: &Experiment, sums: &[Sum], is_whole: bool, runs: u64) -> Checked {
    let kept: BTreeMap<_, _> =
        experiment.expected.iter().map(|row| (row.key.as_str(), row.ours)).collect();
    let mut changed = Vec::new();
    let mut seen = BTreeSet::new();
    for (key, variant, sum, count) in sums {
        if !experiment.paper.iter().any(|paper| paper.key == *key) {
            continue;
        }
        let (key, ours) = (shown(key, variant.as_deref()), sum / f64::from(*count));
        let expected = kept.get(key.as_str()).copied();
        if !expected.is_some_and(|kept| (ours - kept).abs() <= SAME * kept.abs()) {
            changed.push(Changed { key: key.clone(), expected, ours: Some(ours) });
        }
        seen.insert(key);
    }
    if is_whole {
        let missing = kept.iter().filter(|(key, _)| !seen.contains(**key));
        changed.extend(missing.map(|(key, kept)| Changed {
            key: (*key).to_owned(),
            expected: Some(*kept),
            ours: None,
        }));
    }
    let (event, name, compared) = ("checked", experiment.name.clone(), seen.len());
    let ok = compared > 0 && changed.is_empty();
    Checked { event, name, ok, runs, compared, changed }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One number per rate, and their ratio; `expected` is the content of `expected.csv`.
    fn experiment(check: &str, expected: &str) -> Experiment {
        let expected = format!("key,ours,seed\n{expected}");
        let files = |name: &str| match name {
            "experiment.toml" => Ok(format!(
                "title = \"t\"\n{check}\n[[row]]\nkey = \"{{link.a-b.rate}}\"\n\
                 value = \"{{link.a-b.rate}} / 1e6\"\n\
                 [[derived]]\nkey = \"ratio\"\nvalue = \"{{3mbit}} / {{1mbit}}\"\n"
            )),
            "scenario.toml" => Ok("duration = \"100ms\"\n[[link]]\nfrom = \"a\"\nto = \"b\"\n\
                rate = \"1mbit\"\ndelay = \"1ms\"\n[[flow]]\nfrom = \"a\"\nto = \"b\"\n[sweep]\n\
                \"link.a-b.rate\" = [\"1mbit\", \"2mbit\", \"3mbit\"]\n"
                .to_owned()),
            "paper.csv" => {
                Ok("key,value,tolerance,source\n1mbit,1,1,\n2mbit,2,1,\nratio,3,1,\n".to_owned())
            }
            "expected.csv" => Ok(expected.clone()),
            _ => Err("is missing".to_owned()),
        };
        Experiment::read("new", &files).unwrap_or_else(|error| panic!("{error}"))
    }

    fn checked(check_line: &str, expected: &str, part: Part) -> Checked {
        let experiment = experiment(check_line, expected);
        check(&experiment, part, 1, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn the_same_numbers_pass_and_a_changed_one_is_listed() {
        let whole = checked("", "1mbit,1,1\n2mbit,2,1\nratio,3,1\n", Part::Whole);
        assert!(whole.ok && whole.runs == 3 && whole.compared == 3, "{whole:?}");
        let changed = checked("", "1mbit,1,1\n2mbit,2.00000001,1\nratio,3,1\n", Part::Whole);
        let row = |key: &str, expected, ours| Changed { key: key.into(), expected, ours };
        assert!(!changed.ok);
        assert_eq!(changed.changed, [row("2mbit", Some(2.000_000_01), Some(2.0))]);
    }

    #[test]
    fn missing_and_stale_numbers_are_listed() {
        let result = checked("", "1mbit,1,1\nratio,3,1\nold,9,1\n", Part::Whole);
        let keys: Vec<_> = result.changed.iter().map(|changed| changed.key.as_str()).collect();
        assert_eq!(keys, ["2mbit", "old"]);
        let nothing = checked("", "", Part::Whole);
        assert!(!nothing.ok && nothing.changed.len() == 3);
    }

    #[test]
    fn key_cells_play_and_compare_only_what_they_determine() {
        // The second number is wrong, and not played.
        let kept = "1mbit,1,1\n2mbit,7,1\nratio,3,1\n";
        let result = checked("check = [\"ratio\"]", kept, Part::KeyCells);
        assert!(result.ok && result.runs == 2 && result.compared == 2, "{result:?}");
        let whole = checked("check = [\"ratio\"]", kept, Part::Whole);
        assert!(!whole.ok && whole.runs == 3);
    }
}

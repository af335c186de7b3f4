//! Which runs of an experiment give which numbers, known from the settings of the runs alone.

use std::collections::{BTreeMap, BTreeSet};

use packtrain_sim::outcome::Outcome;
use packtrain_sim::results::RunRow;

use super::VARIANT;
use super::folder::{Experiment, ExperimentError};

/// The part of an experiment that is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The runs that the numbers named by `check` in `experiment.toml` need; all, if it names none.
    KeyCells,
    /// The runs that the numbers named by `spread_of` need; all, if it names none.
    Spread,
    /// All runs.
    Whole,
}

/// A run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Index of its scenario in the experiment.
    pub(super) scenario: usize,
    /// Its number in the sweep.
    pub(super) number: u64,
}

/// Key and variant of a number.
pub(super) type Name = (String, Option<String>);

/// The text of a name in `expected.csv`.
pub(super) fn shown(key: &str, variant: Option<&str>) -> String {
    match variant {
        Some(variant) => format!("{key}{VARIANT}{variant}"),
        None => key.to_owned(),
    }
}

/// Whether `text` fits `pattern`, in which `*` stands for any text.
pub(super) fn fits(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = text.find(part) else { return false };
        text = &text[at + part.len()..];
    }
    text.ends_with(last)
}

/// Whether `pattern` means this number; without a variant it means all variants.
fn means(pattern: &str, key: &str, variant: Option<&str>) -> bool {
    fits(pattern, key) || fits(pattern, &shown(key, variant))
}

impl Experiment {
    /// Number of runs of a part.
    ///
    /// # Errors
    /// A key names a setting that its sweep does not vary, or a pattern of `check` or `spread_of` fits no
    /// number.
    pub fn runs(&self, part: Part) -> Result<u64, ExperimentError> {
        Ok(self.cells(part)?.len() as u64)
    }

    /// The runs of a part, in the order of the scenarios.
    pub(super) fn cells(&self, part: Part) -> Result<Vec<Run>, ExperimentError> {
        let wanted = match part {
            Part::KeyCells if !self.check.is_empty() => Some(self.wanted("check", &self.check)?),
            Part::Spread if !self.spread_of.is_empty() => {
                Some(self.wanted("spread_of", &self.spread_of)?)
            }
            _ => None,
        };
        let mut cells = Vec::new();
        for (run, names) in self.givers()? {
            let needed =
                wanted.as_ref().is_none_or(|wanted| names.iter().any(|n| wanted.contains(n)));
            // A run that gives no number may still be drawn.
            if needed || (wanted.is_none() && names.is_empty()) {
                cells.push(run);
            }
        }
        Ok(cells)
    }

    /// How many runs each number is the mean of.
    pub(super) fn counts(&self) -> Result<BTreeMap<Name, u32>, ExperimentError> {
        let mut counts = BTreeMap::new();
        for name in self.givers()?.into_iter().flat_map(|(_, names)| names) {
            *counts.entry(name).or_default() += 1;
        }
        Ok(counts)
    }

    /// Each run with the numbers that it gives.
    fn givers(&self) -> Result<Vec<(Run, Vec<Name>)>, ExperimentError> {
        let mut givers = Vec::new();
        for (scenario, (file_name, file)) in self.scenarios.iter().enumerate() {
            for number in 0..file.runs() {
                let row = RunRow::new(&Outcome::default(), number, file.settings(number));
                let rules = self.rows.iter().filter(|rule| rule.scenario == *file_name);
                let mut names = Vec::new();
                for rule in rules {
                    names.extend(rule.named(&row)?);
                }
                givers.push((Run { scenario, number }, names));
            }
        }
        Ok(givers)
    }

    /// Whether the spread of this number is wanted.
    pub(super) fn is_spread(&self, key: &str, variant: Option<&str>) -> bool {
        let patterns = &self.spread_of;
        patterns.is_empty() || patterns.iter().any(|pattern| means(pattern, key, variant))
    }

    /// The numbers that the patterns of `list` name, with those that they are derived from.
    fn wanted(&self, list: &str, patterns: &[String]) -> Result<BTreeSet<Name>, ExperimentError> {
        let given: BTreeSet<Name> = self.counts()?.into_keys().collect();
        let mut variants: BTreeSet<Option<String>> =
            given.iter().map(|name| name.1.clone()).collect();
        variants.insert(None);
        let mut wanted = BTreeSet::new();
        for pattern in patterns {
            let before = wanted.len();
            let named = given.iter().filter(|(key, of)| means(pattern, key, of.as_deref()));
            wanted.extend(named.cloned());
            for spec in &self.derived {
                let named = variants.iter().filter(|of| means(pattern, &spec.key, of.as_deref()));
                for variant in named {
                    self.inputs_of(&spec.key, variant, &given, &mut wanted);
                }
            }
            if wanted.len() == before {
                return Err(ExperimentError::Folder {
                    folder: self.name.clone(),
                    file: "experiment.toml".to_owned(),
                    what: format!("{list}: `{pattern}` fits no number, or none that is new"),
                });
            }
        }
        Ok(wanted)
    }

    /// Adds the given numbers that a derived one needs. Only earlier ones are its inputs, so the
    /// recursion ends.
    fn inputs_of(
        &self,
        key: &str,
        variant: &Option<String>,
        given: &BTreeSet<Name>,
        wanted: &mut BTreeSet<Name>,
    ) {
        let Some(at) = self.derived.iter().position(|spec| spec.key == key) else { return };
        for input in self.derived[at].inputs() {
            for of in [variant.clone(), None] {
                let name = (input.to_owned(), of);
                if given.contains(&name) {
                    wanted.insert(name);
                }
            }
            if self.derived[..at].iter().any(|spec| spec.key == input) {
                self.inputs_of(input, variant, given, wanted);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, text, is) in [
            ("a b", "a b", true),
            ("a b", "a b c", false),
            ("a*", "a b", true),
            ("*b", "a b", true),
            ("*", "", true),
            ("a*b*c", "a x b y c", true),
            ("a*b*c", "a c b", false),
            ("aa*aa", "aaa", false),
            ("* @ v", "k @ v", true),
            ("* @ v", "k @ v2", false),
        ] {
            assert_eq!(fits(pattern, text), is, "{pattern} {text}");
        }
    }

    #[test]
    fn a_derived_number_needs_the_runs_of_its_inputs() {
        let files = |name: &str| match name {
            "experiment.toml" => Ok("title = \"t\"\ncheck = [\"ratio\"]\n\
                [[row]]\nkey = \"{link.a-b.rate}\"\nvalue = \"1\"\n\
                [[derived]]\nkey = \"sum\"\nvalue = \"{1mbit} + {2mbit}\"\n\
                [[derived]]\nkey = \"ratio\"\nvalue = \"{sum} / {4mbit}\"\n"
                .to_owned()),
            "scenario.toml" => {
                Ok("duration = \"1s\"\n[[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"1mbit\"\n\
                delay = \"1ms\"\n[[flow]]\nfrom = \"a\"\nto = \"b\"\n[sweep]\nrepeat = 2\n\
                \"link.a-b.rate\" = [\"1mbit\", \"2mbit\", \"3mbit\", \"4mbit\"]\n"
                    .to_owned())
            }
            "paper.csv" => Ok("key,value,tolerance,source\nratio,1,1,\n".to_owned()),
            _ => Err("is missing".to_owned()),
        };
        let experiment = Experiment::read("new", &files).unwrap_or_else(|e| panic!("{e}"));
        let runs = experiment.cells(Part::KeyCells).unwrap_or_else(|e| panic!("{e}"));
        let numbers: Vec<_> = runs.iter().map(|run| run.number).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 6, 7]);
        assert_eq!(experiment.runs(Part::Whole).ok(), Some(8));
        let experiment = Experiment { check: vec!["nothing*".into()], ..experiment };
        let error = experiment.cells(Part::KeyCells).expect_err("it fits nothing").to_string();
        assert!(error.contains("`nothing*` fits no number"), "{error}");
    }
}

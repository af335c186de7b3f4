//! Plays the runs of an experiment and takes its numbers from them.

use packtrain_sim::results::RunRow;
use packtrain_sim::sweep::{in_order_of, one};

use super::cells::{Part, Run};
use super::folder::{Experiment, ExperimentError};
use super::group::RunContext;
use super::{Found, Reproduced, Row, figure};

/// A number: key, variant, sum over the runs that give it, and their count.
pub(super) type Sum = (String, Option<String>, f64, u32);

/// What the runs gave.
pub(super) struct Played {
    /// The numbers, those derived from others last.
    pub(super) sums: Vec<Sum>,
    /// The panels of the figure.
    pub(super) panels: Vec<crate::plot::Panel>,
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
    let played = play(experiment, &experiment.cells(Part::Whole)?, 0, jobs, on_run)?;
    let rows = experiment.paper.iter().map(|paper| {
        let own = played.sums.iter().filter(|(key, ..)| *key == paper.key);
        let found = own.map(|(_, variant, sum, count)| Found {
            variant: variant.clone(),
            ours: sum / f64::from(*count),
        });
        Row::new(paper, found.collect(), experiment.scored.as_deref())
    });
    let mut result = Reproduced::of(experiment, rows.collect());
    result.panels = played.panels;
    Ok(result)
}

/// Plays `runs`; the seed of each is higher by `round` times the repetitions of its scenario. After
/// the first round, flows start later by the sweep's `start_jitter`, as in repetitions.
pub(super) fn play(
    experiment: &Experiment,
    runs: &[Run],
    round: u64,
    jobs: usize,
    on_run: &mut impl FnMut(&RunRow),
) -> Result<Played, ExperimentError> {
    let mut sums: Vec<Sum> = Vec::new();
    let mut sketch = figure::Sketch::new(experiment);
    let mut failed = None;
    let make = |at: u64| {
        let run = runs[at as usize];
        let (_, file) = &experiment.scenarios[run.scenario];
        let shift = round * file.repeat();
        let outcome = one(file, run.number, &|scenario| {
            scenario.seed = scenario.seed.wrapping_add(shift);
            if round > 0 {
                file.delay_starts(run.number, scenario);
            }
        });
        (run, outcome)
    };
    in_order_of(runs.len() as u64, jobs, &make, &mut |(run, outcome)| {
        let taken = outcome.map_err(ExperimentError::from).and_then(|outcome| {
            let (name, file) = &experiment.scenarios[run.scenario];
            let row = RunRow::new(&outcome, run.number, file.settings(run.number));
            let context = RunContext { row: &row, outcome: &outcome };
            for rule in experiment.rows.iter().filter(|rule| rule.scenario == *name) {
                if let Some((key, variant, value)) = rule.apply(&context)? {
                    add(&mut sums, key, variant, value);
                }
            }
            sketch.add(name, &context)?;
            on_run(&row);
            Ok(())
        });
        failed = taken.err();
        failed.is_none()
    });
    match failed {
        Some(error) => Err(error),
        None => Ok(Played { sums, panels: sketch.panels() }),
    }
    .and_then(|mut played| {
        derive(experiment, &mut played.sums)?;
        Ok(played)
    })
}

fn add(sums: &mut Vec<Sum>, key: String, variant: Option<String>, value: f64) {
    match sums.iter_mut().find(|sum| sum.0 == key && sum.1 == variant) {
        Some(sum) => (sum.2, sum.3) = (sum.2 + value, sum.3 + 1),
        None => sums.push((key, variant, value, 1)),
    }
}

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

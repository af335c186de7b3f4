//! Runs many scenarios on all cores, and reports them in the order of the sweep.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

use crate::error::SimError;
use crate::file::{FileError, ScenarioFile};
use crate::outcome::Outcome;
use crate::spec::Scenario;

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The scenario file is invalid.
    #[error(transparent)]
    File(#[from] FileError),
    /// The scenario cannot be run.
    #[error("{file}: {error}")]
    Sim {
        /// Name of the file.
        file: String,
        /// The simulator's error.
        error: SimError,
    },
}

/// Runs the runs `range` of a file with `jobs` threads. `adapt` may change each scenario before it
/// runs. `report` receives number and outcome of each, in order, and stops the sweep by returning
/// `false`.
///
/// # Errors
/// The first run, by number, that failed; those before it were reported.
pub fn sweep(
    file: &ScenarioFile,
    range: Range<u64>,
    jobs: usize,
    adapt: &(impl Fn(&mut Scenario) + Sync),
    report: &mut impl FnMut(u64, Outcome) -> bool,
) -> Result<(), RunError> {
    let next = AtomicU64::new(range.start);
    let stop = AtomicBool::new(false);
    let runs = range.end.saturating_sub(range.start);
    let jobs = u64::try_from(jobs).unwrap_or(1).clamp(1, runs.max(1));
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::sync_channel(64);
        for _ in 0..jobs {
            let (sender, next, stop) = (sender.clone(), &next, &stop);
            let end = range.end;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let run = next.fetch_add(1, Ordering::Relaxed);
                    if run >= end || sender.send((run, one(file, run, adapt))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let result = in_order(range.start, receiver.iter(), report);
        stop.store(true, Ordering::Relaxed);
        // Threads that wait to send end when the receiver is dropped.
        drop(receiver);
        result
    })
}

/// Runs one run.
///
/// # Errors
/// The scenario is invalid.
pub fn one(
    file: &ScenarioFile,
    run: u64,
    adapt: &impl Fn(&mut Scenario),
) -> Result<Outcome, RunError> {
    let mut scenario = file.scenario(run)?;
    adapt(&mut scenario);
    crate::run(&scenario, &mut |_| {})
        .map_err(|error| RunError::Sim { file: file.name().to_owned(), error })
}

/// Makes `count` items with `jobs` threads and passes them to `report` in order, until it returns
/// false.
pub fn in_order_of<T: Send>(
    count: u64,
    jobs: usize,
    make: &(impl Fn(u64) -> T + Sync),
    report: &mut impl FnMut(T) -> bool,
) {
    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::sync_channel(64);
        for _ in 0..jobs.max(1) {
            let (sender, next, stop) = (sender.clone(), &next, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= count || sender.send((i, make(i))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let (mut due, mut waiting) = (0, BTreeMap::new());
        'all: for (i, made) in receiver.iter() {
            waiting.insert(i, made);
            while let Some(made) = waiting.remove(&due) {
                if !report(made) {
                    break 'all;
                }
                due += 1;
            }
        }
        stop.store(true, Ordering::Relaxed);
        drop(receiver);
    });
}

fn in_order(
    first: u64,
    results: impl Iterator<Item = (u64, Result<Outcome, RunError>)>,
    report: &mut impl FnMut(u64, Outcome) -> bool,
) -> Result<(), RunError> {
    let (mut due, mut waiting) = (first, BTreeMap::new());
    for (run, result) in results {
        waiting.insert(run, result);
        while let Some(result) = waiting.remove(&due) {
            if !report(due, result?) {
                return Ok(());
            }
            due += 1;
        }
    }
    Ok(())
}

/// The runs of task `task` of `tasks` when `runs` are divided evenly, in order.
pub fn share(runs: u64, task: u64, tasks: u64) -> Range<u64> {
    let at = |task: u64| {
        let part = u128::from(runs) * u128::from(task) / u128::from(tasks.max(1));
        u64::try_from(part).unwrap_or(u64::MAX)
    };
    at(task.min(tasks))..at((task + 1).min(tasks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_every_run_once() {
        for (runs, tasks) in [(1, 1), (10, 3), (3, 10), (1 << 50, 1_000), (0, 5)] {
            let mut end = 0;
            for task in 0..tasks {
                let share = share(runs, task, tasks);
                assert_eq!(share.start, end, "{runs} {tasks} {task}");
                end = share.end;
            }
            assert_eq!(end, runs);
        }
        assert!(share(10, 7, 3).is_empty());
    }

    #[test]
    fn results_are_told_in_order() {
        let mut seen = Vec::new();
        let results = [2u64, 0, 1, 3].map(|run| (run, Ok(Outcome::default())));
        in_order(0, results.into_iter(), &mut |run, _| {
            seen.push(run);
            true
        })
        .expect("none failed");
        assert_eq!(seen, [0, 1, 2, 3]);
    }
}

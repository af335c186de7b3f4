//! Checks that the results in `experiments/parallel-streams-*` and ADR 0022 can be reproduced.

mod study;

use std::path::Path;

use study::Row;

fn data() -> Vec<study::Curve> {
    study::curves(&file("data/parallel-streams/loni.csv"))
}

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    std::fs::read_to_string(path).expect("in the repository")
}

/// Compares with the stored numbers.
fn same(rows: &[Row], folder: &str) {
    let expected = file(&format!("experiments/{folder}/expected.csv"));
    for row in rows {
        let line = expected
            .lines()
            .find(|line| line.rsplit_once(',').is_some_and(|(key, _)| key == row.key()));
        let (_, value) = line.and_then(|line| line.rsplit_once(',')).expect("written down");
        let value: f64 = value.parse().expect("a number");
        let near = (row.value - value).abs() <= 1e-6 * value.abs().max(1e-3);
        assert!(near, "{folder}: {} is {}, and was {value}", row.key(), row.value);
    }
}

#[test]
fn predictability_and_errors_are_those_written_down() {
    let curves = data();
    assert_eq!(curves.len(), 989);
    same(&study::predictability(&curves), "parallel-streams-predictability");
    same(&study::errors(&curves), "parallel-streams-errors");
}

#[test]
fn what_models_make_of_the_emulators_curves_is_as_written_down() {
    let curves = study::ways(&file("experiments/parallel-streams-emulator/runs.csv"));
    assert!(curves.iter().all(|curve| curve.len() == 15));
    same(&study::emulated(&curves), "parallel-streams-emulator");
}

/// On every 25th curve; `expected.csv` has all.
#[test]
fn the_combined_prediction_is_as_good_as_it_is_said_to_be() {
    let curves = data();
    let value = |rows: &[Row], what: &str, model: &str| {
        let own = |row: &&Row| row.what == what && row.model == model;
        rows.iter().find(own).expect("a row").value
    };
    let rows = study::left_out(&curves, 25);
    let error = value(&rows, "left out, median error in per cent", "combined");
    assert!(error <= 4.9, "{error}");
    assert_eq!(value(&rows, "left out, without an answer", "combined"), 0.0);
    let rows = study::doubling(&curves, 25);
    let share = value(&rows, "share of the best, 4 samples", "combined");
    assert!(share >= 0.98, "{share}");
}

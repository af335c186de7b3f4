//! The key cells of every simulated experiment, as `packtrain sim reproduce --all --check` plays
//! them. All runs are played by night, with `--whole`.

use packtrain_reproduce::{Part, check, find, names};

#[test]
fn key_cells_are_those_of_expected_csv() {
    let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut failed = Vec::new();
    for name in names() {
        let experiment = find(name).unwrap_or_else(|error| panic!("{error}"));
        if let Some(reason) = &experiment.not_simulated {
            eprintln!("{name}: not simulated: {reason}");
            continue;
        }
        let result = check(&experiment, Part::KeyCells, jobs, &mut |_| {})
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let (runs, compared) = (result.runs, result.compared);
        eprintln!("{name}: {compared} numbers of {runs} runs");
        if !result.ok {
            eprintln!("{name}: {:#?}", result.changed);
            failed.push(name);
        }
    }
    assert!(
        failed.is_empty(),
        "{failed:?}: numbers are not those of expected.csv, see above; if that is as it should be, \
         run `packtrain sim reproduce experiments/NAME --out experiments/NAME` with a release \
         build, and read the explanation in its README again"
    );
}

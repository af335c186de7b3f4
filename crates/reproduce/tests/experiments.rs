//! The quick experiments, as `packtrain sim reproduce --all --quick` runs them.

use packtrain_reproduce::{find, names, reproduce};

#[test]
fn quick_experiments_agree_with_their_papers() {
    let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    for name in names() {
        let experiment = find(name).unwrap_or_else(|error| panic!("{error}"));
        if !experiment.quick {
            continue;
        }
        let result = reproduce(&experiment, jobs, &mut |_| {}).unwrap_or_else(|e| panic!("{e}"));
        for row in result.rows.iter().filter(|row| !row.ok()) {
            eprintln!("{name}: {row:?}");
        }
        assert!(result.ok, "{name}: outside tolerance, see above");
        let changed = result.changed(&experiment);
        assert!(
            changed.is_empty(),
            "{name}: {} numbers are not those of expected.csv, such as {}: if that is as it \
             should be, run `packtrain sim reproduce experiments/{name} --out experiments/{name}`",
            changed.len(),
            changed[0]
        );
    }
}

//! The cells of the experiment as scenarios.

use std::path::{Path, PathBuf};

use packtrain_sim::file::ScenarioFile;
use packtrain_sim::outcome::Outcome;
use packtrain_sim::run;
use packtrain_sim::spec::Scenario;

/// One cell.
#[derive(Debug)]
pub(crate) struct Cell {
    /// As in `cells.csv` and `ns2.csv`.
    pub(crate) key: String,
    /// It takes at most a second.
    pub(crate) quick: bool,
    /// Maximum relative difference of the throughput.
    pub(crate) tolerance: f64,
    pub(crate) scenario: Scenario,
}

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/tcp-validity")
}

/// The lines of a table without its heading.
pub(crate) fn rows(file: &str) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(folder().join(file)).unwrap();
    text.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

/// All cells: the lines of `cells.csv`, as `scenario.toml` runs them.
pub(crate) fn cells() -> Vec<Cell> {
    let file = ScenarioFile::load(&folder().join("scenario.toml"), &[]).unwrap();
    let rows = rows("cells.csv");
    assert_eq!(
        rows.len() as u64 * file.repeat(),
        file.runs(),
        "tables.sh makes one from the other"
    );
    let cell = |(run, row): (usize, Vec<String>)| {
        let scenario = file.scenario(run as u64 * file.repeat()).unwrap();
        assert_eq!(scenario.title, row[0], "tables.sh makes one from the other");
        let percent: f64 = row[9].trim_end_matches('%').parse().unwrap();
        let (quick, tolerance) = (row[8] == "yes", percent / 100.0);
        Cell { key: row[0].clone(), quick, tolerance, scenario }
    };
    rows.into_iter().enumerate().map(cell).collect()
}

pub(crate) fn play(scenario: &Scenario) -> Outcome {
    run(scenario, &mut |_| {}).unwrap_or_else(|error| panic!("{}: {error}", scenario.title))
}

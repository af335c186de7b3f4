//! The comparisons of "Prediction of Optimal Parallelism Level in Wide Area Data Transfers" on
//! real transfers: `experiments/parallel-streams-*`.
//!
//!     parallel_streams predictability|errors|doubling --data data/parallel-streams/loni.csv \
//!         --out experiments/parallel-streams-predictability
//!
//!     parallel_streams emulator|turnaround --data experiments/parallel-streams-emulator/runs.csv \
//!         --out experiments/parallel-streams-emulator
//!
//! Each writes `expected.csv` and `plot.svg` into its folder, and its table into the README.md
//! there, between two remarks.
#![allow(clippy::print_stdout)]

mod draw;
#[path = "../../tests/parallel_streams/study.rs"]
mod study;
mod turnaround;

use std::path::{Path, PathBuf};

type Failure = Box<dyn std::error::Error>;

/// The markers of the generated part of a README.md.
const BEGIN: &str = "<!-- numbers: written by the example parallel_streams -->";
const END: &str = "<!-- end of numbers -->";

fn main() -> Result<(), Failure> {
    let mut words = std::env::args().skip(1);
    let what =
        words.next().ok_or("say predictability, errors, doubling, emulator or turnaround")?;
    let (mut data, mut out) = (PathBuf::new(), PathBuf::from("."));
    while let Some(word) = words.next() {
        let value = words.next().ok_or("a flag needs a value")?;
        match word.as_str() {
            "--data" => data = value.into(),
            "--out" => out = value.into(),
            other => return Err(format!("what is {other}?").into()),
        }
    }
    let text = std::fs::read_to_string(&data)?;
    if what == "turnaround" {
        let runs = turnaround::Runs::read(&text)?;
        runs.figure().write(&out.join("plot.svg"))?;
        println!("{}", runs.table());
        return splice(&out.join("README.md"), &runs.table());
    }
    let curves = if what == "emulator" { study::ways(&text) } else { study::curves(&text) };
    let (rows, figure) = match what.as_str() {
        "emulator" => (study::emulated(&curves), draw::emulated(&curves)),
        "predictability" => {
            let rows = study::predictability(&curves);
            let figure = draw::predictability(&rows);
            (rows, figure)
        }
        "errors" => {
            let mut rows = study::errors(&curves);
            rows.extend(study::left_out(&curves, 1));
            let figure = draw::errors(&rows);
            (rows, figure)
        }
        "doubling" => {
            let rows = study::doubling(&curves, 1);
            let figure = draw::doubling(&rows, &curves);
            (rows, figure)
        }
        other => return Err(format!("no experiment is called {other}").into()),
    };
    let mut csv = "key,ours\n".to_owned();
    rows.iter().for_each(|row| csv.push_str(&format!("{},{}\n", row.key(), row.value)));
    std::fs::write(out.join("expected.csv"), csv)?;
    figure.write(&out.join("plot.svg"))?;
    let text = draw::table(&rows);
    println!("{text}");
    splice(&out.join("README.md"), &text)
}

/// Inserts the table between the markers of a README.md.
fn splice(path: &Path, text: &str) -> Result<(), Failure> {
    let old = std::fs::read_to_string(path)?;
    let (Some(begin), Some(end)) = (old.find(BEGIN), old.find(END)) else {
        return Err(format!("{}: the two remarks are not there", path.display()).into());
    };
    let new = format!("{}\n{text}\n{}", &old[..begin + BEGIN.len()], &old[end..]);
    Ok(std::fs::write(path, new)?)
}

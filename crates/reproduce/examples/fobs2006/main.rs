//! The experiments on the classifier of the FOBS paper and on this project's:
//! `experiments/fobs-2006-*`.
//!
//!     fobs2006 classifier --out experiments/fobs-2006-classifier simulated=test-97656.jsonl.gz real=real-test.jsonl.gz
//!     fobs2006 table1 --out experiments/fobs-2006-table1 low=FILE middle=FILE high=FILE
//!     fobs2006 table2 --out experiments/fobs-2006-table2 paper=FILE others=FILE
//!
//! `--model FILE` takes another model than the one built in. Each writes its numbers as CSV, a
//! plot, and tables into the README.md of its folder, between two remarks.
#![allow(clippy::print_stdout)]

mod direct;
mod figure;
mod judge;
mod tables;

use std::fs::File;
use std::path::{Path, PathBuf};

use packtrain_loss::{Labelled, Model, read};

type Failure = Box<dyn std::error::Error>;

/// The markers of the generated part of a README.md.
const BEGIN: &str = "<!-- numbers: written by the example fobs2006 -->";
const END: &str = "<!-- end of numbers -->";

struct Args {
    out: PathBuf,
    model: Option<PathBuf>,
    /// Number of windows that drive the virtual sender; the measured ones are drawn repeatedly.
    windows: usize,
    /// File name of the plot, .svg or .png.
    plot: String,
    files: Vec<(String, PathBuf)>,
}

fn main() -> Result<(), Failure> {
    let mut words = std::env::args().skip(1);
    let what = words.next().ok_or("say classifier, table1 or table2")?;
    let mut args = Args {
        out: ".".into(),
        model: None,
        windows: 18_000,
        plot: "plot.svg".to_owned(),
        files: Vec::new(),
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or("a flag needs a value");
        match word.as_str() {
            "--out" => args.out = value()?.into(),
            "--model" => args.model = Some(value()?.into()),
            "--plot" => args.plot = value()?,
            "--windows" => args.windows = value()?.parse()?,
            file => {
                let (name, path) = file.split_once('=').ok_or("write NAME=FILE")?;
                args.files.push((name.to_owned(), path.into()));
            }
        }
    }
    let read = args.model.as_ref().map(std::fs::read_to_string).transpose()?;
    let read = read.map(|text| Model::from_json(&text)).transpose()?;
    let model = read.as_ref().unwrap_or_else(|| Model::builtin());
    let text = match what.as_str() {
        "classifier" => judge::classifier(&args, model)?,
        "table1" => direct::table1(&args, model)?,
        "table2" => judge::table2(&args, model)?,
        other => return Err(format!("no experiment is called {other}").into()),
    };
    println!("{text}");
    splice(&args.out.join("README.md"), &text)
}

/// All records of a file.
fn records(path: &Path) -> Result<Vec<Labelled>, Failure> {
    let named = |e: String| format!("{}: {e}", path.display());
    let file = File::open(path).map_err(|e| named(e.to_string()))?;
    let all = read::labelled(file).map_err(|e| named(e.to_string()))?;
    all.map(|record| Ok(record.map_err(|e| named(e.to_string()))?.1)).collect()
}

fn splice(path: &Path, text: &str) -> Result<(), Failure> {
    let old = std::fs::read_to_string(path).unwrap_or_else(|_| format!("{BEGIN}\n{END}\n"));
    let (Some(begin), Some(end)) = (old.find(BEGIN), old.find(END)) else {
        return Err(format!("{} has no place for the numbers", path.display()).into());
    };
    let new = format!("{}{BEGIN}\n{text}\n{}", &old[..begin], &old[end..]);
    Ok(std::fs::write(path, new)?)
}

//! `packtrain loss train`.

use packtrain_units::date;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::Path;

use packtrain_loss::train::{Judge, Trainer};
use packtrain_loss::{Labelled, Model, Provenance, Split, WordLength, read};
use packtrain_service::FailureKind;

use super::report;
use crate::args::LossTrainArgs;
use crate::cmd::input::Input;
use crate::exit::{Code, Exit, print_stderr};

/// `packtrain loss train`.
pub(super) fn run(args: &LossTrainArgs) -> Result<Code, Exit> {
    let mut trainer = Trainer::new(WordLength::new(args.word_length).unwrap_or_default());
    let mut provenance = Provenance {
        program: concat!("packtrain ", env!("CARGO_PKG_VERSION")).to_owned(),
        date: date::day(packtrain_os::clock::wall().as_nanos() / 1_000_000_000),
        seed: args.seed,
        notes: args.notes.clone(),
        ..Provenance::default()
    };
    for path in &args.data {
        let digest = each(path, |labelled| trainer.add(labelled))?;
        provenance.data.insert(name(path), digest);
    }
    let (used, passed) = trainer.counts();
    print_stderr(&format!("{used} windows to train with, {passed} for testing or without loss"));
    let model = trainer.finish(provenance).map_err(|error| Exit::usage(error.to_string()))?;
    write(&args.out, model.to_json().as_bytes())?;
    for size in &model.sizes {
        print_stderr(&format!("windows of {} packets:", size.packets));
        for (what, value) in &size.fit {
            print_stderr(&format!("  {what}: {value:.5}"));
        }
    }
    if let Some(folder) = &args.report {
        judge(args, &model, folder)?;
    }
    Ok(Code::DONE)
}

/// Evaluates the model with the test records.
fn judge(args: &LossTrainArgs, model: &Model, folder: &Path) -> Result<(), Exit> {
    let mut judges = BTreeMap::new();
    for path in &args.data {
        each(path, |labelled| {
            if labelled.split == Split::Test {
                let size = model.size(labelled.signature.len()).map_or(0, |(size, _)| size.packets);
                judges.entry(size).or_insert_with(|| Judge::new(model)).add(labelled);
            }
        })?;
    }
    if judges.is_empty() {
        return Err(Exit::usage("no records with \"split\":\"test\": there is nothing to report"));
    }
    let judgements: BTreeMap<_, _> =
        judges.into_iter().map(|(size, judge)| (size, judge.finish())).collect();
    fs::create_dir_all(folder).map_err(|error| Input(folder).failed(FailureKind::Fatal, &error))?;
    let json = serde_json::to_string(&judgements).unwrap_or_default() + "\n";
    write(&folder.join("judgement.json"), json.as_bytes())?;
    write(&folder.join("report.md"), report::text(model, &judgements).as_bytes())?;
    write(&folder.join("reliability.svg"), report::plot(&judgements).svg().as_bytes())
}

/// Passes every record of a file to `take`; returns the BLAKE3 digest of the file.
fn each(path: &Path, mut take: impl FnMut(&Labelled)) -> Result<String, Exit> {
    let input = Input(path);
    let mut file = Hashing { inner: input.open()?, hasher: blake3::Hasher::new() };
    for record in read::labelled(&mut file).map_err(|error| input.refused(&error))? {
        let (_, labelled) = record.map_err(|error| input.refused(&error))?;
        take(&labelled);
    }
    io::copy(&mut file, &mut io::sink()).map_err(|error| input.refused(&error))?;
    Ok(file.hasher.finalize().to_hex().to_string())
}

struct Hashing {
    inner: Box<dyn Read + Send>,
    hasher: blake3::Hasher,
}

impl Read for Hashing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..read]);
        Ok(read)
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Exit> {
    fs::write(path, bytes).map_err(|error| Input(path).failed(FailureKind::Fatal, &error))
}

//! `packtrain loss`.

mod report;
mod train;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use packtrain_loss::read::{Options, ReadError, Signatures};
use packtrain_loss::{Classifier, Evidence, Model};
use packtrain_node::api::{FailureKind, NodeError};

use crate::args::{LossArgs, LossClassifyArgs, LossCommand};
use crate::exit::{Code, Exit};
use crate::out;

/// Largest model file.
const LARGEST_MODEL: u64 = 64 << 20;

/// `packtrain loss`.
pub(super) fn run(args: &LossArgs) -> Result<Code, Exit> {
    match &args.command {
        LossCommand::Classify(args) => classify(args),
        LossCommand::Train(args) => train::run(args),
    }
}

fn classify(args: &LossClassifyArgs) -> Result<Code, Exit> {
    let own = args.model.as_deref().map(model).transpose()?;
    let mut classifier = Classifier::new(own.as_ref().unwrap_or_else(|| Model::builtin()));
    let options = Options { window: args.window.map(|window| window as usize) };
    let told = |error: ReadError| bad(&args.file, &error);
    for found in Signatures::open(open(&args.file)?, options).map_err(told)? {
        let found = found.map_err(told)?;
        let evidence = Evidence::new(&found.signature)
            .host_drops(found.host_drops)
            .delay(found.delay.as_ref());
        let verdict = classifier.classify(&evidence);
        if args.json {
            out::json_line(&verdict);
        } else {
            out::line(&out::loss::verdict(&found.place, &verdict));
        }
        if out::lost().is_some() {
            break;
        }
    }
    Ok(Code::DONE)
}

/// A file to read; `-` is standard input.
fn open(path: &Path) -> Result<Box<dyn Read + Send>, Exit> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin()));
    }
    let file = File::open(path).map_err(|error| {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => FailureKind::SourceMissing,
            _ => FailureKind::Fatal,
        };
        failed(kind, path, &error)
    })?;
    Ok(Box::new(file))
}

fn model(path: &Path) -> Result<Model, Exit> {
    let mut text = String::new();
    open(path)?
        .take(LARGEST_MODEL)
        .read_to_string(&mut text)
        .map_err(|error| failed(FailureKind::Fatal, path, &error))?;
    Model::from_json(&text).map_err(|error| bad(path, &error))
}

/// What a file holds is not what was asked for.
fn bad(path: &Path, error: &dyn std::fmt::Display) -> Exit {
    failed(FailureKind::Usage, path, error)
}

fn failed(kind: FailureKind, path: &Path, error: &dyn std::fmt::Display) -> Exit {
    use std::os::unix::ffi::OsStrExt as _;
    let name = out::shown(path.as_os_str().as_bytes());
    Exit::from(NodeError::new(kind, format!("{name}: {error}")))
}

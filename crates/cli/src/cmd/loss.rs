//! `packtrain loss`.

mod report;
mod train;

use std::path::Path;

use packtrain_loss::read::{Options, ReadError, Signatures};
use packtrain_loss::{Classifier, Evidence, Model};

use super::input::Input;
use crate::args::{LossArgs, LossClassifyArgs, LossCommand};
use crate::exit::{Code, Exit};
use crate::out;

/// Maximum size of a model file, in bytes.
const MAX_MODEL_BYTES: u64 = 64 << 20;

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
    let input = Input(&args.file);
    let told = |error: ReadError| input.refused(&error);
    for found in Signatures::open(input.open()?, options).map_err(told)? {
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
        if out::stdout_error().is_some() {
            break;
        }
    }
    Ok(Code::DONE)
}

fn model(path: &Path) -> Result<Model, Exit> {
    let input = Input(path);
    Model::from_json(&input.text(MAX_MODEL_BYTES)?).map_err(|error| input.refused(&error))
}

//! `packtrain predict`.

mod figure;

use std::num::NonZeroU32;
use std::path::Path;

use packtrain_os::clock;
use packtrain_plan::streams::{self, Options, Sample};
use packtrain_reproduce::plot;
use packtrain_service::history::{self, HistoryError, Wanted};
use packtrain_service::{FailureKind, RequestError};

use super::input::Input;
use crate::args::PredictArgs;
use crate::exit::{Code, Exit, print_stderr};
use crate::out;

/// Maximum size of a file of measurements, in bytes.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// Maximum number of measurements from the history; the newest are used.
const MAX_HISTORY_SAMPLES: usize = 200;

/// `packtrain predict`.
pub(super) fn run(args: &PredictArgs) -> Result<Code, Exit> {
    let input = Input(&args.from);
    let of_history = args.from == Path::new("history");
    if !of_history && args.to.is_some() {
        return Err(Exit::usage("--to applies to --from history: leave it out"));
    }
    if let Some(path) = &args.plot {
        plot::check_name(path).map_err(|error| Exit::usage(error.to_string()))?;
    }
    let samples = if of_history { from_history(args)? } else { read(input)? };
    let options = Options { max_streams: args.max() };
    let failed = |error: streams::NoSamples| input.refused(&error);
    let prediction = streams::predict(&samples, options).map_err(failed)?;
    let at = args.at.and_then(NonZeroU32::new);
    if args.json {
        out::predict::json(&prediction, at, args.max());
    } else {
        out::predict::text(&prediction, at, &samples);
    }
    if let Some(path) = &args.plot {
        let figure = figure::figure(&prediction, &samples, args.max());
        figure.write(path).map_err(|error| {
            Exit::from(RequestError::new(FailureKind::Fatal, error.to_string()))
        })?;
    }
    Ok(Code::DONE)
}

/// The measurements of the history between two machines.
fn from_history(args: &PredictArgs) -> Result<Vec<Sample>, Exit> {
    let keep = args.keep.keep()?;
    let missing = |text: String| Exit::from(RequestError::new(FailureKind::SourceMissing, text));
    let unreadable = |error: HistoryError| RequestError::new(FailureKind::Fatal, error.to_string());
    let (from, to) = match &args.to {
        Some(to) => (args.sender.clone().unwrap_or_else(history::this_machine), to.clone()),
        None => {
            let newest = Wanted::default().begun_by(clock::wall());
            let rows = history::find(&keep, &newest).map_err(unreadable)?;
            let newest = rows
                .into_iter()
                .find(|row| !row.stream_samples.is_empty() && row.held_by.is_none());
            let row = newest.ok_or_else(|| {
                missing(
                    "the history has no measurement of TCP streams: copy something with \
                     --transport tcp, or name a machine with --to"
                        .to_owned(),
                )
            })?;
            (row.from_host, row.to_host)
        }
    };
    let found = history::stream_samples(&keep, &from, &to, MAX_HISTORY_SAMPLES);
    let samples = found.into_iter().filter_map(|sample| {
        let streams = NonZeroU32::new(sample.streams)?;
        Some(Sample { streams, throughput: sample.throughput })
    });
    let samples: Vec<Sample> = samples.collect();
    let path = out::clean(&format!("{from} to {to}"));
    if samples.is_empty() {
        let text = format!(
            "the history has no measurement of TCP streams from {path}: `packtrain history` shows \
             what it has"
        );
        return Err(missing(text));
    }
    print_stderr(&format!("{} measurements from {path}", samples.len()));
    Ok(samples)
}

/// The measurements in a file; `-` is standard input.
fn read(input: Input<'_>) -> Result<Vec<Sample>, Exit> {
    // Text that is not UTF-8 is not a number; the error names its line.
    let bytes = input.bytes(MAX_FILE_BYTES)?;
    streams::samples_from_csv(&String::from_utf8_lossy(&bytes))
        .map_err(|error| input.refused(&error))
}

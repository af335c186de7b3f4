//! `packtrain predict`.

mod figure;

use std::fs::File;
use std::io::{self, Read as _};
use std::num::NonZeroU32;
use std::path::Path;

use packtrain_node::api::{FailureKind, NodeError};
use packtrain_plan::streams::{self, Options, Sample};
use packtrain_sim::plot;

use crate::args::PredictArgs;
use crate::exit::{Code, Exit};
use crate::out;

/// Largest file of measurements.
const LARGEST_FILE: u64 = 64 << 20;

/// `packtrain predict`.
pub(super) fn run(args: &PredictArgs) -> Result<Code, Exit> {
    if args.from == Path::new("history") {
        return Err(Exit::usage(
            "`--from history` is not in this version: give a file of measurements \
             (`./history` if yours has this name)",
        ));
    }
    if let Some(path) = &args.plot {
        plot::check_name(path).map_err(|error| Exit::usage(error.to_string()))?;
    }
    let samples = read(&args.from)?;
    let options = Options { max_streams: args.max() };
    let failed = |error: streams::NoSamples| failed(FailureKind::Usage, &args.from, &error);
    let prediction = streams::predict(&samples, options).map_err(failed)?;
    let at = args.at.and_then(NonZeroU32::new);
    if args.json {
        out::predict::json(&prediction, at, args.max());
    } else {
        out::predict::text(&prediction, at, &samples);
    }
    if let Some(path) = &args.plot {
        let figure = figure::figure(&prediction, &samples, args.max());
        figure
            .write(path)
            .map_err(|error| Exit::from(NodeError::new(FailureKind::Fatal, error.to_string())))?;
    }
    Ok(Code::DONE)
}

/// The measurements in a file; `-` is standard input.
fn read(path: &Path) -> Result<Vec<Sample>, Exit> {
    let mut bytes = Vec::new();
    let count = if path == Path::new("-") {
        io::stdin().take(LARGEST_FILE + 1).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(LARGEST_FILE + 1).read_to_end(&mut bytes))
    };
    let count = count.map_err(|error| {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => FailureKind::SourceMissing,
            _ => FailureKind::Fatal,
        };
        failed(kind, path, &error)
    })?;
    if count as u64 > LARGEST_FILE {
        return Err(failed(FailureKind::Usage, path, &"more than 64 MiB of measurements"));
    }
    // What is not UTF-8 is no number, and the line with it is named.
    let text = String::from_utf8_lossy(&bytes);
    streams::samples_from_csv(&text).map_err(|error| failed(FailureKind::Usage, path, &error))
}

fn failed(kind: FailureKind, path: &Path, error: &dyn std::fmt::Display) -> Exit {
    use std::os::unix::ffi::OsStrExt as _;
    let name = out::shown(path.as_os_str().as_bytes());
    Exit::from(NodeError::new(kind, out::clean(&format!("{name}: {error}"))))
}

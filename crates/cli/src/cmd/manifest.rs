//! `packtrain verify --manifest-out` and `--manifest`: digests of a directory of this machine.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use packtrain_runtime::checksum_list::{self, HashKind};
use packtrain_service::{
    Failure, FailureKind, Location, Options, Outcome, Reporter as _, RequestError, Summary,
};

use super::{files_from, request};
use crate::args::{HashArg, VerifyArgs};
use crate::exit::{Code, Exit, print_message};
use crate::out::console::ConsoleReporter;
use crate::out::summary::Work;
use crate::out::{done, json_line, shown};

/// Maximum size of a manifest, in bytes.
const MAX_MANIFEST: u64 = 1 << 30;

/// Whether the command is about a manifest.
pub(super) fn is_asked(args: &VerifyArgs) -> bool {
    args.manifest.is_some() || args.manifest_out.is_some()
}

/// Writes or checks a manifest.
pub(super) fn run(args: &VerifyArgs, matches: &ArgMatches) -> Result<Code, Exit> {
    let [place] = args.places.as_slice() else {
        return Err(Exit::usage("a manifest is of one directory: name only that"));
    };
    let Location::Local(dir) = Location::parse(place).map_err(|e| Exit::usage(e.to_string()))?
    else {
        return Err(Exit::usage(
            "a manifest is of a directory of this machine: copy the manifest and run verify there",
        ));
    };
    let dir = PathBuf::from(<std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(dir));
    let options = options(args, matches)?;
    let kind = match args.hash {
        HashArg::Blake3 => HashKind::Blake3,
        HashArg::Sha256 => HashKind::Sha256,
    };
    let outcome = match (&args.manifest_out, &args.manifest) {
        (Some(out), _) => write(&dir, &options, kind, out, args)?,
        (None, Some(list)) => check(&dir, &options, kind, list, args)?,
        (None, None) => return Err(Exit::usage("name a manifest")),
    };
    let code = Code(outcome.exit_code());
    for (path, failure) in &outcome.failed {
        print_message(&format!("{}: {}", shown(path), failure.text));
    }
    if args.output.json {
        json_line(&done::cp(&outcome, code, None));
    }
    Ok(code)
}

fn options(args: &VerifyArgs, matches: &ArgMatches) -> Result<Options, Exit> {
    let chosen = request::chosen_files(&args.filter, matches)?;
    if chosen.files_from.is_some() {
        return Err(Exit::usage("--files-from does not apply to a manifest: leave it out"));
    }
    Ok(chosen)
}

fn write(
    dir: &Path,
    options: &Options,
    kind: HashKind,
    out: &Path,
    args: &VerifyArgs,
) -> Result<Outcome, Exit> {
    let to_stdout = out == Path::new("-");
    if to_stdout && args.output.json {
        return Err(Exit::usage("--json and the manifest cannot both go to stdout: leave one out"));
    }
    let own = (!to_stdout).then_some(out);
    let (list, unread) = checksum_list::write(dir, options, kind, own).map_err(failed)?;
    let written = match to_stdout {
        true => {
            let mut stdout = std::io::stdout().lock();
            stdout.write_all(&list).and_then(|()| stdout.flush())
        }
        false => std::fs::write(out, &list),
    };
    written.map_err(|error| {
        let text = format!("--manifest-out {}: {error}", out.display());
        RequestError::new(FailureKind::TargetRefused, text)
    })?;
    let entries = list.iter().filter(|b| **b == b'\n').count() as u64;
    let summary = Summary { entries, failed: unread.len() as u64, ..Summary::default() };
    Ok(Outcome { summary, failed: unread, transport: "none".to_owned(), ..Outcome::default() })
}

fn check(
    dir: &Path,
    options: &Options,
    kind: HashKind,
    list: &Path,
    args: &VerifyArgs,
) -> Result<Outcome, Exit> {
    let bytes = files_from::read_some(list, MAX_MANIFEST).map_err(|error| {
        Exit::usage(format!("--manifest {}: {error}: check the name", list.display()))
    })?;
    let console = ConsoleReporter::new(&args.output, Work::Verify)?;
    let checked = checksum_list::check(dir, options, kind, &bytes, |path, report| {
        console.file(path, report);
    })
    .map_err(failed)?;
    console.finish();
    let summary = Summary {
        entries: checked.same,
        unchanged: checked.same,
        failed: checked.failed,
        ..Summary::default()
    };
    let outcome = Outcome {
        summary,
        differing: checked.differing,
        extra: checked.extra,
        transport: "none".to_owned(),
        ..Outcome::default()
    };
    if console.wants_summary() && !args.output.json {
        let Outcome { differing, extra, .. } = &outcome;
        let same = checked.same;
        print_message(&format!(
            "the same: {same}; differing or missing: {differing}; extra: {extra}; unreadable: {}",
            checked.failed
        ));
    }
    Ok(outcome)
}

fn failed(failure: Failure) -> Exit {
    Exit::Failed(RequestError::new(failure.kind, failure.text))
}

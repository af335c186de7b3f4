//! `packtrain verify --manifest-out` and `--manifest`: digests of one directory, here or at another
//! machine.

use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use clap::ArgMatches;
use packtrain_client::checksums::{self, Reach};
use packtrain_identity::statefile::{self, Mode};
use packtrain_os::process;
use packtrain_runtime::checksum_list::{self, Digests, HashKind, OnDigest};
use packtrain_service::{
    Failure, FailureKind, FileReport, Location, Options, Outcome, Reporter as _, RequestError,
    StopHandle, Summary,
};

use super::{files_from, request};
use crate::args::{HashArg, VerifyArgs};
use crate::exit::{Code, Exit, print_message};
use crate::out::console::ConsoleReporter;
use crate::out::summary::Work;
use crate::out::{done, json_line, named};
use crate::signals;

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
    let place = Location::parse(place).map_err(|e| Exit::usage(e.to_string()))?;
    let options = options(args, matches)?;
    let kind = match args.hash {
        HashArg::Blake3 => HashKind::Blake3,
        HashArg::Sha256 => HashKind::Sha256,
    };
    let console = ConsoleReporter::new(&args.output, Work::Verify)?;
    let directory = Directory { place: &place, options: &options, kind, args, console: &console };
    let ended = match (&args.manifest_out, &args.manifest) {
        (Some(out), _) => write(&directory, out),
        (None, Some(list)) => check(&directory, list),
        (None, None) => Err(Exit::usage("name a manifest")),
    };
    let outcome = ended.map_err(|exit| {
        let error = exit.into_error();
        let code = Code::of(&error);
        console.record(&done::cp(&Outcome::from(error.clone()), code, None));
        Exit::Failed(error)
    })?;
    let code = Code(outcome.exit_code());
    let last = done::cp(&outcome, code, None);
    console.record(&last);
    for (path, failure) in &outcome.failed {
        print_message(&named(path, &failure.text));
    }
    if args.output.json {
        json_line(&last);
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

/// The directory, and how its digests are made.
struct Directory<'a> {
    place: &'a Location,
    options: &'a Options,
    kind: HashKind,
    args: &'a VerifyArgs,
    console: &'a ConsoleReporter,
}

impl Directory<'_> {
    /// Calls `work` with what makes the digests; without those of the file `out`. `console` hears of
    /// the other end.
    fn with_digests<T>(
        &self,
        out: Option<&Path>,
        work: impl FnOnce(Box<Digests<'_>>) -> Result<T, Failure>,
    ) -> Result<T, Exit> {
        let Self { options, kind, .. } = *self;
        if let Location::Local(dir) = self.place {
            let dir = Path::new(OsStr::from_bytes(dir));
            let digests = move |on_digest: &mut OnDigest<'_>| {
                checksum_list::of_directory(dir, options, kind, out, on_digest)
            };
            return work(Box::new(digests)).map_err(failed);
        }
        let stop = StopHandle::new();
        signals::watch(&stop, self.args.output.quiet);
        let remote = &self.args.remote;
        let reach = Reach {
            ssh: remote.ssh.settings(),
            ticket: remote.ticket.as_ref().map(request::ticket).transpose()?,
            accept_new_host: remote.accept_new_host,
            reporter: self.console,
            stop,
        };
        let digests = move |on_digest: &mut OnDigest<'_>| {
            checksums::digests(&reach, self.place, options, kind, on_digest)
                .map_err(|error| Failure::new(error.kind, error.text))
        };
        work(Box::new(digests)).map_err(failed)
    }
}

/// Replaces a file as a whole, so that a full disk leaves the old one. Pipes and devices are written.
fn replace(out: &Path, list: &[u8]) -> std::io::Result<()> {
    // The file that a link leads to is replaced, not the link.
    let at = std::fs::canonicalize(out).unwrap_or_else(|_| out.to_path_buf());
    let old = std::fs::metadata(&at).ok();
    if old.as_ref().is_some_and(|old| !old.is_file()) {
        return std::fs::write(out, list);
    }
    let mode = old.map_or(Mode::New(0o666), |old| Mode::Kept(old.permissions()));
    match statefile::replace_whole(&at, list, &mode) {
        // The directory may be closed to this user, and the file open.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            std::fs::write(out, list)
        }
        written => written,
    }
}

fn write(directory: &Directory<'_>, out: &Path) -> Result<Outcome, Exit> {
    let args = directory.args;
    let to_stdout = out == Path::new("-");
    if to_stdout && args.output.json {
        return Err(Exit::usage("--json and the manifest cannot both go to stdout: leave one out"));
    }
    let own = (!to_stdout).then_some(out);
    let (list, unread) = directory.with_digests(own, checksum_list::write)?;
    directory.console.finish();
    let written = match to_stdout {
        true => process::stdout().and_then(|stdout| {
            let mut stdout = stdout.lock();
            stdout.write_all(&list).and_then(|()| stdout.flush())
        }),
        false => replace(out, &list),
    };
    written.map_err(|error| {
        let text = format!("--manifest-out {}: {error}", out.display());
        RequestError::new(FailureKind::TargetRefused, text)
    })?;
    let entries = list.iter().filter(|b| **b == b'\n').count() as u64;
    let summary = Summary { entries, failed: unread.len() as u64, ..Summary::default() };
    Ok(Outcome { summary, failed: unread, transport: "none".to_owned(), ..Outcome::default() })
}

fn check(directory: &Directory<'_>, list: &Path) -> Result<Outcome, Exit> {
    let args = directory.args;
    let bytes = files_from::read_some(list, MAX_MANIFEST).map_err(|error| {
        Exit::usage(format!("--manifest {}: {error}: check the name", list.display()))
    })?;
    let console = directory.console;
    let report = |path: &[u8], report: &FileReport| console.file(path, report);
    let checked = directory.with_digests(None, |digests| {
        checksum_list::check(digests, directory.options, &bytes, report)
    })?;
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

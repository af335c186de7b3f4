//! `cp` and `verify`: run the request, print its outcome, and print the command that resumes.

use std::ffi::OsString;

use clap::ArgMatches;
use packtrain_service::{
    CpRequest, EXIT_NOTHING_MOVED, Failure, FailureKind, Location, Outcome, RequestError, Resume,
};
use packtrain_units::DataRate;

use super::{explain, extra, manifest, request};
use crate::args::{CpArgs, OutputArgs, VerifyArgs};
use crate::exit::{Code, Exit, print_failure, print_message, print_stderr, print_warning};
use crate::out::console::ConsoleReporter;
use crate::out::summary::Work;
use crate::out::{done, json_line, named, quote, summary};
use crate::signals;

/// `packtrain cp`.
pub(crate) fn copy(args: &CpArgs, matches: &ArgMatches, line: &[OsString]) -> Code {
    match request::copy(args, matches) {
        Ok(request) => {
            if !args.output.quiet {
                extra::notes(args).iter().for_each(|note| print_message(note));
            }
            let error_on_no_transfer = args.error_on_no_transfer;
            Run { output: &args.output, line, asked: args.transport.rate, error_on_no_transfer }
                .run(request)
        }
        Err(exit) => failed(exit, args.output.json),
    }
}

/// `packtrain verify`.
pub(crate) fn verify(args: &VerifyArgs, matches: &ArgMatches, line: &[OsString]) -> Code {
    if manifest::is_asked(args) {
        return manifest::run(args, matches).unwrap_or_else(|exit| failed(exit, args.output.json));
    }
    match request::verify(args, matches) {
        Ok(request) => {
            let asked = args.transport.rate;
            Run { output: &args.output, line, asked, error_on_no_transfer: false }.run(request)
        }
        Err(exit) => failed(exit, args.output.json),
    }
}

/// Prints a failure before the transfer, and returns its exit code.
pub(super) fn failed(exit: Exit, json: bool) -> Code {
    let error = exit.into_error();
    let code = Code::of(&error);
    print_failure(&error.text);
    if json {
        json_line(&done::cp(&Outcome::from(error), code, None));
    }
    code
}

/// A copy of any kind, with its output options.
pub(super) struct Run<'a> {
    pub(super) output: &'a OutputArgs,
    pub(super) line: &'a [OsString],
    /// The requested rate, before the site's ceiling applied.
    pub(super) asked: Option<DataRate>,
    /// `--error-on-no-transfer`.
    pub(super) error_on_no_transfer: bool,
}

impl Run<'_> {
    fn run(&self, request: CpRequest) -> Code {
        self.run_with(request, |request, console| packtrain_client::cp::run(request, console))
    }

    /// Runs `copy`, which carries out the request.
    pub(super) fn run_with(
        &self,
        mut request: CpRequest,
        copy: impl FnOnce(CpRequest, &ConsoleReporter) -> Result<Outcome, RequestError>,
    ) -> Code {
        let work = Work::of(&request.options);
        let console = match ConsoleReporter::new(self.output, work) {
            Ok(console) => console,
            Err(exit) => return failed(exit, self.output.json),
        };
        request.options.report_files = console.wants_files();
        console.started(&request.sources, &request.dest.to_string(), direction(&request));
        let stop = request.stop.clone();
        signals::watch(&stop, self.output.quiet);
        let replayable = work == Work::Copy && replayable(&request);
        if self.output.explain {
            console.explain(explain::before(&request, self.asked));
        }
        let hint = server_hint(&request);
        let result = copy(request, &console);
        console.finish();
        let outcome = result.unwrap_or_else(Outcome::from);
        if self.output.explain {
            console.explain(explain::after(&outcome));
        }
        let code = self.code(&outcome, stop.requested());
        let command = (outcome.resumable && replayable && code != Code::DONE)
            .then(|| quote::command(self.line));
        self.print(&outcome, work, &console, command.as_deref());
        if let Some(hint) = hint.filter(|_| outcome.failure.is_some() && !outcome.resumable) {
            print_message(&hint);
        }
        let last = done::cp(&outcome, code, command.as_deref());
        console.record(&last);
        if self.output.json {
            json_line(&last);
        }
        code
    }

    fn code(&self, outcome: &Outcome, signal: Option<i32>) -> Code {
        let cancelled = outcome.failure.as_ref().is_some_and(|f| f.kind == FailureKind::Cancelled);
        match (outcome.exit_code(), signal) {
            (_, Some(signal)) if cancelled => Code::signal(signal),
            (0, _) if self.error_on_no_transfer && moved_nothing(outcome) => {
                Code(EXIT_NOTHING_MOVED)
            }
            (code, _) => Code(code),
        }
    }

    fn print(
        &self,
        outcome: &Outcome,
        work: Work,
        console: &ConsoleReporter,
        command: Option<&str>,
    ) {
        // `verify` has printed the differing files already.
        let already_printed =
            |failure: &Failure| work == Work::Verify && failure.kind == FailureKind::Integrity;
        for (path, failure) in
            outcome.failed.iter().filter(|(_, failure)| !already_printed(failure))
        {
            print_failure(&named(path, &failure.text));
        }
        let omitted = outcome.summary.failed.saturating_sub(outcome.failed.len() as u64);
        if omitted > 0 && !outcome.failed.is_empty() && work != Work::Verify {
            print_failure(&format!("and {omitted} more failed"));
        }
        if outcome.summary.not_owned > 0 && !self.output.quiet {
            print_warning(&summary::not_owned(outcome.summary.not_owned));
        }
        if let Some(failure) = &outcome.failure {
            print_failure(&failure.text);
        } else if console.wants_summary() && !self.output.json {
            print_message(&summary::sentence(outcome, work));
        }
        if let Some(command) = command {
            print_resume_command(command);
        }
    }
}

/// What to write for a server, if a place over ssh looks like the address of one (`host:7876`).
fn server_hint(request: &CpRequest) -> Option<String> {
    request.sources.iter().chain([&request.dest]).find_map(|place| {
        let Location::Ssh { user: None, host, path } = place else { return None };
        let port = std::str::from_utf8(path).ok()?;
        port.parse::<u16>().ok().filter(|port| *port > 0)?;
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        Some(format!(
            "{host}:{port} is the path {port} over ssh; a packtrain server at that port is \
             pt://{host}:{port}/"
        ))
    })
}

/// The direction of the bytes as seen from this machine.
fn direction(request: &CpRequest) -> &'static str {
    // A claim has no sources, because the data comes from depots.
    let from = request.sources.is_empty() || request.sources.iter().any(Location::is_remote);
    match (from, request.dest.is_remote()) {
        (false, true) => "out",
        (true, false) => "in",
        (true, true) => "between",
        (false, false) => "local",
    }
}

/// Prints the command that resumes the transfer.
pub(super) fn print_resume_command(command: &str) {
    let hidden = command.contains(packtrain_service::weburl::REDACTED);
    let hint = if hidden { " (with the secrets put back into the address)" } else { "" };
    print_stderr(&format!("to resume, run{hint}:\n  {command}"));
}

/// Whether the same command can read the same bytes again.
fn replayable(request: &CpRequest) -> bool {
    request.options.resume != Resume::Off
        && request.dest != Location::Stdio
        && !request.sources.contains(&Location::Stdio)
}

fn moved_nothing(outcome: &Outcome) -> bool {
    let summary = &outcome.summary;
    let counts = [
        summary.bytes_moved,
        summary.files_moved,
        summary.changed,
        summary.deleted,
        summary.removed,
    ];
    counts.iter().all(|count| *count == 0)
}

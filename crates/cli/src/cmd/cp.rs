//! `cp` and `verify`: run the request, tell what came of it, say how to go on.

use std::ffi::OsString;

use clap::ArgMatches;
use packtrain_service::{
    CpRequest, EXIT_NOTHING_MOVED, Failure, FailureKind, Location, Outcome, RequestError, Resume,
};
use packtrain_units::DataRate;

use super::{explain, request};
use crate::args::{CpArgs, OutputArgs, VerifyArgs};
use crate::exit::{Code, Exit, complain, say};
use crate::out::summary::Work;
use crate::out::teller::Teller;
use crate::out::{done, quote, shown, summary};
use crate::signals;

/// `packtrain cp`.
pub(crate) fn copy(args: &CpArgs, matches: &ArgMatches, line: &[OsString]) -> Code {
    match request::copy(args, matches) {
        Ok(request) => {
            let nine = args.error_on_no_transfer;
            Run { output: &args.output, line, asked: args.transport.rate, nine }.go(request)
        }
        Err(exit) => failed(exit, args.output.json),
    }
}

/// `packtrain verify`.
pub(crate) fn verify(args: &VerifyArgs, matches: &ArgMatches, line: &[OsString]) -> Code {
    match request::verify(args, matches) {
        Ok(request) => {
            let asked = args.transport.rate;
            Run { output: &args.output, line, asked, nine: false }.go(request)
        }
        Err(exit) => failed(exit, args.output.json),
    }
}

/// Says why nothing was done.
pub(super) fn failed(exit: Exit, json: bool) -> Code {
    let error = exit.into_error();
    let code = Code(error.exit_code());
    complain(&error.text);
    if json {
        done::print(&done::Cp::new(&Outcome::from(error), code, None));
    }
    code
}

/// A copy of whatever kind, told as it was asked for.
pub(super) struct Run<'a> {
    pub(super) output: &'a OutputArgs,
    pub(super) line: &'a [OsString],
    /// The rate asked for, before the site's ceiling.
    pub(super) asked: Option<DataRate>,
    /// `--error-on-no-transfer`.
    pub(super) nine: bool,
}

impl Run<'_> {
    fn go(&self, request: CpRequest) -> Code {
        self.go_by(request, |request, teller| packtrain_client::cp::run(request, teller))
    }

    /// Runs `copy`, which does what is asked for.
    pub(super) fn go_by(
        &self,
        mut request: CpRequest,
        copy: impl FnOnce(CpRequest, &Teller) -> Result<Outcome, RequestError>,
    ) -> Code {
        let work = Work::of(&request.options);
        let teller = match Teller::new(self.output, work) {
            Ok(teller) => teller,
            Err(exit) => return failed(exit, self.output.json),
        };
        request.options.report_files = teller.wants_files();
        teller.started(&request.sources, &request.dest.to_string(), direction(&request));
        let stop = request.stop.clone();
        signals::watch(&stop, self.output.quiet);
        let replayable = work == Work::Copy && replayable(&request);
        if self.output.explain {
            teller.explain(explain::before(&request, self.asked));
        }
        let result = copy(request, &teller);
        teller.finish();
        let outcome = result.unwrap_or_else(Outcome::from);
        if self.output.explain {
            teller.explain(explain::after(&outcome));
        }
        let code = self.code(&outcome, stop.requested());
        let command = (outcome.resumable && replayable && code != Code::DONE)
            .then(|| quote::command(self.line));
        self.tell(&outcome, work, &teller, command.as_deref());
        let last = done::Cp::new(&outcome, code, command.as_deref());
        teller.record(&last);
        if self.output.json {
            done::print(&last);
        }
        code
    }

    fn code(&self, outcome: &Outcome, signal: Option<i32>) -> Code {
        let cancelled = outcome.failure.as_ref().is_some_and(|f| f.kind == FailureKind::Cancelled);
        match (outcome.exit_code(), signal) {
            (_, Some(signal)) if cancelled => Code::signal(signal),
            (0, _) if self.nine && moved_nothing(outcome) => Code(EXIT_NOTHING_MOVED),
            (code, _) => Code(code),
        }
    }

    fn tell(&self, outcome: &Outcome, work: Work, teller: &Teller, command: Option<&str>) {
        // What differs was the data of `verify` already.
        let told =
            |failure: &Failure| work == Work::Verify && failure.kind == FailureKind::Integrity;
        for (path, failure) in outcome.failed.iter().filter(|(_, failure)| !told(failure)) {
            complain(&format!("{}: {}", shown(path), failure.text));
        }
        let unsaid = outcome.summary.failed.saturating_sub(outcome.failed.len() as u64);
        if unsaid > 0 && !outcome.failed.is_empty() && work != Work::Verify {
            complain(&format!("and {unsaid} more failed"));
        }
        if outcome.summary.not_owned > 0 {
            complain(&summary::not_owned(outcome.summary.not_owned));
        }
        if let Some(failure) = &outcome.failure {
            complain(&failure.text);
        } else if teller.wants_summary() && !self.output.json {
            complain(&summary::sentence(outcome, work));
        }
        if let Some(command) = command {
            say_command(command);
        }
    }
}

/// Which way the bytes go, as seen from here.
fn direction(request: &CpRequest) -> &'static str {
    // A claim names no source: depots have it.
    let from = request.sources.is_empty() || request.sources.iter().any(Location::is_remote);
    match (from, request.dest.is_remote()) {
        (false, true) => "out",
        (true, false) => "in",
        (true, true) => "between",
        (false, false) => "local",
    }
}

/// Says how to go on.
pub(super) fn say_command(command: &str) {
    let hidden = command.contains(packtrain_service::weburl::REDACTED);
    let hint = if hidden { " (with the secrets put back into the address)" } else { "" };
    say(&format!("to go on where it ended, run{hint}:\n  {command}"));
}

/// Whether the same command can find the same bytes again.
fn replayable(request: &CpRequest) -> bool {
    request.options.resume != Resume::Off
        && request.dest != Location::Stdio
        && !request.sources.contains(&Location::Stdio)
}

fn moved_nothing(outcome: &Outcome) -> bool {
    let summary = &outcome.summary;
    summary.bytes_moved == 0 && summary.files_moved == 0 && summary.deleted == 0
}

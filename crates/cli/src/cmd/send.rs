//! `send` and `claim`.

use std::ffi::OsString;
use std::io::{BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;

use clap::ArgMatches;
use packtrain_client::store_forward::{
    self as deposit, ClaimCode, ClaimCodeError, ClaimRequest, ClaimTicket, DepotPlan, SendRequest,
    Sent,
};
use packtrain_service::{
    CpRequest, FailureKind, Location, Options, Outcome, Place, RequestError, Resume, SshSettings,
    StopHandle, TransportChoice,
};

use super::cp::{Run, failed, print_resume_command};
use super::{files_from, request};
use crate::args::{ClaimArgs, SendArgs, TicketArg};
use crate::exit::{Code, Exit, print_failure, print_message, print_stderr};
use crate::out::console::ConsoleReporter;
use crate::out::summary::{self, Work};
use crate::out::{deposit as print_deposit, done, json_line, named, only_copy, quote};
use crate::signals;

/// Maximum size of a ticket file, in bytes. It holds one line with at most 32 depots, whose names
/// have up to 253 bytes.
const MAX_TICKET_BYTES: u64 = 32 << 10;

/// `packtrain send`.
pub(crate) fn send(args: &SendArgs, matches: &ArgMatches, line: &[OsString]) -> Code {
    let json = args.output.json;
    match sending(args, matches).and_then(|request| run(args, request, line)) {
        Ok(code) => code,
        Err(exit) => failed(exit, json),
    }
}

fn sending(args: &SendArgs, matches: &ArgMatches) -> Result<SendRequest, Exit> {
    let piped = args.sources.iter().any(|source| source == "-");
    if piped && args.sources.len() > 1 {
        return Err(Exit::usage("standard input must be the only source"));
    }
    for source in &args.sources {
        let place = Location::parse(source).map_err(|e| Exit::usage(e.to_string()))?;
        if !matches!(place, Location::Local(_) | Location::Stdio) {
            let text = format!("{place} is not on this machine: run send where the files are");
            return Err(Exit::usage(text));
        }
    }
    let name = args.name.as_bytes();
    if name.is_empty() || name.contains(&b'/') || name == b"." || name == b".." {
        return Err(Exit::usage("--name is a file's name, without a slash"));
    }
    let options =
        Options { recursive: args.recursive, ..request::chosen_files(&args.filter, matches)? };
    if piped {
        request::check_stdin(&options)?;
    }
    let bytes = |source: &OsString| source.as_bytes().to_vec();
    Ok(SendRequest {
        sources: if piped { Vec::new() } else { args.sources.iter().map(bytes).collect() },
        name: name.to_vec(),
        options,
        plan: args.via.clone(),
        keep: args.keep,
        ticket: args.ticket.clone(),
        rate: super::policy()?.rate(args.rate),
        buffers: args.tcp_buffer.and_then(|buffer| buffer.0),
        retries: args.retries,
        code: args.code.then(ClaimCode::random),
        history: args.output.keep.keep()?,
        stop: StopHandle::new(),
    })
}

fn run(args: &SendArgs, request: SendRequest, line: &[OsString]) -> Result<Code, Exit> {
    let console = ConsoleReporter::new(&args.output, Work::Copy)?;
    signals::watch(&request.stop, args.output.quiet);
    let sources: Vec<Location> =
        request.sources.iter().map(|path| Location::Local(path.clone())).collect();
    console.started(&sources, &format!("depots {}", request.plan), "out");
    let sent = deposit::send(&request, &console);
    console.finish();
    let Sent { outcome, ticket } = sent?;
    let cancelled = outcome.failure.as_ref().is_some_and(|f| f.kind == FailureKind::Cancelled);
    let code = match request.stop.requested() {
        Some(signal) if cancelled => Code::signal(signal),
        _ => Code(outcome.exit_code()),
    };
    for (path, failure) in &outcome.failed {
        print_failure(&named(path, &failure.text));
    }
    let command = outcome.resumable.then(|| quote::command(line));
    match &outcome.failure {
        Some(failure) => print_failure(&failure.text),
        None => print_ticket(args, &ticket, request.code.as_ref(), &outcome, &console),
    }
    if let Some(command) = &command {
        print_resume_command(command);
    }
    let last = done::cp(&outcome, code, command.as_deref());
    console.record(&last);
    if args.output.json {
        json_line(&last);
    }
    Ok(code)
}

/// Prints the ticket or the code, and what to do at the other end.
fn print_ticket(
    args: &SendArgs,
    ticket: &ClaimTicket,
    code: Option<&ClaimCode>,
    outcome: &Outcome,
    console: &ConsoleReporter,
) {
    let code = code.map(ClaimCode::to_text);
    let text = (args.ticket.is_none() && code.is_none()).then(|| ticket.to_text());
    if args.output.json {
        print_deposit::ticket(ticket, text.as_deref(), code.as_deref());
        return;
    }
    if let Some(text) = text.as_ref().or(code.as_ref()) {
        only_copy(text);
    }
    if console.wants_summary() {
        print_message(&summary::sentence(outcome, Work::Copy));
    }
    if !args.output.quiet {
        for line in instructions(args, ticket.plan(), code.is_some()) {
            print_stderr(&line);
        }
    }
}

/// The line to type at the other end, and what must be reachable from there.
fn instructions(args: &SendArgs, plan: &DepotPlan, code: bool) -> Vec<String> {
    let depots: Vec<String> = plan.depots().iter().map(|one| one.place.to_string()).collect();
    let last = depots.last().map(String::as_str).unwrap_or_default();
    let (line, then) = match &args.ticket {
        _ if code => (format!("packtrain claim - . --at {last}"), "type the code"),
        None => ("packtrain claim - .".to_owned(), "paste the ticket"),
        Some(_) => ("packtrain claim @FILE .".to_owned(), "name the ticket's file for FILE"),
    };
    let near = if code { last.to_owned() } else { depots.join(" or ") };
    let keep = args.keep.to_readable();
    vec![
        format!("at the other end, within {keep}, run this and {then}:"),
        format!("  {line}"),
        format!("TCP to {near} must be open from there"),
    ]
}

/// `packtrain claim`.
pub(crate) fn claim(args: &ClaimArgs, line: &[OsString]) -> Code {
    match claiming(args) {
        Ok(request) => {
            let run = Run { output: &args.output, line, asked: None, error_on_no_transfer: false };
            let copy = request.copy.clone();
            run.run_with(copy, |copy, console| {
                deposit::claim(&ClaimRequest { copy, ..request }, console)
            })
        }
        Err(exit) => failed(exit, args.output.json),
    }
}

fn claiming(args: &ClaimArgs) -> Result<ClaimRequest, Exit> {
    let ticket = ticket(&args.ticket, args.at.as_ref())?;
    let dest = Location::parse(&args.dst).map_err(|e| Exit::usage(e.to_string()))?;
    if !matches!(dest, Location::Local(_) | Location::Stdio) {
        let text = format!("{dest} is not on this machine: run claim where the files are to be");
        return Err(Exit::usage(text));
    }
    let options = Options {
        recursive: true,
        resume: if args.no_resume { Resume::Off } else { Resume::On },
        update: args.update,
        ..request::writing(&args.writing, Options::default())?
    };
    request::check_pipes(&[], &dest, &args.output, &options)?;
    request::check_combination(&options)?;
    let buffers = args.tcp_buffer.and_then(|buffer| buffer.0);
    let copy = CpRequest {
        sources: Vec::new(),
        dest,
        options,
        transport: TransportChoice::Auto,
        cc: None,
        streams: None,
        tcp_cc: None,
        tcp_buffer: buffers,
        via: Vec::new(),
        depots: Vec::new(),
        hops: Vec::new(),
        by_destination: false,
        background: false,
        ssh: SshSettings {
            command: vec!["ssh".to_owned()],
            remote_path: "packtrain".to_owned(),
            bootstrap: false,
        },
        ports: None,
        data_addr: None,
        ticket: None,
        accept_new_host: false,
        retries: args.retries,
        explain: args.output.explain,
        log_file: args.output.log_file.clone(),
        history: args.output.keep.keep()?,
        stop: StopHandle::new(),
    };
    let (at, wait, release) = (args.at.clone(), args.wait, args.release);
    Ok(ClaimRequest { ticket, at, wait, release, buffers, copy })
}

/// Reads a ticket or a code from its file or standard input. Errors never show its text.
fn ticket(arg: &TicketArg, depot: Option<&Place>) -> Result<ClaimTicket, Exit> {
    let failed = |name: &str, error: std::io::Error| {
        Exit::Failed(RequestError::new(FailureKind::Usage, format!("the ticket {name}: {error}")))
    };
    let bytes = match arg.0.strip_prefix('@') {
        Some(path) => files_from::read_some(path.as_ref(), MAX_TICKET_BYTES)
            .map_err(|error| failed(path, error))?,
        None if arg.0 == "-" => typed().map_err(|error| failed("from standard input", error))?,
        None => {
            return Err(Exit::usage(
                "a ticket or a code is a secret, and other users can see a command's arguments: \
                 write @FILE, or - for standard input",
            ));
        }
    };
    parse(&String::from_utf8_lossy(&bytes), depot)
}

/// What standard input has; of a terminal one line, which is asked for.
fn typed() -> std::io::Result<Vec<u8>> {
    let stdin = std::io::stdin();
    let mut bytes = Vec::new();
    if stdin.is_terminal() {
        let _ = write!(std::io::stderr().lock(), "ticket or code: ");
        stdin.lock().take(MAX_TICKET_BYTES).read_until(b'\n', &mut bytes)?;
    } else {
        stdin.lock().take(MAX_TICKET_BYTES).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// A code is short; everything else must be a ticket.
fn parse(text: &str, depot: Option<&Place>) -> Result<ClaimTicket, Exit> {
    const LONGEST_CODE: usize = 40;
    let text = text.trim();
    if text.is_empty() || text.len() > LONGEST_CODE || text.starts_with("pc1-") {
        return text.parse().map_err(|error| Exit::usage(format!("the ticket: {error}")));
    }
    let code: ClaimCode = text.parse().map_err(|e: ClaimCodeError| Exit::usage(e.to_string()))?;
    let depot = depot.ok_or_else(|| {
        Exit::usage("a code does not name its depot: add --at HOST:PORT, as the sender printed it")
    })?;
    Ok(ClaimTicket::of_code(&code, depot.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_told_from_tickets() {
        let depot: Place = "depot.example:7879".parse().expect("a place");
        let code = ClaimCode::random().to_text();
        let text =
            |result: Result<ClaimTicket, Exit>| result.map_err(|exit| exit.into_error().text);
        assert!(text(parse(&format!(" {code}\n"), Some(&depot))).is_ok());
        let without = text(parse(&code, None)).expect_err("which depot?");
        assert!(without.contains("--at HOST:PORT"), "{without}");
        for (bad, says) in [
            ("", "begins with `pc1-`"),
            ("pc1-AAAA", "damaged ticket"),
            ("2k7xqa-m3c9v0", "18 letters"),
            ("000000-000000-000001", "a letter of the code is wrong"),
        ] {
            let error = text(parse(bad, Some(&depot))).expect_err(bad);
            assert!(error.contains(says), "{bad}: {error}");
        }
    }
}

//! `send` and `claim`.

use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;

use clap::ArgMatches;
use packtrain_client::store_forward::{
    self as deposit, ClaimRequest, ClaimTicket, SendRequest, Sent,
};
use packtrain_service::{
    CpRequest, FailureKind, Location, Options, Outcome, RequestError, Resume, SshSettings,
    StopHandle, TransportChoice,
};

use super::cp::{Run, failed, print_resume_command};
use super::{files_from, request};
use crate::args::{ClaimArgs, SendArgs, TicketArg};
use crate::exit::{Code, Exit, print_message};
use crate::out::console::ConsoleReporter;
use crate::out::summary::{self, Work};
use crate::out::{deposit as print_deposit, done, json_line, line as print_line, quote, shown};
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
        print_message(&format!("{}: {}", shown(path), failure.text));
    }
    let command = outcome.resumable.then(|| quote::command(line));
    match &outcome.failure {
        Some(failure) => print_message(&failure.text),
        None => print_ticket(args, &ticket, &outcome, &console),
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

/// Prints the ticket, or the name of its file.
fn print_ticket(
    args: &SendArgs,
    ticket: &ClaimTicket,
    outcome: &Outcome,
    console: &ConsoleReporter,
) {
    let text = args.ticket.is_none().then(|| ticket.to_text());
    if args.output.json {
        print_deposit::ticket(ticket, text.as_deref());
    } else if let Some(text) = text {
        print_line(&text);
    }
    if console.wants_summary() && !args.output.json {
        print_message(&summary::sentence(outcome, Work::Copy));
    }
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
    let ticket = ticket(&args.ticket)?;
    let dest = Location::parse(&args.dst).map_err(|e| Exit::usage(e.to_string()))?;
    if !matches!(dest, Location::Local(_) | Location::Stdio) {
        let text = format!("{dest} is not on this machine: run claim where the files are to be");
        return Err(Exit::usage(text));
    }
    request::check_pipes(&[], &dest, &args.output, &args.writing)?;
    let options = Options {
        recursive: true,
        resume: if args.no_resume { Resume::Off } else { Resume::On },
        update: args.update,
        ..request::writing(&args.writing, Options::default())?
    };
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

/// Reads a ticket from its file or standard input. Errors never show its text.
fn ticket(arg: &TicketArg) -> Result<ClaimTicket, Exit> {
    let failed = |name: &str, error: std::io::Error| {
        Exit::Failed(RequestError::new(FailureKind::Usage, format!("the ticket {name}: {error}")))
    };
    let bytes = match arg.0.strip_prefix('@') {
        Some(path) => files_from::read_some(path.as_ref(), MAX_TICKET_BYTES)
            .map_err(|error| failed(path, error))?,
        None if arg.0 == "-" => {
            let mut bytes = Vec::new();
            let read = std::io::stdin().lock().take(MAX_TICKET_BYTES).read_to_end(&mut bytes);
            read.map_err(|error| failed("from standard input", error))?;
            bytes
        }
        None => {
            return Err(Exit::usage(
                "a ticket is a secret, and other users can see a command's arguments: write @FILE, or - for \
                 standard input",
            ));
        }
    };
    let text = String::from_utf8_lossy(&bytes);
    text.parse().map_err(|error| Exit::usage(format!("the ticket: {error}")))
}

//! Converts the arguments of `cp` and `verify` to a request, with the site's ceilings applied.

use std::ffi::OsString;

use clap::ArgMatches;
use packtrain_identity::config::Policy;
use packtrain_identity::tickets::Ticket;
use packtrain_runtime::candidate_paths::MAX_DEPOTS;
use packtrain_service::{
    CpRequest, ExtraOptions, HopTransport, Location, Options, RequestError, Resume, StopHandle,
    TransportChoice,
};
use packtrain_units::DataRate;

use super::{extra, files_from, rules, stores};
use crate::args::{
    CpArgs, FilterArgs, KeepArgs, OutputArgs, RemoteArgs, Streams, TicketArg, TransportArgs,
    VerifyArgs, Via, WriteArgs, precedence,
};
use crate::exit::Exit;

const MAX_TICKET: u64 = 4096;
const LIST_AND_PIPE: &str =
    "--files-from chooses below a directory, and a pipe carries one file: leave it out";
/// Said of options that may not be on the command line.
const FROM_ELSEWHERE: &str =
    "packtrain config show lists the options that variables and configuration files set";

/// The request that `cp` makes.
pub(crate) fn copy(args: &CpArgs, matches: &ArgMatches) -> Result<CpRequest, Exit> {
    let (dest, sources) =
        args.places.split_last().ok_or_else(|| Exit::usage("nothing to copy: write SRC... DST"))?;
    if sources.is_empty() {
        let only = dest.to_string_lossy();
        return Err(Exit::usage(format!("only `{only}` was named: write SRC... DST")));
    }
    let recursive = args.recursive || args.rsync.archive;
    if args.delete && !recursive {
        return Err(Exit::usage("--delete without -r has no directory to clean: add -r"));
    }
    let mut options = Options {
        recursive,
        resume: resume(args, matches),
        checksum: args.checksum,
        update: args.update,
        delete: args.delete,
        force_delete: args.force_delete,
        max_delete: args.max_delete,
        ..writing(&args.writing, chosen_files(&args.filter, matches)?)?
    };
    extra::preserve(args, &mut options)?;
    options.extra = Box::new(extra::options(args, &options)?);
    let mut request = request(sources, dest, options, &args.transport, &args.remote, &args.output)?;
    check_pipes(&request.sources, &request.dest, &args.output, &request.options)?;
    check_combination(&request.options)?;
    check_meaning(&request, matches)?;
    extra::removal(&request)?;
    extra::patterns(&mut request)?;
    Ok(request)
}

/// Adds the options of how files are written.
pub(super) fn writing(args: &WriteArgs, options: Options) -> Result<Options, Exit> {
    let (mode, times, owner) = preserve(args.preserve.as_deref())?;
    Ok(Options {
        dry_run: args.dry_run,
        inplace: args.inplace,
        preserve_mode: mode,
        preserve_times: times,
        preserve_owner: owner,
        ..options
    })
}

/// Refuses options that exclude each other. clap compares those of the command line and of
/// variables only: a value of a configuration file is a default to it.
pub(super) fn check_combination(options: &Options) -> Result<(), Exit> {
    options.check_combination().map_err(|why| Exit::usage(format!("{why} ({FROM_ELSEWHERE})")))
}

/// Refuses options that a pipe does not support.
pub(super) fn check_pipes(
    sources: &[Location],
    dest: &Location,
    output: &OutputArgs,
    options: &Options,
) -> Result<(), Exit> {
    if output.json && *dest == Location::Stdio {
        return Err(Exit::usage("--json and the data cannot both go to stdout: leave one out"));
    }
    let reads_stdin = sources.contains(&Location::Stdio);
    if options.dry_run && (*dest == Location::Stdio || reads_stdin) {
        return Err(Exit::usage("--dry-run does not apply to a pipe: leave it out"));
    }
    if options.files_from.is_some() && *dest == Location::Stdio {
        return Err(Exit::usage(LIST_AND_PIPE));
    }
    if reads_stdin { check_stdin(options) } else { Ok(()) }
}

/// Refuses options that do not apply to standard input as the source, and those that have read it.
pub(super) fn check_stdin(options: &Options) -> Result<(), Exit> {
    if options.files_from.is_some() {
        return Err(Exit::usage(LIST_AND_PIPE));
    }
    if files_from::stdin_is_read() {
        return Err(Exit::usage(
            "standard input cannot be the source and the value of an option: name a file for the \
             option",
        ));
    }
    Ok(())
}

/// The request that `verify` makes.
pub(crate) fn verify(args: &VerifyArgs, matches: &ArgMatches) -> Result<CpRequest, Exit> {
    let (hard_links, xattrs, acls) = (args.hard_links, args.xattrs, args.acls);
    let extra = ExtraOptions { hard_links, xattrs, acls, ..ExtraOptions::default() };
    let options = Options {
        recursive: true,
        verify: true,
        extra: Box::new(extra),
        checksum: true,
        dry_run: true,
        // What the source does not have is listed, also if the source has no file.
        delete: true,
        force_delete: true,
        resume: Resume::Off,
        ..chosen_files(&args.filter, matches)?
    };
    let [source, dest] = args.places.as_slice() else {
        return Err(Exit::usage("verify compares two places: write SRC DST"));
    };
    let sources = std::slice::from_ref(source);
    let (transport, remote) = (&args.transport, &args.remote);
    let request = request(sources, dest, options, transport, remote, &args.output)?;
    if request.dest == Location::Stdio || request.sources.contains(&Location::Stdio) {
        return Err(Exit::usage("verify compares files, not pipes: name two files"));
    }
    check_meaning(&request, matches)?;
    Ok(request)
}

/// The request that `diagnose` makes to a host.
pub(crate) fn probe(
    place: &OsString,
    transport: &TransportArgs,
    remote: &RemoteArgs,
    keep: &KeepArgs,
) -> Result<CpRequest, Exit> {
    let output = OutputArgs::silent(keep);
    // The source file is created later.
    let source = OsString::from("./probe");
    request(&[source], place, Options::default(), transport, remote, &output)
}

fn request(
    sources: &[OsString],
    dest: &OsString,
    options: Options,
    transport: &TransportArgs,
    remote: &RemoteArgs,
    output: &OutputArgs,
) -> Result<CpRequest, Exit> {
    let place = |text: &OsString| Location::parse(text).map_err(|e| Exit::usage(e.to_string()));
    let sources: Vec<Location> = sources.iter().map(place).collect::<Result<_, _>>()?;
    let dest = place(dest)?;
    check_places(&sources, &dest)?;
    let clear = sources.iter().any(|source| matches!(source, Location::Udt4 { .. }));
    let policy = super::policy()?;
    let over = if clear { TransportChoice::Udt4 } else { transport.transport };
    allow(&policy, over, remote.accept_new_host)?;
    let rate = policy.rate(transport.rate).map(DataRate::as_bps);
    let (via, depots) = match &transport.via {
        Via::Over(via) => (via.clone(), Vec::new()),
        Via::Auto => (Vec::new(), transport.depots.clone()),
    };
    if depots.len() > MAX_DEPOTS {
        let text = format!("--depots: {MAX_DEPOTS} at most, these are {}", depots.len());
        return Err(Exit::usage(text));
    }
    Ok(CpRequest {
        sources,
        dest,
        options: Options { rate_bps: rate, ..options },
        transport: transport.transport,
        cc: transport.cc.clone(),
        streams: match transport.streams {
            Some(Streams::Fixed(n)) => Some(policy.streams(n)),
            Some(Streams::Auto) | None => None,
        },
        tcp_cc: transport.tcp_cc.clone(),
        tcp_buffer: transport.tcp_buffer.and_then(|buffer| buffer.0),
        hops: hops(&transport.hops, via.len())?,
        by_destination: by_destination(transport.by_destination, via.len())?,
        via,
        depots,
        background: transport.background,
        ssh: remote.ssh.settings(),
        ports: remote.ports,
        data_addr: remote.data_addr.clone(),
        ticket: remote.ticket.as_ref().map(ticket).transpose()?,
        accept_new_host: remote.accept_new_host,
        retries: remote.retries,
        explain: output.explain,
        log_file: output.log_file.clone(),
        history: output.keep.keep()?,
        stop: StopHandle::new(),
    })
}

/// Checks a choice against the site's policy.
pub(crate) fn allow(policy: &Policy, transport: TransportChoice, new: bool) -> Result<(), Exit> {
    let refused = |e: packtrain_identity::config::PolicyError| {
        RequestError::new(packtrain_service::FailureKind::NotAuthorised, e.to_string())
    };
    policy.check_transport(transport.name()).map_err(refused)?;
    policy.check_new_host(new).map_err(refused)?;
    Ok(())
}

/// Reads a ticket from its text, or from a file if the text begins with `@`.
pub(crate) fn ticket(arg: &TicketArg) -> Result<Ticket, Exit> {
    let text = match arg.0.strip_prefix('@') {
        Some(path) => files_from::read_some(path.as_ref(), MAX_TICKET)
            .and_then(|bytes| {
                String::from_utf8(bytes).map_err(|_| std::io::ErrorKind::InvalidData.into())
            })
            .map_err(|error| Exit::usage(format!("--ticket @{path}: {error}: check the name")))?,
        None => arg.0.clone(),
    };
    text.parse().map_err(|error| Exit::usage(format!("--ticket: {error}")))
}

/// Refuses what a stock UDT server does not support: its protocol has only the size and the bytes
/// of one file.
fn check_udt4(request: &CpRequest, given: &dyn Fn(&str) -> bool) -> Result<(), Exit> {
    if request.options.verify {
        return Err(Exit::usage("verify needs packtrain at both places, not udt4://"));
    }
    if request.sources.len() > 1 {
        return Err(Exit::usage("udt4:// is read one file at a time: name one source"));
    }
    if !matches!(request.dest, Location::Local(_) | Location::Stdio) {
        return Err(Exit::usage(
            "from udt4:// a file can only come to this machine: name a path or -",
        ));
    }
    const NOT: &[&str] = &[
        "recursive",
        "resume",
        "checksum",
        "update",
        "delete",
        "dry_run",
        "preserve",
        "inplace",
        "exclude",
        "include",
        "filter",
        "rsync_filter",
        "exclude_from",
        "include_from",
        "files_from",
        "archive",
        "transport",
        "cc",
        "streams",
        "tcp_cc",
        "tcp_buffer",
        "via",
        "depots",
        "hops",
        "by_destination",
        "background",
        "ssh",
        "remote_path",
        "bootstrap",
        "ports",
        "data_addr",
        "ticket",
        "accept_new_host",
    ];
    const WHY: &str = "does not apply to udt4://, whose protocol has only the size and bytes of one file: leave it out";
    if let Some(option) = first_given(NOT, given).or_else(|| first_given(extra::IDS, given)) {
        return Err(Exit::usage(format!("{option} {WHY}")));
    }
    // One file has no other file system, and is fetched whatever is there.
    match extra::protecting(&request.options, &["one-file-system", "size-only", "checksum"]) {
        None => Ok(()),
        Some(option) => Err(Exit::usage(format!("--{option} {WHY} ({FROM_ELSEWHERE})"))),
    }
}

/// The first of these options on the command line, in the user's spelling.
pub(super) fn first_given(ids: &[&str], given: &dyn Fn(&str) -> bool) -> Option<String> {
    let id = ids.iter().find(|id| given(id))?;
    Some(format!("--{}", id.replace('_', "-")))
}

fn check_places(sources: &[Location], dest: &Location) -> Result<(), Exit> {
    let Some(first) = sources.first() else {
        return Err(Exit::usage("nothing to copy: write SRC... DST"));
    };
    if matches!(dest, Location::Udt4 { .. }) {
        return Err(Exit::usage("udt4:// can only be read: its protocol has no uploads"));
    }
    if let Some(other) = sources.iter().find(|source| !first.same_end(source)) {
        return Err(Exit::usage(format!(
            "{first} and {other} are at different places: copy from one place at a time"
        )));
    }
    if sources.len() > 1 && (sources.contains(&Location::Stdio) || *dest == Location::Stdio) {
        return Err(Exit::usage("a pipe carries one file: copy one at a time"));
    }
    if *first == Location::Stdio && *dest == Location::Stdio {
        return Err(Exit::usage("standard input to standard output: use cat"));
    }
    Ok(())
}

/// How each depot is reached: one word per depot, or one word for all.
fn hops(words: &[HopTransport], depots: usize) -> Result<Vec<HopTransport>, Exit> {
    match words {
        [] => Ok(Vec::new()),
        _ if depots == 0 => Err(Exit::usage("--hops applies to depots: name them by --via")),
        [one] => Ok(vec![*one; depots]),
        many if many.len() == depots => Ok(many.to_vec()),
        many => Err(Exit::usage(format!(
            "--hops has {} words for {depots} depots: one for each, first to last, or one for all",
            many.len()
        ))),
    }
}

/// Whether the named depots may forward by their tables.
fn by_destination(asked: bool, depots: usize) -> Result<bool, Exit> {
    if asked && depots == 0 {
        let text = "--by-destination applies to depots: name the first one by --via";
        return Err(Exit::usage(text));
    }
    Ok(asked)
}

/// Refuses options on the command line that have no effect. Those that keep or choose files are
/// refused from every source where they have none.
fn check_meaning(request: &CpRequest, matches: &ArgMatches) -> Result<(), Exit> {
    let given = |id: &str| precedence(matches, id) == 3;
    if request.sources.iter().any(|source| matches!(source, Location::Udt4 { .. })) {
        return check_udt4(request, &given);
    }
    if request.sources.iter().chain([&request.dest]).any(stores::is_store) {
        return stores::check(request, &given);
    }
    check_depots(request, matches.get_one::<Via>("via"), &given)?;
    let transport = request.transport;
    let not_tcp = !matches!(transport, TransportChoice::Auto | TransportChoice::Tcp);
    for id in ["streams", "tcp_cc", "tcp_buffer"] {
        if given(id) && not_tcp {
            let (option, name) = (id.replace('_', "-"), transport.name());
            let text = format!("--{option} applies to TCP, not to {name}: leave one out");
            return Err(Exit::usage(text));
        }
    }
    if !request.via.is_empty() && not_tcp {
        let name = transport.name();
        return Err(Exit::usage(format!(
            "the ends of a path over depots use TCP, whatever --hops says of the hops between: \
             leave out --transport {name} or --via"
        )));
    }
    if given("cc") && matches!(transport, TransportChoice::Tcp | TransportChoice::Pipe) {
        let name = transport.name();
        return Err(Exit::usage(format!(
            "--cc applies to native, udt, fobs and sabul; tcp has --tcp-cc, the kernel's: \
             {name} takes no --cc"
        )));
    }
    use TransportChoice::{Fobs, Sabul, Udt};
    if given("background") && matches!(transport, Udt | Fobs | Sabul) {
        return Err(Exit::usage("--background needs the controller of native: leave one out"));
    }
    if given("data_addr")
        && request.dest.is_remote()
        && request.sources.iter().any(Location::is_remote)
    {
        return Err(Exit::usage(
            "--data-addr is an address of one other end, and both places are on other machines: \
             leave it out, or run the command at one of them",
        ));
    }
    let mut places = request.sources.iter().chain([&request.dest]);
    if given("ticket") && !places.any(|place| matches!(place, Location::Server { .. })) {
        return Err(Exit::usage(
            "--ticket is for a server: write its place as pt://host:port/path",
        ));
    }
    Ok(())
}

/// Checks the options of depots. Values from a file or the environment apply only to the transfers
/// that they fit.
fn check_depots(
    request: &CpRequest,
    via: Option<&Via>,
    given: &dyn Fn(&str) -> bool,
) -> Result<(), Exit> {
    let auto = via == Some(&Via::Auto);
    if given("depots") && !auto {
        return Err(Exit::usage(
            "--via auto chooses from --depots: add --via auto, or leave --depots out",
        ));
    }
    if !given("via") || !auto {
        return Ok(());
    }
    let far = |place: &Location| place.is_remote();
    let text = match (request.sources.iter().any(far), far(&request.dest)) {
        (false, false) => {
            "--via applies to transfers to another machine: both places are on this one"
        }
        (true, true) => {
            "--via needs one of the two places on this machine: run the command at one of them"
        }
        _ if request.depots.is_empty() => {
            "--via auto has no depots to choose from: name them with --depots, or once for all in \
             config.toml: depots = [\"depot.example.org:7879\"]"
        }
        _ => match request.transport {
            TransportChoice::Auto | TransportChoice::Tcp => return Ok(()),
            other => {
                let name = other.name();
                return Err(Exit::usage(format!(
                    "depots are chosen for TCP: leave out --transport {name} or --via auto"
                )));
            }
        },
    };
    Err(Exit::usage(text))
}

/// Resolves `--resume` against `--no-resume`: command line over environment over configuration; on
/// the same level the later one applies.
fn resume(args: &CpArgs, matches: &ArgMatches) -> Resume {
    let weight = |id: &str| {
        (precedence(matches, id), matches.indices_of(id).and_then(Iterator::last).unwrap_or(0))
    };
    let off = if args.no_resume { weight("no_resume") } else { (0, 0) };
    let on = if args.resume.is_some() { weight("resume") } else { (0, 0) };
    match args.resume.as_deref() {
        _ if off > on => Resume::Off,
        Some("trust") => Resume::Trust,
        _ => Resume::On,
    }
}

/// Which of mode, times and owner to preserve.
fn preserve(list: Option<&str>) -> Result<(bool, bool, bool), Exit> {
    let Some(list) = list else { return Ok((true, true, false)) };
    let (mut mode, mut times, mut owner) = (false, false, false);
    for word in list.split(',').map(str::trim) {
        match word {
            "all" => (mode, times, owner) = (true, true, true),
            "none" | "" => {}
            "mode" => mode = true,
            "times" | "timestamps" => times = true,
            "owner" | "ownership" => owner = true,
            "links" | "hardlinks" => {
                return Err(Exit::usage(format!(
                    "--preserve={word} is not known: use -H to keep hard links"
                )));
            }
            "xattr" | "xattrs" => {
                return Err(Exit::usage(format!(
                    "--preserve={word} is not known: use -X to copy extended attributes"
                )));
            }
            "acl" | "acls" => {
                return Err(Exit::usage(format!(
                    "--preserve={word} is not known: use -A to copy access control lists"
                )));
            }
            "context" => {
                return Err(Exit::usage(format!(
                    "--preserve={word} is not in this version: use mode, times, owner"
                )));
            }
            other => {
                return Err(Exit::usage(format!(
                    "--preserve={other} is not known: use mode, times, owner, all or none"
                )));
            }
        }
    }
    Ok((mode, times, owner))
}

/// The filter rules in the order given, and the list of files.
pub(super) fn chosen_files(args: &FilterArgs, matches: &ArgMatches) -> Result<Options, Exit> {
    let mut all: Vec<(usize, String)> = Vec::new();
    let mut add = |id: &str, values: Vec<String>| {
        let indices = matches.indices_of(id).into_iter().flatten();
        all.extend(indices.zip(values));
    };
    let signed = |sign: &str, patterns: &[String]| -> Vec<String> {
        patterns.iter().map(|pattern| format!("{sign} {pattern}")).collect()
    };
    add("exclude", signed("-", &args.exclude));
    add("include", signed("+", &args.include));
    for (id, sign, files) in
        [("exclude_from", "-", &args.exclude_from), ("include_from", "+", &args.include_from)]
    {
        let indices = matches.indices_of(id).into_iter().flatten();
        for (index, file) in indices.zip(files) {
            let lines = files_from::rules(id, sign, file, args.from0)?;
            all.extend(lines.into_iter().map(|rule| (index, rule)));
        }
    }
    let indices = matches.indices_of("filter").into_iter().flatten();
    for (index, text) in indices.zip(&args.filter) {
        let parsed = rules::parse(text, args.from0)?;
        all.extend(parsed.into_iter().map(|rule| (index, rule)));
    }
    if let Some(index) = matches.indices_of("rsync_filter").and_then(Iterator::last)
        && args.rsync_filter > 0
    {
        let text = if args.rsync_filter > 1 { ":e .rsync-filter" } else { ": .rsync-filter" };
        all.extend(rules::parse(text, args.from0)?.into_iter().map(|rule| (index, rule)));
    }
    // Stable: the rules of a file keep their order.
    all.sort_by_key(|(index, _)| *index);
    let files_from =
        args.files_from.as_ref().map(|path| files_from::read(path, args.from0)).transpose()?;
    Ok(Options {
        filters: all.into_iter().map(|(_, rule)| rule).collect(),
        files_from,
        ..Options::default()
    })
}

#[cfg(test)]
#[path = "request_tests.rs"]
pub(crate) mod tests;

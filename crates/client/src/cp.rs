//! `cp` and `verify`: brings the two ends together and reports.

mod depots;
mod earlier;
mod into_itself;
mod origin;
mod relay;
mod remote;
mod stopped;
mod tries;
mod watch;

use packtrain_net::tcp::tune::check_congestion;
use packtrain_object::SourceName;
use packtrain_os::clock;
use packtrain_transfer::message::{Open, Options, Role};
use packtrain_transfer::{Failure, FailureKind};
use packtrain_units::{ByteCount, Duration, Time};

use depots::check_via;
use earlier::EarlierTries;
pub(crate) use origin::origin;
use packtrain_hops::route::Routes;
use packtrain_runtime::handshake::{
    self, Agreed, Greeted, More, PathRequest, RunRequest, SessionRequest,
};
use packtrain_runtime::permissions::Permissions;
use packtrain_runtime::session::{Stop, only_own_signal};
use packtrain_runtime::sink::{self, Destination, SinkSetup};
use packtrain_runtime::source::{self, SourceSetup, SourceSpec};
use packtrain_runtime::transports::{Hints, LocalLink, Moved, SinkTransports, SourceTransports};
use packtrain_runtime::{calling, control};
use packtrain_service::ceilings::Ceilings;
use packtrain_service::{
    CpRequest, Location, Outcome, Reporter, RequestError, TransportChoice, TransportShare, history,
};
use packtrain_stores as stores;
use remote::RemoteEnd;
use tries::Returns;
pub(crate) use tries::{RETRY, again};
use watch::Watch;

/// Carries a request out, again after temporary failures as often as it allows.
///
/// # Errors
/// What failed before there was a transfer; later failures are in the outcome.
pub fn run(mut request: CpRequest, reporter: &dyn Reporter) -> Result<Outcome, RequestError> {
    request.options.check_combination().map_err(usage)?;
    request.options.extra.origin = origin(&request);
    let routes = Routes::default();
    let reporter = &Returns::of(&request, reporter);
    let is_over = || pipe_in_use().is_some();
    let mut earlier = EarlierTries::none(&request);
    let mut result = again(&request, reporter, &routes, &is_over, || {
        let mut result = match earlier.left(&request) {
            Some(left) => once(&left, &earlier.moved(), reporter, &routes),
            None => Ok(Outcome::default()),
        };
        earlier.forgive(&request, reporter.take_moved(), &mut result);
        earlier.add(&result);
        result
    });
    if let Ok(outcome) = &mut result {
        earlier.complete(outcome);
    }
    if let Some(why) = pipe_in_use() {
        tell_pipe(&mut result, why);
    }
    result
}

/// Why another try would not repeat the whole copy, if a pipe has begun.
fn pipe_in_use() -> Option<&'static str> {
    if source::stdin_is_taken() {
        return Some("a part of standard input was read already");
    }
    let text = "standard output has the beginning already";
    packtrain_udt4_service::stdout_is_begun().then_some(text)
}

/// Adds to a temporary failure why it was not tried again.
fn tell_pipe(result: &mut Result<Outcome, RequestError>, why: &str) {
    let (kind, text) = match result {
        Ok(Outcome { failure: Some(failure), .. }) => (failure.kind, &mut failure.text),
        Ok(_) => return,
        Err(error) => (error.kind, &mut error.text),
    };
    if kind == FailureKind::Temporary {
        text.push_str(&format!("; not tried again: {why}; run the whole pipe again"));
    }
}

/// One try. The sources in `moved` are at the target already.
fn once(
    request: &CpRequest,
    moved: &[Location],
    reporter: &dyn Reporter,
    routes: &Routes,
) -> Result<Outcome, RequestError> {
    if request.sources.iter().chain([&request.dest]).any(|l| matches!(l, Location::Udt4 { .. })) {
        let watched = history::CopyRecorder::new(reporter);
        let mut result = packtrain_udt4_service::fetch(request, &watched);
        watched.finish(request, &mut result);
        return result;
    }
    if request.transport == TransportChoice::Udt4 {
        return Err(usage("udt4 is a place in cp: write udt4://host:port/name"));
    }
    if !moved.is_empty() && moved.len() == request.sources.len() {
        return Ok(Outcome::default());
    }
    let begun = clock::now();
    let here = |l: &Location| matches!(l, Location::Local(_) | Location::Stdio);
    let local_source = request.sources.iter().all(here);
    let local_dest = here(&request.dest);
    if !local_source && request.sources.iter().any(here) {
        return Err(usage("the sources are at different places: name sources at one place only"));
    }
    packtrain_runtime::transports::udp::check_controller(request.transport, request.cc.as_deref())?;
    if let Some(name) = request.tcp_cc.as_deref().filter(|_| local_source) {
        check_congestion(name).map_err(|e| usage(&e.to_string()))?;
    }
    let store = request.sources.iter().chain([&request.dest]).any(stores::is_store);
    check_via(request, store, local_source && local_dest, !local_source && !local_dest)?;
    let watch = Watch::new(reporter, request, routes.clone());
    let ended = match (local_source, local_dest) {
        // Between two tries.
        _ if request.stop.requested().is_some() => Err(stopped::wish(&request.stop).into()),
        _ if store => store_copy(request, &watch),
        (true, true) => copy_here(request, &watch),
        (true, false) => push(request, moved, &watch),
        (false, true) => pull(request, &watch),
        (false, false) => third_party(request, &watch),
    };
    let ended = stopped::classify(request, ended);
    close(request, &watch, begun, ended, reporter)
}

/// A copy here from a session that depots keep, of which its sender named so many sources.
pub(crate) fn claimed(
    request: &CpRequest,
    spec: SourceSpec,
    sources: usize,
    reporter: &dyn Reporter,
) -> Result<Outcome, RequestError> {
    let begun = clock::now();
    let watch = Watch::new(reporter, request, Routes::default());
    let work = || {
        let spool = match request.dest {
            Location::Stdio => Some(watch::Spool::make(request)?),
            _ => None,
        };
        let destination = match &spool {
            // Its ticket says which session, and not what is in it.
            Some(spool) => spool.destination(None),
            None => Destination { sources, names: None, ..destination(request)? },
        };
        let (outcome, mut moved) = local(request, &watch, spec, destination)?;
        for share in &mut moved.shares {
            "depots".clone_into(&mut share.0);
        }
        if let Some(spool) = spool {
            spool.emit(&outcome, &watch)?;
        }
        Ok((outcome, moved))
    };
    let ended = work();
    close(request, &watch, begun, ended, reporter)
}

fn close(
    request: &CpRequest,
    watch: &Watch<'_>,
    begun: Time,
    mut ended: Result<Ended, RequestError>,
    reporter: &dyn Reporter,
) -> Result<Outcome, RequestError> {
    match &mut ended {
        Ok((outcome, _)) => {
            if let Some(failure) = &mut outcome.failure {
                only_own_signal(&mut failure.kind, &request.stop);
            }
        }
        Err(error) => only_own_signal(&mut error.kind, &request.stop),
    }
    let (result, said) = match ended {
        Ok((outcome, moved)) => {
            let outcome = finish(request, outcome, moved, watch, clock::now().since(begun));
            let said =
                watch.book().close(&outcome, request.options.dry_run && !request.options.verify);
            (Ok(outcome), said)
        }
        Err(error) => {
            let said = watch.book().fail(&error);
            (Err(error), said)
        }
    };
    if let Some(notice) = said {
        reporter.notice(&notice);
    }
    result
}

fn usage(text: &str) -> RequestError {
    RequestError::new(FailureKind::Usage, text)
}

fn finish(
    request: &CpRequest,
    outcome: packtrain_transfer::Outcome,
    moved: Moved,
    watch: &Watch<'_>,
    elapsed: Duration,
) -> Outcome {
    let dry = request.options.dry_run || request.options.verify;
    let mut summary = outcome.summary;
    let extra = if request.options.verify { std::mem::take(&mut summary.deleted) } else { 0 };
    let mut failed = outcome.failed;
    if let Some(whole) = &outcome.failure {
        // What ended the whole is said once.
        failed.retain(|(_, failure)| failure.kind != whole.kind);
    }
    let shares: Vec<TransportShare> = moved
        .shares
        .iter()
        .map(|(name, bytes)| TransportShare { name: name.clone(), bytes: *bytes })
        .collect();
    let transport = shares.first().map_or("none", |share| share.name.as_str()).to_owned();
    // What never began, will fail the same way again, or went through a pipe is not to be resumed.
    let is_piped = request.dest == Location::Stdio || request.sources.contains(&Location::Stdio);
    let resumable = outcome.failure.as_ref().is_some_and(|failure| tries::may_pass(failure.kind))
        && !dry
        && request.options.resume != packtrain_transfer::Resume::Off
        && !is_piped;
    let moved_bytes = packtrain_units::ByteCount(outcome.summary.bytes_moved);
    // What moved nothing was not limited.
    let nothing = outcome.summary.bytes_moved == 0 && outcome.summary.files_moved == 0;
    let diagnosis = watch.book().judge(moved_bytes, outcome.summary.files_moved);
    Outcome {
        id: watch.book().id(),
        summary,
        elapsed,
        transport,
        shares,
        retransmitted: moved.retransmitted,
        loss_cause: moved.causes,
        verdict: if dry || nothing { None } else { diagnosis.verdict() },
        rtt: moved.rtt,
        held_by: moved.held.map(|by| by.word().to_owned()),
        streams: moved.streams,
        differing: watch.differing(),
        extra,
        dry_run: request.options.dry_run && !request.options.verify,
        metadata: watch.metadata(),
        resumable,
        failure: outcome.failure,
        failed,
    }
}

fn ask(request: &CpRequest, routes: &Routes) -> SessionRequest {
    SessionRequest {
        perf: None,
        sources: request.sources.len() as u32,
        choice: handshake::number(transport(request)),
        cc: request.cc.clone(),
        streams: request.streams.unwrap_or(0),
        background: request.background,
        ports: request.ports.map(|p| (p.first, p.last)),
        ticket: None,
        peer: Vec::new(),
        ceilings: Ceilings::default(),
        more: More {
            tcp_cc: request.tcp_cc.clone(),
            tcp_buffer: request.tcp_buffer.map(ByteCount::get),
        },
        path: PathRequest { relayed: !request.via.is_empty() },
        run: RunRequest { number: (!request.via.is_empty()).then(|| routes.number()) },
        options: (*request.options.extra).clone(),
        query: None,
    }
}

/// What moves the bytes: over depots only TCP does.
fn transport(request: &CpRequest) -> TransportChoice {
    match request.transport {
        TransportChoice::Auto if !request.via.is_empty() => TransportChoice::Tcp,
        choice => choice,
    }
}

fn own_limits(request: &CpRequest) -> Result<Permissions, RequestError> {
    Ok(Permissions { ports: request.ports, ..Permissions::by_policy()? })
}

/// What this end reads: the sources that an earlier try has not moved.
fn source_spec(request: &CpRequest, moved: &[Location]) -> Result<SourceSpec, RequestError> {
    if request.sources.iter().any(|s| matches!(s, Location::Stdio)) {
        if request.sources.len() > 1 {
            return Err(usage("standard input can only be the one source"));
        }
        let path = match &request.dest {
            Location::Local(path)
            | Location::Ssh { path, .. }
            | Location::Server { path, .. }
            | Location::Udt4 { path, .. } => path,
            Location::Http { .. } | Location::S3 { .. } => {
                return Err(usage("standard input cannot go to a store in this version"));
            }
            Location::Stdio => return Err(usage("standard input to standard output: use cat")),
        };
        let name = path.rsplit(|b| *b == b'/').next().unwrap_or_default().to_vec();
        if name.is_empty() {
            return Err(usage("standard input needs a file name to be written to"));
        }
        return Ok(SourceSpec::Stdin(name));
    }
    let left = request.sources.iter().filter(|source| !moved.contains(source));
    Ok(SourceSpec::Paths(paths(left)))
}

fn paths<'a>(locations: impl IntoIterator<Item = &'a Location>) -> Vec<Vec<u8>> {
    locations
        .into_iter()
        .map(|location| match location {
            Location::Stdio => Vec::new(),
            place => place.path().to_vec(),
        })
        .collect()
}

/// What the request's sources are called at the destination: nothing else is taken from them.
/// None if standard input is the source, which is this process.
fn names(request: &CpRequest) -> Option<Vec<SourceName>> {
    let mut names = Vec::with_capacity(request.sources.len());
    for source in &request.sources {
        match source {
            Location::Stdio => return None,
            Location::Http { url, .. } => names.push(stores::name_of(url)),
            // The other end may take it for its home directory, or for a name.
            place if place.path() == b"~" => {
                names.extend([SourceName::Contents, SourceName::of(place.path())]);
            }
            place => names.push(SourceName::of(place.path())),
        }
    }
    Some(names)
}

fn destination(request: &CpRequest) -> Result<Destination, RequestError> {
    match &request.dest {
        Location::Local(path) => {
            let (path, sources) = (path.clone(), request.sources.len());
            let names = names(request);
            Ok(Destination { path, confined: None, sources, names, owners: true })
        }
        _ => Err(usage("this destination cannot be written here")),
    }
}

type Ended = (packtrain_transfer::Outcome, Moved);

/// From here to here.
fn copy_here(request: &CpRequest, watch: &Watch<'_>) -> Result<Ended, RequestError> {
    if matches!(request.dest, Location::Stdio) {
        return Err(usage("from here to standard output: use cat"));
    }
    into_itself::refuse(request)?;
    local(request, watch, source_spec(request, &[])?, destination(request)?)
}

/// Both ends in this process.
fn local(
    request: &CpRequest,
    watch: &Watch<'_>,
    spec: SourceSpec,
    destination: Destination,
) -> Result<Ended, RequestError> {
    let (near, far) = control::pair().map_err(|e| {
        RequestError::new(FailureKind::Fatal, format!("no pair of sockets to be had: {e}"))
    })?;
    let plan = SessionRequest { choice: 3, ..ask(request, &watch.routes) };
    // Between two ends of one process nothing leaves the machine: no policy on transports.
    let limits = own_limits(request)?.any_transport();
    let none = Ceilings::default();
    let plan = plan.plan(Hints::default(), &limits, &none, request.options.rate_bps);
    let link = LocalLink::default();
    let options = request.options.clone();
    let sink_stop = Stop::new(request.stop.clone());
    let transports = SinkTransports::local(plan.clone(), far.tx.clone(), link.clone());
    let ended = std::thread::scope(|scope| {
        let sink_options = options.clone();
        let sink = scope.spawn(move || {
            let tx = far.tx.clone();
            let control = far;
            let options = sink_options;
            let setup = SinkSetup {
                changed_pieces: false,
                control,
                options,
                destination,
                observer: watch,
                transports,
                stop: sink_stop,
            };
            let outcome = sink::run(setup).0;
            tx.close();
            outcome
        });
        let tx = near.tx.clone();
        let setup = SourceSetup {
            control: near,
            options,
            // The sink is here too and tells of files and progress.
            observer: &watch::Notices(watch),
            transports: SourceTransports::local(plan, link),
            stop: Stop::new(request.stop.clone()),
        };
        let (outcome, moved) = source::run(setup, spec);
        tx.close();
        // The sink knows more: a local failure of its own comes first.
        let sink = sink.join().unwrap_or_else(|_| {
            sink::ended(Failure::new(FailureKind::Fatal, "the receiving end failed: a bug"))
        });
        let better =
            if sink.failure.is_some() || outcome.failure.is_none() { sink } else { outcome };
        (better, moved)
    });
    Ok(ended)
}

/// From or to somebody else's server.
fn store_copy(request: &CpRequest, watch: &Watch<'_>) -> Result<Ended, RequestError> {
    // The sink's own transports are not used: the streams are not between two ends of ours.
    let plan = SessionRequest { choice: 3, ..ask(request, &watch.routes) };
    let limits = own_limits(request)?.any_transport();
    let none = Ceilings::default();
    let plan = plan.plan(Hints::default(), &limits, &none, request.options.rate_bps);
    if stores::is_store(&request.dest) {
        return stores::send(request, watch, plan);
    }
    let to_stdout = matches!(request.dest, Location::Stdio);
    let spool = if to_stdout { Some(watch::Spool::new(request)?) } else { None };
    let destination = match &spool {
        Some(spool) => spool.destination(names(request)),
        None => destination(request)?,
    };
    let ended = stores::fetch(request, destination, watch, plan)?;
    if let Some(spool) = spool {
        spool.emit(&ended.0, watch)?;
    }
    Ok(ended)
}

/// A request must fit one frame.
const MAX_LIST: usize = 900 << 10;

fn open(
    request: &CpRequest,
    role: Role,
    paths: Vec<Vec<u8>>,
    sources: Option<Vec<SourceName>>,
    ask: &SessionRequest,
) -> Result<Open, RequestError> {
    let mut options: Options = request.options.clone();
    if role == Role::Sink && sources.is_none() {
        // This end is the source: it knows the list, the other only that there is one.
        options.files_from = options.files_from.map(|_| Vec::new());
    }
    let list: usize = options.files_from.iter().flatten().map(|name| name.len() + 5).sum();
    let rules: usize = options.filters.iter().map(|rule| rule.len() + 5).sum();
    let names: usize = sources.iter().flatten().map(SourceName::len).sum();
    if list + rules + names + paths.iter().map(Vec::len).sum::<usize>() > MAX_LIST {
        return Err(usage(
            "the list of names is too long to be sent to the source (900 KiB): split it, or run \
             the command at the source",
        ));
    }
    Ok(Open { role, paths, sources, options, channel: ask.encode() })
}

/// Whether the sink has said that all is durable.
fn is_done(ended: &Result<Ended, Failure>) -> bool {
    ended.as_ref().is_ok_and(|(outcome, _)| outcome.failure.is_none())
}

fn push(request: &CpRequest, moved: &[Location], watch: &Watch<'_>) -> Result<Ended, RequestError> {
    // It lists the files while the connection is made.
    let prepared = source::Prepared::start(source_spec(request, moved)?, &request.options);
    let route = watch.routes.over(&request.via, &request.hops, request.by_destination)?;
    let far = RemoteEnd::connect(request, &request.dest, route.as_deref(), watch)?;
    let stop = Stop::new(request.stop.clone());
    let limits = own_limits(request)?;
    let ask = SessionRequest {
        ticket: far.token(),
        ceilings: limits.ceilings.clone(),
        ..ask(request, &watch.routes)
    };
    // This end sends them and answers for them: it may be more than a request holds.
    let open = open(request, Role::Sink, paths([&request.dest]), None, &ask)?;
    let (control, mut plan, rest) = far.ready(request, &ask, &limits, route, watch)?;
    if let Some(host) = request.dest.host() {
        plan.earlier = history::earlier_to(&request.history, &request.remote_name(host));
    }
    let setup = SourceSetup {
        control,
        options: request.options.clone(),
        observer: watch,
        transports: SourceTransports::new(plan.clone()),
        stop,
    };
    let rate = request.options.rate_bps;
    let agree = move |agreed: Agreed| {
        watch.limits(&agreed.ceilings, &limits.ceilings);
        ask.agree(plan, &limits, &agreed, rate)
    };
    let ended = source::run_calling(setup, prepared, open, Box::new(agree));
    rest.finish(is_done(&ended));
    Ok(ended?)
}

fn pull(request: &CpRequest, watch: &Watch<'_>) -> Result<Ended, RequestError> {
    let to_stdout = matches!(request.dest, Location::Stdio);
    let spool = if to_stdout { Some(watch::Spool::new(request)?) } else { None };
    let destination = match &spool {
        Some(spool) => spool.destination(names(request)),
        None => destination(request)?,
    };
    let route = watch.routes.over(&request.via, &request.hops, request.by_destination)?;
    let far = RemoteEnd::connect(request, &request.sources[0], route.as_deref(), watch)?;
    let stop = Stop::new(request.stop.clone());
    let limits = own_limits(request)?;
    let ask = SessionRequest {
        ticket: far.token(),
        ceilings: limits.ceilings.clone(),
        ..ask(request, &watch.routes)
    };
    let open = open(request, Role::Source, paths(&request.sources), None, &ask)?;
    let (control, plan, rest) = far.ready(request, &ask, &limits, route, watch)?;
    let mut options = request.options.clone();
    // A try that loses its connection never hears what was removed, but it knows what it has.
    options.report_files |= options.removes_source();
    let setup = SinkSetup {
        changed_pieces: false,
        transports: SinkTransports::new(plan.clone(), control.tx.clone()),
        control,
        options,
        destination,
        observer: watch,
        stop,
    };
    let agree = move |agreed: Agreed| {
        watch.limits(&agreed.ceilings, &limits.ceilings);
        ask.agree(plan, &limits, &agreed, request.options.rate_bps)
    };
    let ended = calling::run_sink(setup, open, Box::new(agree));
    rest.finish(is_done(&ended));
    let (outcome, moved) = ended?;
    if let Some(spool) = spool {
        spool.emit(&outcome, watch)?;
    }
    Ok((outcome, moved))
}

fn third_party(request: &CpRequest, watch: &Watch<'_>) -> Result<Ended, RequestError> {
    let from = RemoteEnd::connect(request, &request.sources[0], None, watch)?;
    let to = RemoteEnd::connect(request, &request.dest, None, watch)?;
    let stop = Stop::new(request.stop.clone());
    let greeted = Greeted::hear(to.control(), &stop)?;
    let greeted = Greeted::hear(from.control(), &stop)?.with(&greeted)?;
    // What this machine's policy says counts too, and each end learns of the limits before it.
    let own = own_limits(request)?.ceilings;
    let ask = SessionRequest { ceilings: own.clone(), ..ask(request, &watch.routes) };
    let to_ask = SessionRequest { peer: from.addresses(), ticket: to.token(), ..ask.clone() };
    let place = paths([&request.dest]);
    let mut sink_open = open(request, Role::Sink, place, names(request), &to_ask)?;
    let removes = request.options.removes_source();
    // As in a pull.
    sink_open.options.report_files |= removes;
    let to_limits = greeted.call(to.control(), sink_open, &stop)?;
    watch.limits(&to_limits, &own);
    let from_ask = SessionRequest {
        peer: to.addresses(),
        ticket: from.token(),
        ceilings: own.and(&to_limits),
        ..ask
    };
    let source_open = open(request, Role::Source, paths(&request.sources), None, &from_ask)?;
    let from_limits = greeted.call(from.control(), source_open, &stop)?;
    watch.limits(&from_limits, &own);
    let (source, source_rest) = from.split();
    let (sink, sink_rest) = to.split();
    let ended = relay::run(source, sink, removes, watch, stop);
    source_rest.finish(false);
    sink_rest.finish(false);
    Ok(ended)
}

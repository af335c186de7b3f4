//! One session of a called end, over ssh or at a server.

use packtrain_net::tcp::tune::check_congestion;
use packtrain_os::clock;
use packtrain_transfer::message::{Message, Open, Opened, Role};
use packtrain_transfer::{Failure, FailureKind, Outcome, Versions};

use packtrain_perf as perf;
use packtrain_runtime::control::{Control, LINGER, UNADMITTED_LINGER};
use packtrain_runtime::handshake::{self, SessionRequest};
use packtrain_runtime::permissions::Permissions;
use packtrain_runtime::query;
use packtrain_runtime::session::{Observer, Stop};
use packtrain_runtime::sink::{self, Destination, SinkSetup};
use packtrain_runtime::source::{self, SourceSetup, SourceSpec};
use packtrain_runtime::transports::{Hints, Moved, SinkTransports, SourceTransports};
use packtrain_service::TransportChoice;
use packtrain_service::address_policy::DialPolicy;
use packtrain_service::ceilings::{Ceilings, MIN_RATE};
use packtrain_units::DataRate;

/// Maximum bytes of a path in a request: `PATH_MAX` of Linux, so no file has a longer one.
const MAX_REQUEST_PATH: usize = 4096;

type Ended = Result<(Outcome, Moved), Failure>;

/// Answers one caller and carries out its request.
pub(crate) fn serve(
    control: Control,
    hints: Hints,
    admit: impl FnOnce(&SessionRequest) -> Result<Permissions, Failure>,
    observer: &dyn Observer,
    stop: Stop,
) -> Ended {
    bounded(answer(control, hints, admit, observer, stop))
}

/// Bounds a result, which waits for its report and goes into the history: its texts quote paths and
/// options of the caller. The caller has the failures of single entries; here their number suffices.
fn bounded(ended: Ended) -> Ended {
    let (outcome, moved) = ended.map_err(Failure::bounded)?;
    let failure = outcome.failure.map(Failure::bounded);
    Ok((Outcome { failure, failed: Vec::new(), ..outcome }, moved))
}

fn answer(
    mut control: Control,
    mut hints: Hints,
    admit: impl FnOnce(&SessionRequest) -> Result<Permissions, Failure>,
    observer: &dyn Observer,
    stop: Stop,
) -> Ended {
    let begun = clock::now();
    control.set_linger(UNADMITTED_LINGER);
    let handshake::Asked { mut open, version } = handshake::answer(&control, &stop)?;
    if let Some(caller) = &mut hints.caller {
        // Over ssh the caller sends its request when it has seen the marker of this program.
        caller.rtt.get_or_insert(clock::now().since(begun));
    }
    let refuse = |failure: Failure| {
        control.tx.send(&Message::Refused(failure.clone()));
        failure
    };
    let admitted = SessionRequest::decode(&open.channel).and_then(|ask| {
        let allowed = admit(&ask)?;
        *open.options.extra = ask.options.clone();
        check(&open, &ask, &allowed)?;
        check_transports(&ask, &allowed.ceilings, &ask.ceilings)?;
        Ok((ask, allowed))
    });
    let (ask, allowed) = admitted.map_err(refuse)?;
    control.set_linger(LINGER);
    if !ask.peer.is_empty() {
        // The other end of the data is not the caller.
        hints.peer.clear();
        hints.caller = None;
        let own_user = matches!(allowed.dial, DialPolicy::CallersChoice);
        let to = if own_user { &mut hints.peer } else { &mut hints.named };
        to.clone_from(&ask.peer);
    }
    hints.dial.clone_from(&allowed.dial);
    let far = hints.peer.first().or(hints.named.first());
    let far = far.map(|address| address.to_canonical().to_string());
    let mut plan = ask.plan(hints, &allowed, &ask.ceilings, open.options.rate_bps);
    if let (Role::Source, Some(far)) = (open.role, far) {
        plan.earlier = observer.earlier(&far);
    }
    let empty = Outcome { summary: Default::default(), failure: None, failed: Vec::new() };
    observer.asked(&open, ask.perf.as_ref().map(|test| test.parallel), plan.choice.name());
    control.tx.send(&Message::Opened(Opened { channel: allowed.ceilings.encode() }));
    if let Some(test) = &ask.perf {
        let parallel = allowed.ceilings.and(&ask.ceilings).streams;
        let done = perf::called(control, plan, open.role, (test, parallel), stop);
        return done.map(|moved| (empty, moved));
    }
    if let Some(query) = &ask.query {
        let done = query::answer(&control, query, &open, allowed.root.as_ref(), stop);
        control.tx.close();
        return done.map(|()| (empty, Moved::default()));
    }
    let tx = control.tx.clone();
    let ended = match open.role {
        Role::Sink => {
            let transports = SinkTransports::new(plan, control.tx.clone());
            let destination = Destination {
                path: open.paths.into_iter().next().unwrap_or_default(),
                confined: allowed.root.clone(),
                sources: ask.sources as usize,
                names: open.sources,
                owners: allowed.owners,
            };
            let options = open.options;
            let changed_pieces = version >= Versions::CHANGED_PIECES;
            sink::run(SinkSetup {
                control,
                options,
                destination,
                observer,
                transports,
                stop,
                changed_pieces,
            })
        }
        Role::Source => {
            let transports = SourceTransports::new(plan);
            let spec = match &allowed.root {
                Some(root) => SourceSpec::Confined(root.clone(), open.paths),
                None => SourceSpec::Paths(open.paths),
            };
            let options = open.options;
            source::run(SourceSetup { control, options, observer, transports, stop }, spec)
        }
    };
    tx.close();
    Ok(ended)
}

/// Checks that both policies allow the requested transports, so that a forbidden one is reported
/// instead of tried.
fn check_transports(
    ask: &SessionRequest,
    own: &Ceilings,
    caller: &Ceilings,
) -> Result<(), Failure> {
    let choice = ask.transport();
    if choice.fits(own.transports.as_ref()) && choice.fits(own.and(caller).transports.as_ref()) {
        return Ok(());
    }
    let list = |ceilings: &Ceilings| match &ceilings.transports {
        Some(names) => names.join(", "),
        None => "all".to_owned(),
    };
    let text = match choice {
        TransportChoice::Auto => format!(
            "policy leaves no transport for --transport auto: the server's allows {}, the \
             caller's {}",
            list(own),
            list(caller)
        ),
        choice => format!(
            "the server's policy does not allow --transport {}: it allows {}",
            choice.name(),
            list(own)
        ),
    };
    Err(Failure::new(FailureKind::NotAuthorised, text))
}

fn check(open: &Open, ask: &SessionRequest, allowed: &Permissions) -> Result<(), Failure> {
    let denied = |text: &str| Err(Failure::new(FailureKind::NotAuthorised, text));
    if let (Some(name), Role::Source) = (&ask.more.tcp_cc, open.role) {
        check_congestion(name).map_err(|e| Failure::new(FailureKind::Usage, e.to_string()))?;
    }
    if allowed.perf_only && ask.perf.is_none() {
        return denied("this server only measures: use packtrain perf client");
    }
    let rates = [open.options.rate_bps, ask.ceilings.rate_bps];
    if rates.into_iter().flatten().any(|rate| DataRate::from_bps(rate) < MIN_RATE) {
        let text = format!(
            "the rate is too low: a transfer with another machine needs {MIN_RATE} or more"
        );
        return Err(Failure::new(FailureKind::Usage, text));
    }
    if open.paths.iter().any(|path| path.len() > MAX_REQUEST_PATH) {
        let text = format!("a path of the request is longer than {MAX_REQUEST_PATH} bytes");
        return Err(Failure::new(FailureKind::Usage, text));
    }
    if ask.perf.is_some() {
        return Ok(());
    }
    let writes = open.role == Role::Sink && !open.options.verify && !open.options.dry_run;
    if allowed.read_only && writes {
        return denied("this key or server is read-only: nothing may be written there");
    }
    let usage = |text: String| Failure::new(FailureKind::Usage, text);
    open.options.check_combination().map_err(|text| usage(text.to_owned()))?;
    open.options.check_names().map_err(usage)?;
    let removes = open.role == Role::Source && open.options.removes_source();
    if allowed.read_only && removes {
        return denied("this key or server is read-only: nothing may be removed there");
    }
    if open.paths.is_empty() || (open.role == Role::Sink && open.paths.len() != 1) {
        return Err(Failure::new(FailureKind::Protocol, "the request names no paths"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, UdpSocket};

    use packtrain_transfer::message::Options;

    use super::*;
    use packtrain_runtime::control::{Incoming, pair};
    use packtrain_runtime::handshake::MeasureRequest;
    use packtrain_runtime::transports::Caller;
    use packtrain_runtime::transports::offer::{ControlMessage, Offer};
    use packtrain_service::StopHandle;

    struct Nobody;

    impl Observer for Nobody {
        fn file(&self, _: &[u8], _: &packtrain_transfer::FileReport) {}
        fn source(&self, _: &packtrain_transfer::SourceTotals) {}
        fn sink(&self, _: &packtrain_transfer::SinkTotals) {}
        fn transport(&self, _: &str) {}
        fn notice(&self, _: &packtrain_service::Notice) {}
    }

    /// Two UDP sockets with the same port, at 127.0.0.1 and 127.0.0.2.
    fn two_places() -> (UdpSocket, UdpSocket, u16) {
        for _ in 0..100 {
            let one = UdpSocket::bind("127.0.0.1:0").expect("a port");
            let port = one.local_addr().expect("bound").port();
            if let Ok(two) = UdpSocket::bind(("127.0.0.2", port)) {
                return (one, two, port);
            }
        }
        panic!("no port is free at both addresses");
    }

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().expect("an address")).collect()
    }

    /// A called source, called from 127.0.0.1. The caller names `peer` as the other end of the
    /// data, and its offer names `offered` and `port`. Calls `look` while the source dials.
    fn call(
        allowed: Permissions,
        peer: &[&str],
        (offered, port): (&[&str], u16),
        look: impl FnOnce(),
    ) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(dir.path().join("f"), "text").expect("fine");
        let (near, far) = pair().expect("sockets");
        let stop = StopHandle::new();
        let host = [127, 0, 0, 1].into();
        let caller = Some(Caller { host, rtt: None });
        let hints = Hints { peer: vec![host], caller, ..Hints::default() };
        let called = {
            let stop = Stop::of_called_end(stop.clone());
            std::thread::spawn(move || serve(far, hints, |_| Ok(allowed), &Nobody, stop))
        };
        let ask = SessionRequest { choice: 1, peer: ips(peer), ..SessionRequest::default() };
        let open = Open {
            role: Role::Source,
            paths: vec![dir.path().join("f").into_os_string().into_encoded_bytes()],
            sources: None,
            options: Options::default(),
            channel: ask.encode(),
        };
        handshake::call(&near, open, &Stop::new(stop.clone())).expect("it agrees");
        let theirs = Offer { addresses: ips(offered), udp: vec![port], ..Offer::default() };
        near.tx.send(&Message::Channel(theirs.encode()));
        look();
        while let Ok(incoming) = near.rx.try_recv() {
            if let Incoming::Message(Message::Channel(bytes)) = incoming {
                assert!(ControlMessage::decode(&bytes).is_some());
            }
        }
        stop.request(15);
        drop(near);
        let _ = called.join().expect("no panic");
    }

    /// Asserts that only the wanted addresses get datagrams.
    fn dials(allowed: Permissions, peer: &[&str], offered: &[&str], wanted: (bool, bool)) {
        let (one, two, port) = two_places();
        call(allowed, peer, (offered, port), || {
            // The source tries all addresses in each round, those without a train first. So after
            // some datagrams at one address the other had its tries too.
            let mut buffer = [0; 2048];
            let mut count = |socket: &UdpSocket, wanted: bool| {
                let wait = std::time::Duration::from_millis(if wanted { 20_000 } else { 700 });
                socket.set_read_timeout(Some(wait)).expect("fine");
                (0..4).take_while(|_| socket.recv(&mut buffer).is_ok()).count() > 0
            };
            let (mut first, mut second) = (false, false);
            // The wanted address is checked first, so that the other had time to get a datagram.
            for place in [wanted.1, !wanted.1] {
                if place { second = count(&two, wanted.1) } else { first = count(&one, wanted.0) }
            }
            assert_eq!((first, second), wanted, "peer {peer:?}, offered {offered:?}");
        });
    }

    /// The sizes of the first datagrams that a called source sends to 127.0.0.1 and 127.0.0.2.
    fn first_sizes(allowed: Permissions, peer: &[&str], offered: &[&str]) -> [Vec<usize>; 2] {
        let (one, two, port) = two_places();
        let mut sizes = [Vec::new(), Vec::new()];
        call(allowed, peer, (offered, port), || {
            let mut buffer = [0; 2048];
            for (socket, sizes) in [one, two].iter().zip(&mut sizes) {
                let wait = std::time::Duration::from_secs(20);
                socket.set_read_timeout(Some(wait)).expect("fine");
                sizes.extend((0..4).map(|_| socket.recv(&mut buffer).expect("a datagram")));
            }
        });
        sizes
    }

    #[test]
    fn only_the_caller_gets_a_train_of_pings() {
        let is_train = |sizes: &[usize]| sizes.iter().all(|size| *size == 1_472);
        let rules = DialPolicy::Rules(["127.0.0.0/8".parse().expect("a rule")].into());
        let ruled = Permissions { dial: rules, ..Permissions::default() };
        let [caller, other] = first_sizes(ruled.clone(), &[], &["127.0.0.2"]);
        assert!(is_train(&caller) && !is_train(&other), "{caller:?}, {other:?}");
        // The caller directs the data to another host, and names its own too.
        let [caller, other] = first_sizes(ruled, &["127.0.0.2"], &["127.0.0.1"]);
        assert!(!is_train(&caller) && !is_train(&other), "{caller:?}, {other:?}");
    }

    #[test]
    fn a_caller_names_no_rate_that_moves_nothing() {
        let check_rates = |asked: Option<u64>, ceiling: Option<u64>| {
            let ceilings = Ceilings { rate_bps: ceiling, ..Ceilings::default() };
            let ask = SessionRequest { ceilings, ..SessionRequest::default() };
            let options = Options { rate_bps: asked, ..Options::default() };
            let (role, paths) = (Role::Source, vec![b"f".to_vec()]);
            let open = Open { role, paths, sources: None, options, channel: ask.encode() };
            check(&open, &ask, &Permissions::default()).map_err(|failure| failure.kind)
        };
        let least = MIN_RATE.as_bps();
        assert_eq!(check_rates(None, None), Ok(()));
        assert_eq!(check_rates(Some(least), Some(least)), Ok(()));
        for (asked, ceiling) in [(Some(least - 1), None), (Some(0), None), (None, Some(1))] {
            assert_eq!(check_rates(asked, ceiling), Err(FailureKind::Usage));
        }
    }

    #[test]
    fn a_path_that_no_file_has_is_refused_also_with_a_measurement() {
        let check_paths = |paths: Vec<Vec<u8>>, perf: Option<MeasureRequest>| {
            let ask = SessionRequest { perf, ..SessionRequest::default() };
            let (role, options) = (Role::Source, Options::default());
            let open = Open { role, paths, sources: None, options, channel: ask.encode() };
            check(&open, &ask, &Permissions::default()).map_err(|failure| failure.kind)
        };
        let path = |len| vec![1; len];
        for perf in [None, Some(MeasureRequest::default())] {
            assert_eq!(check_paths(vec![path(4096), path(4096)], perf.clone()), Ok(()));
            let refused = check_paths(vec![path(1), path(4097)], perf);
            assert_eq!(refused, Err(FailureKind::Usage));
        }
    }

    /// A key of any rights must not fill the memory or the history with texts of its choice.
    #[test]
    fn a_result_holds_no_more_of_the_callers_texts_than_a_report_needs() {
        let (near, far) = pair().expect("sockets");
        let stop = StopHandle::new();
        let called = {
            let stop = Stop::of_called_end(stop.clone());
            let admit = |_: &SessionRequest| Ok(Permissions::default());
            std::thread::spawn(move || serve(far, Hints::default(), admit, &Nobody, stop))
        };
        let ask = SessionRequest { choice: 3, sources: 1, ..SessionRequest::default() };
        let open = Open {
            role: Role::Sink,
            // Names of 255 bytes, each of which is five bytes in a text.
            paths: vec![vec![[1; 255].as_slice(); 15].join(&b'/')],
            sources: None,
            options: Options::default(),
            channel: ask.encode(),
        };
        handshake::call(&near, open, &Stop::new(stop)).expect("it agrees");
        drop(near);
        let (outcome, _) = called.join().expect("no panic").expect("it was admitted");
        let failure = outcome.failure.expect("no such directory, or no caller");
        assert!(failure.text.len() <= 512, "{}", failure.text.len());
        let long = || Failure::new(FailureKind::Fatal, "x".repeat(5 << 20));
        let failed = vec![(vec![1; 4096], long()); 100];
        let much = Outcome { summary: Default::default(), failure: Some(long()), failed };
        let (outcome, _) = bounded(Ok((much, Moved::default()))).expect("it ended");
        assert_eq!(
            (outcome.failure.map(|failure| failure.text.len()), outcome.failed.len()),
            (Some(512), 0)
        );
        let Err(refused) = bounded(Err(long())) else { panic!("it is refused") };
        assert_eq!(refused.text.len(), 512);
    }

    #[test]
    fn a_called_end_connects_to_its_caller_whatever_the_offer_says() {
        dials(Permissions::default(), &[], &["127.0.0.2"], (true, false));
        // The caller's statement of the other end does not count at a server either.
        dials(Permissions::default(), &["127.0.0.2"], &["127.0.0.2"], (false, false));
    }

    #[test]
    fn a_called_end_connects_where_its_own_rules_or_its_own_user_say() {
        let rules = DialPolicy::Rules(["127.0.0.2".parse().expect("a rule")].into());
        let ruled = Permissions { dial: rules, ..Permissions::default() };
        dials(ruled.clone(), &[], &["127.0.0.2"], (true, true));
        dials(ruled, &["127.0.0.2"], &[], (false, true));
        let own = Permissions { dial: DialPolicy::CallersChoice, ..Permissions::default() };
        dials(own.clone(), &["127.0.0.2"], &[], (false, true));
        dials(own, &[], &["127.0.0.2"], (true, false));
    }
}

//! A called end with limits, and callers that ignore them: real ends over loopback.

use std::path::Path;

use packtrain_os::clock;
use packtrain_transfer::message::{Open, Options, Role};
use packtrain_transfer::{Failure, FailureKind, FileReport, Outcome, SinkTotals, SourceTotals};
use packtrain_units::{ByteCount, DataRate, Duration, Time};
use parking_lot::Mutex;

use super::session;
use packtrain_runtime::confinement::Confinement;
use packtrain_runtime::control;
use packtrain_runtime::handshake::{self, SessionRequest};
use packtrain_runtime::permissions::Permissions;
use packtrain_runtime::session::{Observer, Stop};
use packtrain_runtime::source::{self, SourceSetup, SourceSpec};
use packtrain_runtime::transports::{Hints, Moved, SourceTransports};
use packtrain_service::ceilings::{Ceilings, RECEIVE_BURST};
use packtrain_service::{Notice, StopHandle, TransportChoice};

const RATE: DataRate = DataRate::from_mbps(16);
/// More bytes than the rate allows during the test.
const SIZE: usize = 96 << 20;

/// Records the number of received bytes over time.
struct Watch {
    taken: Mutex<Vec<(Time, ByteCount)>>,
    /// Stopped at that time, or after this number of bytes.
    stop: StopHandle,
    end: Time,
    enough: ByteCount,
}

impl Observer for Watch {
    fn file(&self, _: &[u8], _: &FileReport) {}

    fn source(&self, totals: &SourceTotals) {
        let now = clock::now();
        self.taken.lock().push((now, totals.placed));
        if now >= self.end || totals.placed >= self.enough {
            self.stop.request(15);
        }
    }

    fn sink(&self, _: &SinkTotals) {}

    fn transport(&self, _: &str) {}

    fn notice(&self, _: &Notice) {}
}

fn hints() -> Hints {
    let here = vec![std::net::Ipv4Addr::LOCALHOST.into()];
    Hints { peer: here.clone(), own: here, ..Hints::default() }
}

/// The result of a caller that ignored the limits.
struct Sent {
    begun: Time,
    /// The received bytes at the other end over time.
    taken: Vec<(Time, ByteCount)>,
    moved: Moved,
    outcome: Outcome,
    /// The limits that the caller was sent.
    told: Ceilings,
    /// Whether the file exists at the other end.
    arrived: bool,
}

/// A caller that sends a file to an end with these limits, and ignores them. Its request and its
/// behaviour differ. Returns the failure if it was refused.
fn send_without_regard(
    ceilings: Ceilings,
    (asks, does): (&SessionRequest, &SessionRequest),
    enough: ByteCount,
) -> Result<Sent, Failure> {
    let dir = tempfile::tempdir().unwrap();
    let (source, root) = (dir.path().join("source"), dir.path().join("root"));
    std::fs::create_dir(&root).unwrap();
    let bytes: Vec<u8> = (0..SIZE as u32).map(|n| (n >> 3) as u8 ^ (n >> 13) as u8 | 1).collect();
    std::fs::write(&source, bytes).unwrap();
    let (near, far) = control::pair().unwrap();
    let target = root.join("target");
    let called = std::thread::spawn(move || called_end(far, &root, ceilings));
    let stop = StopHandle::new();
    let open = Open {
        role: Role::Sink,
        paths: vec![b"/target".to_vec()],
        sources: None,
        options: Options::default(),
        channel: asks.encode(),
    };
    let begun = clock::now();
    let told = handshake::call(&near, open, &Stop::new(stop.clone()))?;
    // The caller ignores all limits that it was sent.
    let plan = does.plan(hints(), &Permissions::default(), &Ceilings::default(), None);
    let end = begun + Duration::from_secs(4);
    let watch = Watch { taken: Mutex::default(), stop: stop.clone(), end, enough };
    let path = std::os::unix::ffi::OsStrExt::as_bytes(source.as_os_str()).to_vec();
    let setup = SourceSetup {
        control: near,
        options: Options::default(),
        observer: &watch,
        transports: SourceTransports::new(plan),
        stop: Stop::new(stop),
    };
    let (outcome, moved) = source::run(setup, SourceSpec::Paths(vec![path]));
    let _ = called.join();
    let (taken, arrived) = (watch.taken.into_inner(), target.exists());
    Ok(Sent { begun, taken, moved, outcome, told, arrived })
}

fn called_end(control: control::Control, root: &Path, ceilings: Ceilings) {
    let root = Confinement::open(root).unwrap();
    let allowed = Permissions { root: Some(root), ceilings, ..Permissions::default() };
    let quiet = Watch {
        taken: Mutex::default(),
        stop: StopHandle::new(),
        end: Time::MAX,
        enough: ByteCount(u64::MAX),
    };
    let stop = Stop::new(StopHandle::new());
    let _ = session::serve(control, hints(), |_| Ok(allowed), &quiet, stop);
}

/// Asserts that at no time more bytes were received than the rate allows.
fn keeps_the_rate(choice: TransportChoice, streams: u32) {
    let ask = SessionRequest {
        choice: handshake::number(choice),
        sources: 1,
        streams,
        ..SessionRequest::default()
    };
    let ceilings = Ceilings { rate_bps: Some(RATE.as_bps()), ..Ceilings::default() };
    let sent = send_without_regard(ceilings.clone(), (&ask, &ask), ByteCount(u64::MAX)).unwrap();
    assert_eq!(sent.told, ceilings, "it is told");
    let all = sent.taken.last().map_or(ByteCount::ZERO, |(_, bytes)| *bytes);
    assert!(all > ByteCount::ZERO, "nothing was moved");
    for (at, bytes) in sent.taken {
        // Beyond the burst, a piece of each stream may be in flight.
        let pieces = ByteCount((256 << 10) * u64::from(streams + 2));
        let most = RATE.bytes_in(at.since(sent.begun) + RECEIVE_BURST) + pieces;
        assert!(bytes <= most, "{bytes} after {}, at most {most}", at.since(sent.begun));
    }
}

#[test]
fn datagrams_of_a_caller_that_ignores_the_rate_are_not_taken_faster() {
    keeps_the_rate(TransportChoice::Native, 1);
}

#[test]
fn units_of_a_caller_that_ignores_the_rate_are_not_taken_faster() {
    keeps_the_rate(TransportChoice::Udt, 1);
}

#[test]
fn streams_of_a_caller_that_ignores_the_rate_are_not_read_faster() {
    keeps_the_rate(TransportChoice::Tcp, 8);
}

#[test]
fn a_pipe_of_a_caller_that_ignores_the_rate_is_not_read_faster() {
    keeps_the_rate(TransportChoice::Pipe, 1);
}

#[test]
fn more_streams_than_allowed_are_closed() {
    let choice = handshake::number(TransportChoice::Tcp);
    let ask = SessionRequest { choice, sources: 1, streams: 8, ..SessionRequest::default() };
    let ceilings = Ceilings { streams: Some(2), ..Ceilings::default() };
    let enough = ByteCount(SIZE as u64 / 2);
    let sent = send_without_regard(ceilings, (&ask, &ask), enough).unwrap();
    let streams = sent.moved.streams.expect("there were streams");
    // Streams were started and closed again: there were never eight of them.
    assert!(streams.broken > 0, "{streams:?}");
}

fn refused(ceilings: Ceilings, ask: &SessionRequest) -> Failure {
    let result = send_without_regard(ceilings, (ask, ask), ByteCount(1));
    result.err().expect("it is refused")
}

#[test]
fn a_transport_that_is_not_allowed_is_refused_at_once_and_policy_is_named() {
    let only =
        |name: &str| Ceilings { transports: Some(vec![name.to_owned()]), ..Ceilings::default() };
    let asks = [(TransportChoice::Native, "tcp"), (TransportChoice::Tcp, "native")];
    for (choice, allowed) in asks.into_iter().chain([(TransportChoice::Pipe, "tcp")]) {
        let ask = SessionRequest {
            choice: handshake::number(choice),
            sources: 1,
            ..SessionRequest::default()
        };
        let failure = refused(only(allowed), &ask);
        assert_eq!(failure.kind, FailureKind::NotAuthorised);
        assert!(failure.text.contains("the server's policy"), "{failure}");
        assert!(failure.text.contains(&format!("it allows {allowed}")), "{failure}");
    }
    // Nothing that auto may use is left.
    let ask = SessionRequest { sources: 1, ceilings: only("native"), ..SessionRequest::default() };
    let failure = refused(only("tcp"), &ask);
    assert!(failure.text.contains("policy leaves no transport"), "{failure}");
}

#[test]
fn payload_by_a_pipe_that_is_not_allowed_ends_the_connection() {
    // The caller requests TCP, and then sends everything over the control connection.
    let choice = handshake::number(TransportChoice::Pipe);
    let does = SessionRequest { choice, sources: 1, ..SessionRequest::default() };
    let asks = SessionRequest { choice: handshake::number(TransportChoice::Tcp), ..does.clone() };
    let tcp = vec!["tcp".to_owned()];
    let ceilings = Ceilings { transports: Some(tcp), ..Ceilings::default() };
    let sent = send_without_regard(ceilings, (&asks, &does), ByteCount(u64::MAX)).unwrap();
    assert!(sent.outcome.failure.is_some());
    assert_eq!(sent.moved.shares, [], "nothing was taken");
    assert!(!sent.arrived);
}

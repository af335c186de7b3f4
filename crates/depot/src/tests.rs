use parking_lot::Mutex as StdMutex;
use std::sync::mpsc;

use packtrain_identity::authorized::Grant;
use packtrain_net::tcp::Identity;
use packtrain_session::measure::{self, Measure};
use packtrain_session::{
    Answer, Branch, Hop, HopTransport, Kind, Place, Reason, Refusal, Session, SessionId,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use packtrain_hops::read_answer;

mod fair;
mod hops;
mod spool;
mod stop;

/// Records events.
#[derive(Default)]
struct RecordingReporter {
    sessions: StdMutex<Vec<DepotSession>>,
    stats: StdMutex<DepotStats>,
    listening: StdMutex<Option<mpsc::Sender<SocketAddr>>>,
}

impl DepotReporter for RecordingReporter {
    fn listening(&self, address: SocketAddr, _: Option<SocketAddr>) {
        let report = self.listening.lock().take();
        report.expect("once").send(address).expect("somebody waits");
    }

    fn session(&self, session: &DepotSession) {
        self.sessions.lock().push(session.clone());
    }

    fn stats(&self, stats: &DepotStats) {
        *self.stats.lock() = stats.clone();
    }

    fn notice(&self, _: &Notice) {}
}

/// A depot in this process.
struct TestDepot {
    place: Place,
    stop: StopHandle,
    thread: Option<std::thread::JoinHandle<()>>,
    ear: Arc<RecordingReporter>,
    dir: tempfile::TempDir,
}

impl TestDepot {
    fn start(change: impl FnOnce(&mut DepotRequest)) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let file = dir.path().join("authorized_keys");
        let line = |seed: u8, before: &str| format!("{before}{}\n", PublicKeyOf(seed).line());
        std::fs::write(&file, line(1, "") + &line(2, "") + &line(3, "read-only ")).expect("fine");
        let stop = StopHandle::new();
        let mut request = DepotRequest {
            listen: "127.0.0.1:0".to_owned(),
            authorized_keys: Some(file),
            allow: vec!["127.0.0.1".parse().expect("a rule")],
            limits: DepotLimits::default(),
            routes: RouteTable::default(),
            hop_limit: 4,
            idle: Duration::from_secs(60),
            drain: Duration::from_secs(20),
            buffers: None,
            tcp_cc: None,
            copy: false,
            spool: None,
            ports: None,
            flows: 64,
            metrics: None,
            interval: Duration::from_secs(1),
            clique: None,
            stop: stop.clone(),
        };
        change(&mut request);
        let (report, told) = mpsc::channel();
        let ear = Arc::new(RecordingReporter {
            listening: StdMutex::new(Some(report)),
            ..RecordingReporter::default()
        });
        let received = Arc::clone(&ear);
        let thread = std::thread::spawn(move || run(request, &*received).expect("it listens"));
        let address = told.recv().expect("it listens");
        let place = address.to_string().parse().expect("a place");
        Self { place, stop, thread: Some(thread), ear, dir }
    }

    /// Stops it; returns its events.
    fn end(mut self) -> (Vec<DepotSession>, DepotStats) {
        self.stop.request(15);
        self.thread.take().expect("once").join().expect("it does not panic");
        let sessions = std::mem::take(&mut *self.ear.sessions.lock());
        (sessions, self.ear.stats.lock().clone())
    }
}

impl Drop for TestDepot {
    fn drop(&mut self) {
        self.stop.request(15);
    }
}

struct PublicKeyOf(u8);

impl PublicKeyOf {
    fn line(&self) -> String {
        keys::public(&Identity::generate([self.0; 32])).to_string()
    }
}

/// Echoes all bytes until the end of the stream.
async fn echo() -> Place {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let place = listener.local_addr().expect("bound").to_string().parse().expect("a place");
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = socket.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
                let _ = write.shutdown().await;
            });
        }
    });
    place
}

fn ask(to: &Place, route: &[&Place]) -> Session {
    Session {
        kind: Kind::Synchronous,
        id: SessionId(entropy::bytes()),
        sent: clock::wall(),
        hop_limit: 4,
        source: None,
        destination: Hop::tcp(to.clone()),
        route: route.iter().map(|place| Hop::tcp((*place).clone())).collect(),
        by_destination: false,
        tree: Vec::new(),
        spool: None,
    }
}

fn header(session: &Session, seed: u8) -> Vec<u8> {
    let identity = Identity::generate([seed; 32]);
    let header = session.seal(identity.public().0, |text| identity.sign(text));
    header.expect("it fits").write()
}

async fn reach(place: &Place) -> TcpStream {
    TcpStream::connect(place.to_string()).await.expect("somebody listens")
}

/// Sends a header and payload at once; returns the answer.
async fn call(depot: &Place, bytes: &[u8]) -> (TcpStream, Answer) {
    let mut socket = reach(depot).await;
    socket.write_all(&[bytes, &[7; 5000]].concat()).await.expect("room");
    let answer = read_answer(&socket).await.expect("an answer");
    (socket, answer)
}

async fn refused(depot: &Place, session: &Session, seed: u8) -> Refusal {
    match call(depot, &header(session, seed)).await.1 {
        Answer::Refused(refusal) => refusal,
        Answer::Accepted => panic!("it was let in"),
    }
}

/// Asserts that everything sent after the header comes back.
async fn echoes(depot: &Place, session: &Session, len: usize) {
    let mut socket = reach(depot).await;
    let sent: Vec<u8> = (0..len).map(|n| (n * 31 + (n >> 9)) as u8).collect();
    let bytes = [header(session, 1), sent.clone()].concat();
    let (mut read, mut write) = socket.split();
    let send = async {
        write.write_all(&bytes).await.expect("it takes all");
        write.shutdown().await.expect("it is open");
    };
    let receive = async {
        let mut received = Vec::new();
        read.read_to_end(&mut received).await.expect("it ends well");
        received
    };
    let ((), received) = tokio::join!(send, receive);
    let accepted = Answer::Accepted.write();
    assert_eq!(received.len(), accepted.len() + len);
    assert!(received[..accepted.len()] == accepted && received[accepted.len()..] == sent);
}

#[test]
fn over_one_two_and_three_depots_and_both_ways_of_passing_on() {
    let (a, b) = (TestDepot::start(|_| {}), TestDepot::start(|request| request.copy = true));
    let c = TestDepot::start(|_| {});
    executor::handle().block_on(async {
        let to = echo().await;
        echoes(&a.place, &ask(&to, &[&a.place]), 3_000_001).await;
        echoes(&b.place, &ask(&to, &[&b.place]), 3_000_001).await;
        let route = [&a.place, &b.place, &c.place];
        echoes(&a.place, &ask(&to, &route[..2]), 2_000_003).await;
        echoes(&a.place, &ask(&to, &route), 0).await;
        echoes(&a.place, &ask(&to, &route), 1_000_003).await;
    });
    let (sessions, stats) = a.end();
    assert_eq!((sessions.len(), stats.accepted, stats.sessions), (4, 4, 0));
    let first = &sessions[0];
    assert_eq!((first.refused, &first.failure), (None, &None));
    assert_eq!(first.bytes, (ByteCount(3_000_001), ByteCount(3_000_001)));
}

#[test]
fn what_it_measured_is_told_to_those_who_may_relay() {
    let station = TestDepot::start(|_| {});
    let to: Place = "192.0.2.1:9".parse().expect("a place");
    let asks = |what| Session { kind: Kind::Measure(what), ..ask(&to, &[&station.place]) };
    let epoch = measure::Epoch { number: 1, author: 2 };
    executor::handle().block_on(async {
        let (mut socket, answer) = call(&station.place, &header(&asks(Measure::Ask), 1)).await;
        assert_eq!(answer, Answer::Accepted);
        let mut report = Vec::new();
        socket.read_to_end(&mut report).await.expect("it ends");
        let (head, rest) = report.split_first_chunk().expect("a head");
        assert_eq!(measure::report_len(head), Ok(rest.len()));
        assert_eq!(measure::read_report(rest), Ok(Vec::new()), "nothing yet");
        // An unknown key, a key that may only copy, and a non-member.
        for seed in [9, 3] {
            let no = refused(&station.place, &asks(Measure::Ask), seed).await;
            assert_eq!(no.reason, Reason::NotAuthorised);
        }
        for what in
            [Measure::Token(epoch, 1), Measure::Claim(epoch), Measure::Probe(ByteCount(1 << 40))]
        {
            let no = refused(&station.place, &asks(what), 1).await;
            assert_eq!(no.reason, Reason::Unsupported, "{what:?}");
        }
    });
}

/// Only members get replies, a turn is taken once, and probes stop when the bytes of the hour are
/// spent.
#[test]
fn members_of_a_clique_pass_the_turn_and_probe_within_their_bytes() {
    let own: Place = "d1.example:7879".parse().expect("a place");
    let peer: Place = "d2.example:7879".parse().expect("a place");
    let identity = Identity::generate([1; 32]);
    let budget = ByteCount(3 << 20);
    let clique = crate::DepotClique { name: own.clone(), peers: vec![peer.clone()], budget };
    let turns = ProbeTurns::new(clique, identity);
    let stranger = "d3.example:7879".parse().expect("a place");
    let relays = Grant::default();
    let member = Grant { clique: true, ..Grant::default() };
    let places = [None, Some(&own), Some(&peer), Some(&stranger)];
    let are_members = |grant| places.map(|place| turns.is_member(place, grant));
    assert_eq!(are_members(Some(&member)), [false, false, true, false]);
    // A name is the sender's word: any key that may relay could claim it.
    assert_eq!((are_members(Some(&relays)), are_members(None)), ([false; 4], [false; 4]));
    assert!(turns.admits_probe(ByteCount(2 << 20)) && !turns.admits_probe(ByteCount(2 << 20)));
    assert!(turns.admits_probe(ByteCount(1 << 20)) && !turns.admits_probe(ByteCount(1)));
    assert!(!turns.admits_probe(ByteCount(u64::MAX)));
}

#[test]
fn who_and_where_to_is_asked_first() {
    let depot = TestDepot::start(|_| {});
    let other = TestDepot::start(|request| request.allow.clear());
    executor::handle().block_on(async {
        let (to, at) = (echo().await, &depot.place);
        let good = ask(&to, &[at]);
        for (seed, why) in [(9, "a stranger"), (3, "a key for files alone")] {
            assert_eq!(refused(at, &good, seed).await.reason, Reason::NotAuthorised, "{why}");
        }
        // Signed with another key than the header names.
        let (one, two) = (Identity::generate([1; 32]), Identity::generate([9; 32]));
        let forged = good.seal(one.public().0, |text| two.sign(text)).expect("it fits").write();
        let answer = call(at, &forged).await.1;
        assert!(matches!(answer, Answer::Refused(no) if no.reason == Reason::NotAuthorised));
        let away: Place = "192.0.2.1:7".parse().expect("a place");
        assert_eq!(refused(at, &ask(&away, &[at]), 1).await.reason, Reason::Forbidden);
        let own: Place = "localhost:7".parse().expect("a place");
        let named = refused(&other.place, &ask(&own, &[&other.place]), 1).await;
        assert_eq!(named.reason, Reason::Forbidden);
        // The second depot of a route refuses, and the first forwards the refusal.
        let route = [at, &other.place];
        let no = refused(at, &ask(&to, &route), 1).await;
        assert_eq!((no.reason, no.depot), (Reason::Forbidden, 1));
        let closed = {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            listener.local_addr().expect("bound").to_string().parse().expect("a place")
        };
        assert_eq!(refused(at, &ask(&closed, &[at]), 1).await.reason, Reason::Unreachable);
        // A server that is no depot, in the place of a depot.
        let no = refused(at, &ask(&to, &[at, &to]), 1).await;
        assert_eq!(no.reason, Reason::Unreachable, "{}", no.text);
    });
    let (sessions, stats) = depot.end();
    assert_eq!(stats.refused.get("not-authorised"), Some(&3), "{sessions:?}");
    assert_eq!(stats.sessions, 0);
}

#[test]
fn tables_forward_by_destination_within_the_rules_and_the_hop_limit() {
    let table = |text: String| {
        move |request: &mut DepotRequest| {
            request.routes = RouteTable::parse(&text).expect("a table");
        }
    };
    // Three depots in a row: only the last one connects to the destination.
    let last = TestDepot::start(|_| {});
    let middle = TestDepot::start(table(format!("127.0.0.1 {}", last.place)));
    let first = TestDepot::start(table(format!("127.0.0.1 {}", middle.place)));
    // Its rules permit the next depot, but not the destination.
    let closed = TestDepot::start(|request| {
        table(format!("127.0.0.1 {}", last.place))(request);
        request.allow = vec![format!("127.0.0.1:{}", last.place.port).parse().expect("a rule")];
    });
    executor::handle().block_on(async {
        let to = echo().await;
        let by_table = |at: &Place| Session { by_destination: true, ..ask(&to, &[at]) };
        echoes(&first.place, &by_table(&first.place), 300_000).await;
        // A source route stays what it is.
        echoes(&first.place, &ask(&to, &[&first.place]), 10_000).await;
        // The sender's limit holds for tables too.
        let short = Session { hop_limit: 2, ..by_table(&first.place) };
        let no = refused(&first.place, &short, 1).await;
        assert_eq!((no.reason, no.depot), (Reason::TooLong, 2), "{}", no.text);
        let no = refused(&closed.place, &by_table(&closed.place), 1).await;
        assert_eq!((no.reason, no.depot), (Reason::Forbidden, 0), "{}", no.text);
        // A stranger has no use of a table.
        let no = refused(&first.place, &by_table(&first.place), 9).await;
        assert_eq!((no.reason, no.depot), (Reason::NotAuthorised, 0), "{}", no.text);
    });
    let passed = |depot: TestDepot| depot.end().0.iter().filter(|s| s.refused.is_none()).count();
    assert_eq!((passed(closed), passed(first), passed(middle), passed(last)), (0, 2, 1, 1));
}

#[test]
fn tables_that_form_a_loop_end_at_the_first_repetition() {
    // A port that is free now; the depot that listens there gets a table to the other one.
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        free.local_addr().expect("bound").port()
    };
    let one = TestDepot::start(|request| {
        let table = format!("127.0.0.1 127.0.0.1:{port}");
        request.routes = RouteTable::parse(&table).expect("a table");
    });
    let other = TestDepot::start(|request| {
        request.listen = format!("127.0.0.1:{port}");
        let table = format!("127.0.0.1 {}", one.place);
        request.routes = RouteTable::parse(&table).expect("a table");
    });
    executor::handle().block_on(async {
        let to = echo().await;
        let session = Session { by_destination: true, ..ask(&to, &[&one.place]) };
        let no = refused(&one.place, &session, 1).await;
        assert_eq!((no.reason, no.depot), (Reason::Loop, 2), "{}", no.text);
    });
    assert_eq!(other.end().1.refused.get("loop"), Some(&1));
}

#[test]
fn loops_long_routes_repetitions_and_what_is_not_there_are_refused() {
    let depot = TestDepot::start(|request| request.hop_limit = 3);
    let other = TestDepot::start(|_| {});
    executor::handle().block_on(async {
        let (to, at) = (echo().await, &depot.place);
        let looped = refused(at, &ask(&to, &[at, &other.place, at]), 1).await;
        assert_eq!((looped.reason, looped.depot), (Reason::Loop, 2));
        let long = ask(&to, &[at, at, at, at]);
        assert_eq!(refused(at, &long, 1).await.reason, Reason::TooLong);
        let short = Session { hop_limit: 1, ..ask(&to, &[at, &other.place]) };
        assert_eq!(refused(at, &short, 1).await.reason, Reason::TooLong);
        let good = ask(&to, &[at]);
        assert!(matches!(call(at, &header(&good, 1)).await.1, Answer::Accepted));
        assert_eq!(refused(at, &good, 1).await.reason, Reason::Stale, "the same again");
        for sent in [clock::wall() + Duration::from_secs(300), Duration::from_secs(1)] {
            let stale = Session { sent, ..ask(&to, &[at]) };
            assert_eq!(refused(at, &stale, 1).await.reason, Reason::Stale);
        }
        let hop = Hop { transport: HopTransport::Other(9), place: to.clone() };
        let by = Session { destination: hop.clone(), ..ask(&to, &[at]) };
        let kept = Session { kind: Kind::Asynchronous, ..ask(&to, &[at]) };
        let tree = vec![Branch { parent: None, policy: 0, hop }];
        let staged = Session { tree, ..ask(&to, &[at]) };
        for session in [by, kept, staged] {
            assert_eq!(refused(at, &session, 1).await.reason, Reason::Unsupported);
        }
        let nobody = Session { route: Vec::new(), ..ask(&to, &[]) };
        assert_eq!(refused(at, &nobody, 1).await.reason, Reason::Malformed);
        let mut later = header(&ask(&to, &[at]), 1);
        later[5] = 2;
        let answer = call(at, &later).await.1;
        assert!(matches!(answer, Answer::Refused(no) if no.reason == Reason::Unsupported));
        // Bytes that are no header get no answer.
        let mut socket = reach(at).await;
        socket.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("room");
        let mut received = Vec::new();
        let _ = socket.read_to_end(&mut received).await;
        assert!(received.is_empty(), "{received:?}");
    });
    assert_eq!(depot.end().1.unauthenticated, 1);
}

#[test]
fn quotas_and_limits_refuse_before_payload_and_say_when_to_come_again() {
    let limits = DepotLimits {
        sessions: 3,
        key_sessions: 2,
        key_bytes: Some(ByteCount(100_000)),
        ..DepotLimits::default()
    };
    let depot = TestDepot::start(|request| request.limits = limits);
    executor::handle().block_on(async {
        let (to, at) = (echo().await, &depot.place);
        let one = call(at, &header(&ask(&to, &[at]), 1)).await;
        let two = call(at, &header(&ask(&to, &[at]), 1)).await;
        assert_eq!(refused(at, &ask(&to, &[at]), 1).await.reason, Reason::Quota);
        let three = call(at, &header(&ask(&to, &[at]), 2)).await;
        let busy = refused(at, &ask(&to, &[at]), 2).await;
        assert_eq!(busy.reason, Reason::Busy);
        assert!(busy.retry_after.is_some_and(|wait| wait <= Duration::from_secs(60)));
        drop((one, two, three));
        // A hundred thousand bytes in both directions exceed the quota of one hundred thousand.
        let again = async {
            loop {
                let (mut socket, answer) = call(at, &header(&ask(&to, &[at]), 1)).await;
                if matches!(answer, Answer::Accepted) {
                    let mut received = vec![0; 5000];
                    socket.read_exact(&mut received).await.expect("its echo");
                    socket.write_all(&[1; 95_000]).await.expect("room");
                    received.resize(95_000, 0);
                    socket.read_exact(&mut received).await.expect("its echo");
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        again.await;
        let full = async {
            loop {
                // Moved bytes are counted with a short delay.
                if let Answer::Refused(no) = call(at, &header(&ask(&to, &[at]), 1)).await.1
                    && no.text.contains("this hour")
                {
                    return no;
                }
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        assert!(full.await.retry_after.is_some_and(|wait| wait > Duration::from_secs(3000)));
        echoes_by(at, &ask(&to, &[at]), 2).await;
    });
}

/// Another key is still admitted.
async fn echoes_by(depot: &Place, session: &Session, seed: u8) {
    let (mut socket, answer) = call(depot, &header(session, seed)).await;
    assert_eq!(answer, Answer::Accepted);
    let mut received = [0; 5000];
    socket.read_exact(&mut received).await.expect("its echo");
    assert_eq!(received, [7; 5000]);
}

#[test]
fn two_hundred_sessions_at_a_time_stay_within_the_pool() {
    let pool = ByteCount(8 << 20);
    let limits = DepotLimits { pool, key_sessions: 256, ..DepotLimits::default() };
    let depot = TestDepot::start(|request| request.limits = limits);
    executor::handle().block_on(async {
        let (to, at) = (echo().await, depot.place.clone());
        let mut running = tokio::task::JoinSet::new();
        // All sessions are admitted before any continues.
        let gate = Arc::new(tokio::sync::Barrier::new(200));
        for _ in 0..200 {
            let (to, at, gate) = (to.clone(), at.clone(), Arc::clone(&gate));
            running.spawn(async move {
                let (mut socket, answer) = call(&at, &header(&ask(&to, &[&at]), 1)).await;
                assert_eq!(answer, Answer::Accepted);
                gate.wait().await;
                let sent = vec![7; 300_000];
                let (mut read, mut write) = socket.split();
                let send = async {
                    write.write_all(&sent).await.expect("it takes all");
                    write.shutdown().await.expect("it is open");
                };
                let mut received = Vec::new();
                let (_, read) = tokio::join!(send, read.read_to_end(&mut received));
                read.expect("it ends well");
                assert!(received.len() == 305_000 && received.iter().all(|byte| *byte == 7));
            });
        }
        while let Some(ended) = running.join_next().await {
            ended.expect("it does not panic");
        }
    });
    let (sessions, stats) = depot.end();
    assert_eq!((sessions.len(), stats.accepted), (200, 200));
    assert!(stats.held.1 <= pool && stats.held.1 > ByteCount::ZERO, "{:?}", stats.held);
    assert_eq!((stats.held.0, stats.sessions), (ByteCount::ZERO, 0));
    assert_eq!(stats.bytes, (ByteCount(200 * 305_000), ByteCount(200 * 305_000)));
}

#[test]
fn sessions_under_way_end_when_it_drains_and_new_ones_do_not_begin() {
    let mut depot = TestDepot::start(|_| {});
    executor::handle().block_on(async {
        let (to, at) = (echo().await, depot.place.clone());
        let (mut socket, answer) = call(&at, &header(&ask(&to, &[&at]), 1)).await;
        assert_eq!(answer, Answer::Accepted);
        let mut received = [0; 5000];
        socket.read_exact(&mut received).await.expect("its echo");
        depot.stop.request(15);
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        assert!(TcpStream::connect(at.to_string()).await.is_err(), "nobody listens any more");
        socket.write_all(&[3; 5000]).await.expect("it still goes on");
        socket.read_exact(&mut received).await.expect("its echo");
        socket.shutdown().await.expect("it is open");
    });
    depot.thread.take().expect("once").join().expect("it does not panic");
    // A session that does not end is cut at the limit.
    let depot = TestDepot::start(|request| request.drain = Duration::from_millis(300));
    executor::handle().block_on(async {
        let (to, at) = (echo().await, depot.place.clone());
        let (mut socket, _) = call(&at, &header(&ask(&to, &[&at]), 1)).await;
        depot.stop.request(15);
        let mut received = Vec::new();
        let ended = socket.read_to_end(&mut received).await;
        assert!(ended.is_err(), "it was cut, which is not an end: {ended:?}");
    });
    let (sessions, _) = depot.end();
    assert!(sessions[0].failure.is_some(), "{sessions:?}");
}

#[test]
fn figures_are_told_here_and_nowhere_else() {
    let ear = RecordingReporter::default();
    let depot = TestDepot::start(|request| request.metrics = Some("127.0.0.1:0".to_owned()));
    let outside = DepotRequest {
        listen: "127.0.0.1:0".to_owned(),
        authorized_keys: Some("/nonexistent/keys".into()),
        allow: Vec::new(),
        limits: DepotLimits::default(),
        routes: RouteTable::default(),
        hop_limit: 4,
        idle: Duration::from_secs(1),
        drain: Duration::from_secs(1),
        buffers: None,
        tcp_cc: None,
        copy: false,
        spool: None,
        ports: None,
        flows: 64,
        metrics: Some("0.0.0.0:0".to_owned()),
        interval: Duration::from_secs(1),
        clique: None,
        stop: StopHandle::new(),
    };
    let tiny = DepotLimits { pool: ByteCount(1000), ..DepotLimits::default() };
    let small = DepotRequest { limits: tiny, metrics: None, ..outside.clone() };
    for wrong in [outside, small] {
        let error = run(wrong, &ear).expect_err("it is refused");
        assert_eq!(error.kind, FailureKind::Usage, "{}", error.text);
    }
    depot.end();
}

/// A key whose sessions are refused after they were admitted counts until its sockets are closed.
#[test]
fn refusals_of_one_key_do_not_accumulate() {
    let limits = DepotLimits { key_sessions: 4, ..DepotLimits::default() };
    let depot = TestDepot::start(|request| request.limits = limits);
    executor::handle().block_on(async {
        let forbidden: Place = "127.0.0.2:9".parse().expect("a place");
        let mut held = Vec::new();
        let mut reasons = Vec::new();
        while reasons.last() != Some(&Reason::Quota) && reasons.len() < 200 {
            let session = ask(&forbidden, &[&depot.place]);
            let (socket, answer) = call(&depot.place, &header(&session, 1)).await;
            let Answer::Refused(refusal) = answer else { panic!("it was let in") };
            reasons.push(refusal.reason);
            held.push(socket);
        }
        assert_eq!(reasons.first(), Some(&Reason::Forbidden));
        assert_eq!(reasons.last(), Some(&Reason::Quota));
    });
}

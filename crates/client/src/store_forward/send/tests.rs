//! First depots that violate the protocol.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use packtrain_session::spool::sealed_len;
use packtrain_session::{Answer, HEADER_HEAD, Header, Place, Reason, Refusal};

use super::super::ticket::Body;
use super::*;
use packtrain_service::FileReport;

struct SilentReporter;

impl Reporter for SilentReporter {
    fn progress(&self, _: &ProgressSnapshot) {}
    fn file(&self, _: &[u8], _: &FileReport) {}
    fn notice(&self, _: &Notice) {}
}

fn options() -> Options {
    Options { recursive: true, ..Options::default() }
}

fn files(paths: &[&Path]) -> Collected {
    use std::os::unix::ffi::OsStrExt as _;
    let paths = paths.iter().map(|path| path.as_os_str().as_bytes().to_vec());
    collect(SourceSpec::Paths(paths.collect()), &options()).expect("they are there")
}

/// Sends a file to a depot that accepts the header, sends these frames, and then runs a function.
/// Returns the failure.
fn sent(
    len: u64,
    says: Vec<u8>,
    then: impl FnOnce(TcpStream, StopHandle) + Send + 'static,
) -> Failure {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("file");
    let file = std::fs::File::create(&path).expect("a file");
    file.set_len(len).expect("a hole");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let place: Place = listener.local_addr().expect("bound").to_string().parse().expect("a place");
    let stop = StopHandle::new();
    let stops = stop.clone();
    let depot = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("somebody comes");
        let mut head = [0; HEADER_HEAD];
        socket.read_exact(&mut head).expect("a header");
        let rest = Header::len(&head).expect("a header") + 1 - HEADER_HEAD;
        socket.read_exact(&mut vec![0; rest]).expect("a header");
        socket.write_all(&[&Answer::Accepted.write()[..], &says].concat()).expect("room");
        then(socket, stops);
    });
    let collected = files(&[&path]);
    let packed = Packed::new(&collected.entries, 1).expect("it can be packed");
    let identity = Identity::generate([4; 32]);
    let body = Body {
        session: [1; 16],
        capability: [2; 32],
        content: [3; 32],
        sender: identity.public().0,
        made: clock::wall().as_millis(),
        keep: 600,
        size: packed.len.and_then(|len| sealed_len(ByteCount(len))).map(ByteCount::get),
        manifest: packed.digest(),
    };
    let plan: DepotPlan = place.to_string().parse().expect("a plan");
    let ticket = ClaimTicket::new(body, plan.clone());
    let request = SendRequest {
        sources: Vec::new(),
        name: Vec::new(),
        options: options(),
        plan,
        keep: Duration::from_secs(600),
        ticket: None,
        rate: None,
        buffers: None,
        retries: 0,
        code: None,
        history: HistoryConfig::default(),
        stop,
    };
    let mut sender = Sender {
        request: &request,
        reporter: &SilentReporter,
        ticket: &ticket,
        identity: Arc::new(identity),
        collected: Arc::new(collected),
        packed: Arc::new(packed),
        produced: Arc::default(),
        safe: 0,
        begun: None,
        flow: None,
        told: Time::ZERO,
        due: Time::ZERO,
        sent: 0,
        started: clock::now(),
    };
    let failure = sender.run().expect_err("it does not take it");
    depot.join().expect("it does not panic");
    failure
}

fn have(records: u64, all: bool) -> Vec<u8> {
    Frame::Have { records, all }.write().to_vec()
}

/// More than the buffers of a connection.
const MUCH: u64 = 200 << 20;

/// Waits until the other end has closed, without reading.
fn until_gone(socket: &TcpStream) {
    while socket.take_error().is_ok_and(|error| error.is_none()) {
        // A failing write shows the close.
        if (&*socket).write(&have(0, false)).is_err() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn a_request_to_stop_is_heard_while_the_depot_takes_nothing() {
    let failure = sent(MUCH, have(0, false), |socket, stop| {
        std::thread::sleep(std::time::Duration::from_millis(300));
        stop.request(2);
        until_gone(&socket);
    });
    assert_eq!(failure.kind, FailureKind::Cancelled);
}

#[test]
fn a_refusal_is_heard_while_the_depot_takes_nothing() {
    let refusal = Refusal {
        reason: Reason::Forbidden,
        depot: 0,
        retry_after: None,
        text: "not with me".to_owned(),
    };
    let answer = Answer::Refused(refusal).write();
    let frame = Frame::Refused { len: answer.len() as u32 };
    let says = [have(0, false), frame.write().to_vec(), answer].concat();
    let failure = sent(MUCH, says, |socket, _| until_gone(&socket));
    assert_eq!(failure.kind, FailureKind::NotAuthorised);
    assert!(failure.text.contains("not with me"), "{}", failure.text);
}

#[test]
fn all_is_as_many_records_as_there_are() {
    for records in [0, 1, 3, u64::MAX] {
        // Reported at once, and later.
        let at_once = sent(300_000, have(records, true), |_, _| {});
        let later = [have(0, false), have(records, true)].concat();
        let later = sent(300_000, later, |socket, _| until_gone(&socket));
        for failure in [at_once, later] {
            assert_eq!(failure.kind, FailureKind::Temporary);
            assert!(failure.text.contains("as the total, which is wrong"), "{}", failure.text);
        }
    }
}

#[test]
fn a_session_that_is_over_is_no_missing_source() {
    let refusal = Refusal {
        reason: Reason::Absent,
        depot: 0,
        retry_after: None,
        text: "the time of this session is over".to_owned(),
    };
    let error = DepotError::Refused("a:1".parse().expect("a place"), refusal);
    assert_eq!(said(&error).kind, FailureKind::TargetMissing);
}

#[test]
fn what_was_sent_as_zeros_is_told_whatever_is_sent_again() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let names = ["a", "b", "c"].map(|name| dir.path().join(name));
    for name in &names {
        std::fs::write(name, vec![7; 3 << 20]).expect("a file");
    }
    let collected = Arc::new(files(&[&names[0], &names[1], &names[2]]));
    let packed = Arc::new(Packed::new(&collected.entries, 3).expect("it can be packed"));
    std::fs::write(&names[0], b"short").expect("a file");
    std::fs::write(&names[2], b"short").expect("a file");
    let run = |produced: &Arc<Mutex<Produced>>, from| {
        let sign = |_: &[u8]| [0; 64];
        let id = packtrain_session::SessionId([1; 16]);
        let sealer = Sealer::new(id, &[2; 32], [from as u8; 16], sign);
        let (collected, packed) = (Arc::clone(&collected), Arc::clone(&packed));
        let records = produce(collected, packed, Arc::clone(produced), sealer, from);
        let count = records.iter().count() as u64;
        let produced = produced.lock();
        let failed: Vec<_> = produced.failed.iter().map(|one| one.path.clone()).collect();
        (count, failed)
    };
    let both = vec![b"a".to_vec(), b"c".to_vec()];
    let produced = Arc::default();
    let (all, failed) = run(&produced, 0);
    assert_eq!(failed, both);
    // The first file is already there as zeros; the last one is produced again and counted once.
    assert_eq!(run(&produced, 20), (all - 20, both.clone()));
    // Another run of the command has no record of that, and checks the files.
    assert_eq!(run(&Arc::default(), 20), (all - 20, both.clone()));
    assert_eq!(run(&Arc::default(), all - 1), (1, both));
}

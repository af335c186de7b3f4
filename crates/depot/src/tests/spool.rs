//! The protocol of kept sessions.

use packtrain_session::spool::{FRAME_HEAD, Frame, RECORD_TEXT, Sealer};
use packtrain_session::{Claim, ClaimPurpose, Deposit, DepotId, Spool as Asked};

use super::*;

/// A depot with a spool.
pub(super) fn keeping(change: impl FnOnce(&mut DepotRequest)) -> (TestDepot, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let spool = DepotSpool {
        dir: dir.path().join("spool"),
        quota: ByteCount(1 << 30),
        key_quota: None,
        keep: Duration::from_secs(3600),
        free: ByteCount::ZERO,
    };
    let station = TestDepot::start(|request| {
        request.spool = Some(spool);
        change(request);
    });
    (station, dir)
}

const SESSION: SessionId = SessionId([5; 16]);
const CAPABILITY: [u8; 32] = [6; 32];

fn deposit(route: &[&Place]) -> Session {
    let capability = Identity::generate(CAPABILITY).public().0;
    let keep = Duration::from_secs(600);
    let deposit = Deposit { session: SESSION, capability, size: None, keep };
    let last = route.last().expect("a depot");
    Session {
        kind: Kind::Asynchronous,
        id: SESSION,
        hop_limit: 8,
        spool: Some(Asked::Deposit(deposit)),
        ..ask(last, route)
    }
}

pub(super) fn hello(session: &Session, node: u8) -> Vec<u8> {
    [&header(session, 1)[..], &[node]].concat()
}

pub(super) async fn bring(depot: &Place, hello: &[u8]) -> (TcpStream, Answer) {
    let mut socket = reach(depot).await;
    socket.write_all(hello).await.expect("room");
    let answer = read_answer(&socket).await.expect("an answer");
    (socket, answer)
}

async fn frame(socket: &mut TcpStream) -> Option<Frame> {
    let mut head = [0; FRAME_HEAD];
    socket.read_exact(&mut head).await.ok()?;
    Some(Frame::read(&head).expect("a frame"))
}

/// The reason of the refusal, or of the end.
async fn reason(socket: &mut TcpStream, answer: Answer) -> Option<Reason> {
    if let Answer::Refused(refusal) = answer {
        return Some(refusal.reason);
    }
    loop {
        if let Frame::Refused { len } = frame(socket).await? {
            let mut bytes = vec![0; len as usize];
            socket.read_exact(&mut bytes).await.ok()?;
            return match Answer::read(&bytes).expect("an answer") {
                Answer::Refused(refusal) => Some(refusal.reason),
                Answer::Accepted => None,
            };
        }
    }
}

pub(super) fn record(number: u64, last: bool) -> Vec<u8> {
    record_of((SESSION, 1), number, last)
}

/// A record of a session that the key of `seed` deposits.
fn record_of((session, seed): (SessionId, u8), number: u64, last: bool) -> Vec<u8> {
    let identity = Identity::generate([seed; 32]);
    let sealer = Sealer::new(session, &[7; 32], [8; 16], |text| identity.sign(text));
    let text = vec![9; if last { 5 } else { RECORD_TEXT }];
    let record = sealer.seal(number, last, &text);
    let frame = Frame::Record { number, last, len: record.len() as u32 };
    [&frame.write()[..], &record].concat()
}

pub(super) async fn until_safe(socket: &mut TcpStream, want: u64) {
    loop {
        match frame(socket).await {
            Some(Frame::Have { records, .. }) if records >= want => return,
            Some(Frame::Have { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}

fn claim(place: &Place, purpose: ClaimPurpose) -> Vec<u8> {
    let session = Session {
        kind: Kind::Claim,
        spool: Some(Asked::Claim(Claim { session: SESSION, purpose })),
        ..ask(place, &[])
    };
    let identity = Identity::generate(CAPABILITY);
    let header = session.seal(identity.public().0, |text| identity.sign(text));
    header.expect("it fits").write()
}

#[test]
fn what_some_depot_behind_would_refuse_is_refused_at_once() {
    let (depot, _dir) = keeping(|request| request.hop_limit = 3);
    executor::handle().block_on(async {
        let places: Vec<Place> =
            (1..=4).map(|n| format!("depot-{n}:7879").parse().expect("a place")).collect();
        let chain: Vec<&Place> = places.iter().collect();
        let (mut socket, answer) = bring(&depot.place, &hello(&deposit(&chain), 0)).await;
        assert_eq!(reason(&mut socket, answer).await, Some(Reason::TooLong));
        // In a tree the deepest leaf counts, at every depot of it.
        let branch = |(n, parent): (usize, Option<u8>)| Branch {
            parent,
            policy: 1,
            hop: Hop::tcp(places[n].clone()),
        };
        let tree = |parents: [Option<u8>; 4]| Session {
            kind: Kind::Staging,
            route: Vec::new(),
            tree: parents.into_iter().enumerate().map(branch).collect(),
            ..deposit(&chain)
        };
        let deep = tree([None, Some(0), Some(1), Some(2)]);
        let (mut socket, answer) = bring(&depot.place, &hello(&deep, 1)).await;
        assert_eq!(reason(&mut socket, answer).await, Some(Reason::TooLong));
        let wide = tree([None, Some(0), Some(1), Some(1)]);
        assert_eq!(bring(&depot.place, &hello(&wide, 2)).await.1, Answer::Accepted);
        // Depots do not sign the trail, so a deposit has none.
        let identity = Identity::generate([1; 32]);
        let sealed = deposit(&chain[..2]).seal(identity.public().0, |text| identity.sign(text));
        let forwarded_by = sealed.expect("it fits").forwarded_by(DepotId([1; 16])).write();
        let (mut socket, answer) = bring(&depot.place, &[&forwarded_by[..], &[0]].concat()).await;
        assert_eq!(reason(&mut socket, answer).await, Some(Reason::Malformed));
    });
}

#[test]
fn a_replayed_header_takes_no_more_than_one_more_place() {
    let limits = DepotLimits { key_sessions: 4, ..DepotLimits::default() };
    let (depot, _dir) = keeping(|request| request.limits = limits);
    executor::handle().block_on(async {
        let hello = hello(&deposit(&[&depot.place]), 0);
        let (mut sender, answer) = bring(&depot.place, &hello).await;
        assert_eq!(answer, Answer::Accepted);
        sender.write_all(&record(0, false)).await.expect("room");
        until_safe(&mut sender, 1).await;
        let mut before: Option<TcpStream> = None;
        for _ in 0..9 {
            let (replay, answer) = bring(&depot.place, &hello).await;
            assert_eq!(answer, Answer::Accepted);
            // The earlier replay is evicted. That is not a refusal, because the header is valid.
            if let Some(mut before) = before.replace(replay) {
                assert_eq!(reason(&mut before, Answer::Accepted).await, None);
            }
        }
        sender.write_all(&record(1, false)).await.expect("room");
        until_safe(&mut sender, 2).await;
        // A missing record is no reason to refuse.
        sender.write_all(&record(5, false)).await.expect("room");
        assert_eq!(reason(&mut sender, Answer::Accepted).await, Some(Reason::Busy));
    });
}

#[test]
fn asking_for_records_that_never_come_keeps_no_claim_alive() {
    let (depot, _dir) = keeping(|request| request.idle = Duration::from_secs(1));
    executor::handle().block_on(async {
        let (mut sender, answer) = bring(&depot.place, &hello(&deposit(&[&depot.place]), 0)).await;
        assert_eq!(answer, Answer::Accepted);
        sender.write_all(&record(0, true)).await.expect("room");
        until_safe(&mut sender, 1).await;
        let good = claim(&depot.place, ClaimPurpose::Read);
        let (mut socket, answer) = bring(&depot.place, &good).await;
        assert_eq!(answer, Answer::Accepted);
        assert_eq!(frame(&mut socket).await, Some(Frame::Have { records: 1, all: true }));
        // Far more often than the idle time has room for.
        let mut asked = 0;
        while socket.write_all(&Frame::Get { from: 7, count: 1 }.write()).await.is_ok()
            && frame(&mut socket).await.is_some()
        {
            asked += 1;
            assert!(asked < 1000, "it is still alive");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        assert!(asked > 0, "the depot answers at first");
    });
}

#[test]
fn a_claim_is_for_the_depot_it_names() {
    let (depot, _dir) = keeping(|_| {});
    executor::handle().block_on(async {
        let (mut sender, answer) = bring(&depot.place, &hello(&deposit(&[&depot.place]), 0)).await;
        assert_eq!(answer, Answer::Accepted);
        sender.write_all(&record(0, true)).await.expect("room");
        until_safe(&mut sender, 1).await;
        let elsewhere: Place = "127.0.0.1:9".parse().expect("a place");
        for purpose in [ClaimPurpose::Read, ClaimPurpose::Release] {
            let (mut socket, answer) = bring(&depot.place, &claim(&elsewhere, purpose)).await;
            assert_eq!(reason(&mut socket, answer).await, Some(Reason::Absent));
        }
        let good = claim(&depot.place, ClaimPurpose::Read);
        let (mut socket, answer) = bring(&depot.place, &good).await;
        assert_eq!(answer, Answer::Accepted);
        assert_eq!(frame(&mut socket).await, Some(Frame::Have { records: 1, all: true }));
        // A claim is accepted once.
        let (mut socket, answer) = bring(&depot.place, &good).await;
        assert_eq!(reason(&mut socket, answer).await, Some(Reason::Stale));
        // Another key is not the ticket's.
        let claim = Claim { session: SESSION, purpose: ClaimPurpose::Read };
        let session = Session {
            kind: Kind::Claim,
            spool: Some(Asked::Claim(claim)),
            ..ask(&depot.place, &[])
        };
        let (mut socket, answer) = bring(&depot.place, &header(&session, 1)).await;
        assert_eq!(reason(&mut socket, answer).await, Some(Reason::Absent));
    });
    let (_, stats) = depot.end();
    assert_eq!(stats.spool.map(|spool| (spool.deposited, spool.released)), Some((1, 0)));
}

#[test]
fn a_branch_that_is_refused_for_good_is_left_and_who_waits_for_it_told() {
    // The next depot keeps no sessions, and refuses.
    let next = TestDepot::start(|_| {});
    let (depot, _dir) = keeping(|_| {});
    executor::handle().block_on(async {
        let branch =
            |parent, policy, place: &Place| Branch { parent, policy, hop: Hop::tcp(place.clone()) };
        let tree = vec![branch(None, 1, &depot.place), branch(Some(0), 0, &next.place)];
        let session =
            Session { kind: Kind::Staging, route: Vec::new(), tree, ..deposit(&[&depot.place]) };
        let (mut sender, answer) = bring(&depot.place, &hello(&session, 0)).await;
        assert_eq!(answer, Answer::Accepted);
        let send = async {
            // Fewer than the allowed lead; the refusal arrives before.
            for number in 0..200 {
                if sender.write_all(&record(number, false)).await.is_err() {
                    break;
                }
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        let _ = tokio::time::timeout(std::time::Duration::from_secs(3), send).await;
        assert_eq!(reason(&mut sender, Answer::Accepted).await, Some(Reason::Unsupported));
    });
    let (_, stats) = depot.end();
    assert_eq!(stats.spool.map(|spool| spool.dropped), Some(1));
}

/// A tree with one branch below `root`.
pub(super) fn branch_to(root: &Place, policy: u8, next: &Place) -> Session {
    let tree = vec![
        Branch { parent: None, policy: 1, hop: Hop::tcp(root.clone()) },
        Branch { parent: Some(0), policy, hop: Hop::tcp(next.clone()) },
    ];
    Session { kind: Kind::Staging, route: Vec::new(), tree, ..deposit(&[root]) }
}

async fn pause(millis: u64) {
    tokio::time::sleep(std::time::Duration::from_millis(millis)).await;
}

/// Waits until a depot's counters fulfil a condition.
async fn until(station: &TestDepot, is: impl Fn(&SpoolStats) -> bool) {
    loop {
        let stats = station.ear.stats.lock().spool.clone();
        if stats.is_some_and(|stats| is(&stats)) {
            return;
        }
        pause(50).await;
    }
}

#[test]
fn a_file_of_keys_that_cannot_be_read_refuses_nobody_for_good() {
    let depot = TestDepot::start(|_| {});
    let (file, aside) = (depot.dir.path().join("authorized_keys"), depot.dir.path().join("aside"));
    executor::handle().block_on(async {
        let to = echo().await;
        std::fs::rename(&file, &aside).expect("it is there");
        // Opening it fails, also for root.
        std::os::unix::fs::symlink(&file, &file).expect("a link to itself");
        let no = refused(&depot.place, &ask(&to, &[&depot.place]), 1).await;
        assert_eq!(no.reason, Reason::Busy);
        assert!(no.retry_after.is_some());
        std::fs::rename(&aside, &file).expect("it is there");
        // The failure is not remembered.
        echoes(&depot.place, &ask(&to, &[&depot.place]), 1000).await;
    });
}

#[test]
fn a_deposit_that_is_over_by_the_clock_may_come_again_from_a_depot() {
    let (depot, _dir) = keeping(|_| {});
    executor::handle().block_on(async {
        let long_ago = Duration::from_secs(1_000_000_000);
        let route = [&depot.place, &depot.place];
        let session = Session { sent: long_ago, ..deposit(&route) };
        // The depot's clock may be ahead, and the previous depot must not give the branch up.
        for (node, why) in [(0, Reason::Absent), (1, Reason::Stale)] {
            let (mut socket, answer) = bring(&depot.place, &hello(&session, node)).await;
            assert_eq!(reason(&mut socket, answer).await, Some(why));
        }
    });
}

#[test]
fn a_branch_that_lacks_nothing_is_neither_dropped_nor_called_again() {
    let (next, _dir) = keeping(|request| request.idle = Duration::from_secs(1));
    let (depot, _other) = keeping(|_| {});
    executor::handle().block_on(async {
        let hello = hello(&branch_to(&depot.place, 2, &next.place), 0);
        let (mut sender, answer) = bring(&depot.place, &hello).await;
        assert_eq!(answer, Answer::Accepted);
        sender.write_all(&record(0, false)).await.expect("room");
        until(&next, |stats| stats.bytes > ByteCount::ZERO).await;
        // The sender is silent, and the next depot closes silent connections.
        pause(5000).await;
        sender.write_all(&record(1, true)).await.expect("room");
        until(&depot, |stats| stats.forwarded == 1).await;
    });
    let (_, stats) = depot.end();
    assert_eq!(stats.spool.map(|spool| spool.dropped), Some(0));
    let (sessions, stats) = next.end();
    assert_eq!(stats.spool.map(|spool| spool.deposited), Some(1));
    assert_eq!(sessions.len(), 2, "{sessions:?}");
}

#[test]
fn a_record_that_is_damaged_after_all_was_told_takes_nothing_else_along() {
    let (depot, dir) = keeping(|_| {});
    let later = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let place = later.local_addr().expect("bound").to_string();
    let next: Place = place.parse().expect("a place");
    drop(later);
    executor::handle().block_on(async {
        let hello = hello(&branch_to(&depot.place, 1, &next), 0);
        let (mut sender, answer) = bring(&depot.place, &hello).await;
        assert_eq!(answer, Answer::Accepted);
        for number in 0..4 {
            sender.write_all(&record(number, number == 3)).await.expect("room");
        }
        until_safe(&mut sender, 4).await;
    });
    let records = dir.path().join("spool").join(SESSION.to_string()).join("records");
    let mut bytes = std::fs::read(&records).expect("it is there");
    bytes[packtrain_session::spool::RECORD + 9] ^= 1;
    std::fs::write(&records, &bytes).expect("a file");
    let (next, _other) = keeping(|request| request.listen = place);
    executor::handle().block_on(async {
        until(&depot, |stats| stats.dropped == 1).await;
        let (mut socket, answer) =
            bring(&depot.place, &claim(&depot.place, ClaimPurpose::Read)).await;
        assert_eq!(answer, Answer::Accepted);
        assert_eq!(frame(&mut socket).await, Some(Frame::Have { records: 4, all: true }));
    });
    assert!(std::fs::read(&records).expect("it is there") == bytes);
    let (_, stats) = next.end();
    // It has at most the records before the damaged one.
    let before = ByteCount(packtrain_session::spool::RECORD as u64);
    assert!(stats.spool.is_some_and(|spool| spool.bytes <= before && spool.deposited == 0));
}

/// A session with this number of branches to one place.
fn branches_to(id: SessionId, count: usize, root: &Place, next: &Place) -> Session {
    let mut session = branch_to(root, 1, next);
    let branch = session.tree.pop().expect("a branch");
    session.tree.extend(std::iter::repeat_n(branch, count));
    let Some(Asked::Deposit(deposit)) = &mut session.spool else { panic!("a deposit") };
    deposit.session = id;
    Session { id, ..session }
}

/// Senders of so many sessions, each with 31 branches to `next`, that bring no record.
async fn bring_nothing(count: u8, depot: &Place, next: &Place) -> Vec<TcpStream> {
    let mut senders = Vec::new();
    for n in 0..count {
        let session = branches_to(SessionId([50 + n; 16]), 31, depot, next);
        let (sender, answer) = bring(depot, &hello(&session, 0)).await;
        assert_eq!(answer, Answer::Accepted);
        senders.push(sender);
    }
    senders
}

/// A next depot that accepts every session, has no record of it, and then is silent. Counts its
/// connections.
async fn silent() -> (Place, watch::Receiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let place = listener.local_addr().expect("bound").to_string().parse().expect("a place");
    let (count, counted) = watch::channel(0);
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((mut socket, _)) = listener.accept().await {
            let have = Frame::Have { records: 0, all: false }.write();
            let answer = [&Answer::Accepted.write()[..], &have].concat();
            socket.write_all(&answer).await.expect("room");
            held.push(socket);
            count.send_replace(held.len());
        }
    });
    (place, counted)
}

#[test]
fn next_depots_that_hold_the_connections_of_one_key_stop_nobody_else() {
    let (next, _dir) = keeping(|_| {});
    let (depot, _other) = keeping(|_| {});
    executor::handle().block_on(async {
        let (hostile, mut count) = silent().await;
        // More connections than a depot has in all. No record comes.
        let _senders = bring_nothing(9, &depot.place, &hostile).await;
        count.wait_for(|count| *count >= 32).await.expect("they are reached");
        let other = SessionId([99; 16]);
        let session = branches_to(other, 1, &depot.place, &next.place);
        let hello = [&header(&session, 2)[..], &[0]].concat();
        let (mut sender, answer) = bring(&depot.place, &hello).await;
        assert_eq!(answer, Answer::Accepted);
        sender.write_all(&record_of((other, 2), 0, true)).await.expect("room");
        let forwarded = until(&depot, |stats| stats.forwarded == 1);
        let limit = std::time::Duration::from_secs(60);
        assert!(tokio::time::timeout(limit, forwarded).await.is_ok(), "it waits for its turn");
    });
}

#[test]
fn a_session_without_records_to_send_gives_its_turn_to_another_of_its_key() {
    let (depot, _dir) = keeping(|request| request.idle = Duration::from_secs(1));
    executor::handle().block_on(async {
        let (next, mut count) = silent().await;
        let _senders = bring_nothing(2, &depot.place, &next).await;
        let all = count.wait_for(|count| *count == 62);
        let limit = std::time::Duration::from_secs(60);
        assert!(tokio::time::timeout(limit, all).await.is_ok(), "some never have a turn");
    });
}

#[test]
fn a_known_record_that_comes_again_takes_no_space() {
    let (depot, _dir) = keeping(|_| {});
    executor::handle().block_on(async {
        let mut session = deposit(&[&depot.place]);
        let records = [record(0, false), record(1, true)];
        let bytes: usize = records.iter().map(|record| record.len() - FRAME_HEAD).sum();
        let Some(Asked::Deposit(deposit)) = &mut session.spool else { panic!("a deposit") };
        deposit.size = Some(ByteCount(bytes as u64));
        let hello = hello(&session, 0);
        let (mut sender, answer) = bring(&depot.place, &hello).await;
        assert_eq!(answer, Answer::Accepted);
        sender.write_all(&records[0]).await.expect("room");
        until_safe(&mut sender, 1).await;
        // The sender comes again before it has heard that a record is durable.
        let (mut sender, answer) = bring(&depot.place, &hello).await;
        assert_eq!(answer, Answer::Accepted);
        sender.write_all(&records.concat()).await.expect("room");
        until_safe(&mut sender, 2).await;
    });
}

#[test]
fn ended_sessions_keep_no_file_open() {
    let (depot, dir) = keeping(|_| {});
    let spool = dir.path().join("spool").canonicalize().expect("it is there");
    let open = || {
        let files = std::fs::read_dir("/proc/self/fd").expect("Linux").flatten();
        let files = files.filter_map(|file| std::fs::read_link(file.path()).ok());
        files.filter(|file| file.starts_with(spool.join(SESSION.to_string()))).count()
    };
    executor::handle().block_on(async {
        let hello = hello(&deposit(&[&depot.place]), 0);
        let (mut sender, answer) = bring(&depot.place, &hello).await;
        assert_eq!(answer, Answer::Accepted);
        sender.write_all(&record(0, true)).await.expect("room");
        until_safe(&mut sender, 1).await;
        assert_eq!(open(), 2);
        let release = claim(&depot.place, ClaimPurpose::Release);
        assert_eq!(bring(&depot.place, &release).await.1, Answer::Accepted);
        assert_eq!(open(), 0);
        // It stays known.
        let (mut socket, answer) = bring(&depot.place, &hello).await;
        assert_eq!(reason(&mut socket, answer).await, Some(Reason::Absent));
    });
}

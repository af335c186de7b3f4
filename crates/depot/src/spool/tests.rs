//! Admission of kept sessions, and their space.

use packtrain_net::tcp::Identity;
use packtrain_session::spool::RECORD;
use packtrain_session::{Deposit, Kind, Session};

use super::store::Appended;
use super::*;

const MIB: u64 = 1 << 20;

fn spool(dir: &std::path::Path, quota: ByteCount) -> Spool {
    let settings = DepotSpool {
        dir: dir.to_path_buf(),
        quota,
        key_quota: None,
        keep: Duration::from_secs(3600),
        free: ByteCount::ZERO,
    };
    let (spool, warnings) = Spool::open(settings).expect("it opens");
    assert_eq!(warnings, [""; 0]);
    spool
}

/// A session over three depots, as received by one of them.
fn head(id: u8, node: u8, size: Option<u64>, keep: Duration) -> Head {
    let hop = |n: u8| Hop::tcp(format!("depot-{n}:7879").parse().expect("a place"));
    let deposit = Deposit {
        session: SessionId([id; 16]),
        capability: [1; 32],
        size: size.map(ByteCount),
        keep,
    };
    let session = Session {
        kind: Kind::Asynchronous,
        id: SessionId([id; 16]),
        sent: clock::wall(),
        hop_limit: 8,
        source: None,
        destination: hop(2),
        route: (0..3).map(hop).collect(),
        by_destination: false,
        tree: Vec::new(),
        spool: Some(packtrain_session::Spool::Deposit(deposit)),
    };
    let identity = Identity::generate([7; 32]);
    let header = session.seal(identity.public().0, |text| identity.sign(text));
    Head { node, header: header.expect("it fits") }
}

const HOUR: Duration = Duration::from_secs(3600);

fn denied(admitted: Result<Arc<Kept>, Denied>) -> Option<Reason> {
    admitted.err().map(|denied| denied.reason)
}

#[test]
fn a_session_that_has_nothing_may_come_as_another_depot() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let spool = spool(dir.path(), ByteCount(3 * MIB));
    let as_last = head(1, 2, Some(2 * MIB), HOUR);
    let as_first = Head { node: 0, ..as_last.clone() };
    // A replay with another position arrives first; there is space for only one of them.
    let replayed = spool.admit(as_last.clone()).expect("room");
    let right = spool.admit(as_first.clone()).expect("in its place");
    assert!(replayed.records.progress().abandoned && replayed.is_over());
    assert_eq!((right.head.node, spool.ledger().used()), (0, ByteCount(2 * MIB)));
    assert!(Arc::ptr_eq(&right, &spool.admit(as_first.clone()).expect("the same")));
    right.records.append(0, false, &vec![1; RECORD]).expect("room");
    assert_eq!(denied(spool.admit(as_last)), Some(Reason::Loop));
    let other = head(1, 0, Some(MIB), HOUR);
    assert_eq!(denied(spool.admit(other)), Some(Reason::Stale));
    // The disk has its current position.
    right.records.sync().expect("a disk");
    drop((right, replayed));
    let settings = spool.settings.clone();
    drop(spool);
    let (again, warnings) = Spool::open(settings).expect("it opens");
    assert_eq!(warnings, [""; 0]);
    let kept = again.find(SessionId([1; 16])).expect("it is there");
    assert_eq!((kept.head.node, kept.records.progress().safe), (0, 1));
}

#[test]
fn the_space_of_a_replaced_session_is_returned_once() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let spool = spool(dir.path(), ByteCount(3 * MIB));
    let as_last = head(1, 2, Some(2 * MIB), HOUR);
    let as_first = Head { node: 0, ..as_last.clone() };
    let replaced = spool.admit(as_last).expect("room");
    let right = spool.admit(as_first).expect("in its place");
    // Its receiver found the replaced one before.
    spool.release(&replaced).expect("a disk");
    assert_eq!(spool.ledger().used(), ByteCount(2 * MIB));
    spool.release(&right).expect("a disk");
    assert_eq!(spool.ledger().used(), MIN_SESSION_SPACE);
}

#[test]
fn a_complete_session_takes_the_space_of_its_records_also_after_a_restart() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let spool = spool(dir.path(), ByteCount(3 * MIB));
    let kept = spool.admit(head(1, 0, Some(2 * MIB), HOUR)).expect("room");
    kept.records.append(0, true, &vec![1; RECORD]).expect("room");
    assert!(kept.records.sync().expect("a disk").all_safe);
    spool.release_surplus(&kept);
    let used = spool.ledger().used();
    assert_eq!(used, ByteCount(RECORD as u64));
    let settings = spool.settings.clone();
    drop((kept, spool));
    let (again, _) = Spool::open(settings).expect("it opens");
    assert_eq!(again.ledger().used(), used);
    assert_eq!(denied(again.admit(head(2, 0, Some(2 * MIB), HOUR))), None);
}

#[test]
fn a_session_that_is_over_by_the_clock_alone_is_refused_to_a_depot_for_now() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let spool = spool(dir.path(), ByteCount(3 * MIB));
    for (node, reason) in [(0, Reason::Absent), (1, Reason::Stale)] {
        let expired = head(node, node, Some(MIB), Duration::ZERO);
        let kept = spool.admit(expired.clone()).expect("room");
        assert_eq!(denied(spool.admit(expired.clone())), Some(reason));
        kept.records.end().expect("a disk");
        assert_eq!(denied(spool.admit(expired)), Some(Reason::Absent));
    }
}

#[test]
fn a_pipe_gets_what_room_there_is_and_nothing_once_it_is_over() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let spool = spool(dir.path(), ByteCount(MIB));
    let record = ByteCount(RECORD as u64);
    let kept = spool.admit(head(1, 0, None, HOUR)).expect("room");
    for number in 0..4 {
        assert!(spool.grow(&kept, record).is_ok(), "{number}");
        let wrote = kept.records.append(number, false, &vec![1; RECORD]);
        assert_eq!(wrote.ok(), Some(Appended::New));
    }
    let full = spool.grow(&kept, record).expect_err("a megabyte and no more");
    assert_eq!((full.reason, spool.ledger().used()), (Reason::Forbidden, ByteCount(MIB)));
    spool.release(&kept).expect("a disk");
    let over = spool.grow(&kept, record).expect_err("it is over");
    assert_eq!((over.reason, spool.ledger().used()), (Reason::Absent, MIN_SESSION_SPACE));
    assert_eq!(denied(spool.admit(kept.head.clone())), Some(Reason::Absent));
}

#[test]
fn what_cannot_be_removed_keeps_its_room_until_it_can() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let spool = spool(dir.path(), ByteCount(9 * MIB));
    let kept = spool.admit(head(1, 0, Some(MIB), Duration::from_secs(0))).expect("room");
    let odd = files::directory(dir.path(), kept.id).join("odd");
    std::fs::write(&odd, "somebody else's").expect("a file");
    let swept = spool.sweep(Time::ZERO);
    assert!(swept.len() == 1 && swept[0].gone.is_err() && swept[0].expired.is_some());
    assert!(spool.find(kept.id).is_some() && spool.ledger().used() == ByteCount(MIB));
    std::fs::remove_file(odd).expect("it is there");
    let swept = spool.sweep(Time::ZERO);
    // Its expiry is reported once.
    assert!(swept.len() == 1 && swept[0].gone.is_ok() && swept[0].expired.is_none());
    assert!(spool.find(kept.id).is_none() && spool.ledger().used() == ByteCount::ZERO);
    assert_eq!(spool.stats().expired, 1);
}

#[test]
fn a_clock_that_was_ahead_for_some_minutes_removes_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let spool = spool(dir.path(), ByteCount(9 * MIB));
    let kept = spool.admit(head(1, 0, Some(MIB), HOUR)).expect("room");
    let (ahead, right) = (kept.expires + HOUR, kept.expires.saturating_sub(HOUR));
    let at = |minutes: u64| Time::ZERO + Duration::from_secs(60 * minutes);
    // Its branches wait meanwhile.
    assert_eq!((kept.phase(ahead), kept.phase(right)), (Phase::Expired, Phase::Live));
    assert!(!kept.is_due(ahead, at(0)) && !kept.is_due(ahead, at(9)));
    // The time service sets the clock, and later another jump begins anew.
    assert!(!kept.is_due(right, at(9)) && !kept.is_due(right, at(11)));
    assert!(!kept.is_due(ahead, at(12)) && !kept.is_due(ahead, at(21)));
    assert!(kept.is_due(ahead, at(22)));
    kept.records.end().expect("a disk");
    assert_eq!(kept.phase(right), Phase::Ended);
}

#[test]
fn directories_without_a_head_are_removed_unless_they_have_records() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let settings = {
        let spool = spool(dir.path(), ByteCount(9 * MIB));
        for id in 1..=3 {
            let kept = spool.admit(head(id, 0, None, HOUR)).expect("room");
            if id < 3 {
                kept.records.append(0, false, &vec![1; RECORD]).expect("room");
                kept.records.sync().expect("a disk");
            }
            if id == 2 {
                kept.records.end().expect("a disk");
            }
        }
        spool.settings.clone()
    };
    let at = |id: u8| files::directory(dir.path(), SessionId([id; 16]));
    for id in 1..=3 {
        std::fs::remove_file(at(id).join("head")).expect("it is there");
    }
    let (spool, warnings) = Spool::open(settings).expect("it opens");
    assert!(warnings.len() == 1 && warnings[0].contains("head is missing"), "{warnings:?}");
    assert!(at(1).join("records").exists() && !at(2).exists() && !at(3).exists());
    // Its id is still in use, and its files are kept.
    assert_eq!(denied(spool.admit(head(1, 0, None, HOUR))), Some(Reason::Busy));
    assert_eq!(spool.ledger().used(), ByteCount::ZERO);
    assert!(at(1).join("records").exists());
}

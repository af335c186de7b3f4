use std::path::PathBuf;

use packtrain_units::{ByteCount, DataRate};

use super::*;
use crate::row::{Ended, Point};

fn place(dir: &tempfile::TempDir) -> Place {
    Place::File(dir.path().join("state/history.db"))
}

fn file(place: &Place) -> PathBuf {
    match place {
        Place::File(path) => path.clone(),
        Place::Server(_) => unreachable!("a file here"),
    }
}

fn row(n: u64) -> Row {
    Row {
        key: format!("k{n}"),
        id: format!("{n:08x}"),
        began: Duration::from_secs(1_000 + n),
        host: "here".into(),
        login: "me".into(),
        from_host: "here".into(),
        to_host: "there".into(),
        transport: "tcp".into(),
        streams: Some(n as u32),
        bytes: ByteCount(n),
        elapsed: Duration::from_secs(10),
        throughput: DataRate::from_mbps(100 * n),
        series: vec![Point { at: Duration::from_secs(1), rate: DataRate::from_mbps(n) }],
        evidence: Some("{}".into()),
        ..Row::default()
    }
}

fn all(store: &mut Store) -> Vec<Row> {
    store.find(&Filter::default()).expect("found")
}

#[test]
fn what_is_kept_is_found() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = place(&dir);
    assert!(matches!(Store::open_read(&place), Err(HistoryError::Absent { .. })));
    let mut store = Store::open(&place).expect("made");
    let rows: Vec<Row> = (1..=5).map(row).collect();
    for row in &rows {
        store.keep(row).expect("kept");
    }
    let mut bad = row(9);
    (bad.ended, bad.transport) = (Ended::Failed, "native".into());
    (bad.to_host, bad.peer) = ("elsewhere".into(), "192.0.2.7:5000 key".into());
    store.keep(&bad).expect("kept");
    // The same row, with more fields set.
    bad.error = Some("no".into());
    store.keep(&bad).expect("kept");
    let mut reader = Store::open_read(&place).expect("there");
    assert_eq!(
        all(&mut reader),
        [&[bad.clone()], &rows.iter().rev().cloned().collect::<Vec<_>>()[..]].concat()
    );
    let ids = |store: &mut Store, filter: Filter| -> Vec<u64> {
        let rows = store.find(&filter).expect("found");
        rows.iter().map(|row| u64::from_str_radix(&row.id, 16).expect("hexadecimal")).collect()
    };
    let kept = [rows.clone(), vec![bad.clone()]].concat();
    let by = |filter: Filter| {
        let found = ids(&mut Store::open_read(&place).expect("there"), filter.clone());
        let most = filter.most.map_or(usize::MAX, |most| most as usize);
        let fitting = kept.iter().filter(|row| filter.fits(row)).count().min(most);
        assert_eq!(found.len(), fitting, "{filter:?} says the same of a row as the database");
        found
    };
    assert!(
        by(Filter { writer: Some(("here".into(), "you".into())), ..Filter::default() }).is_empty()
    );
    assert_eq!(
        by(Filter { writer: Some(("here".into(), "me".into())), ..Filter::default() }).len(),
        6
    );
    assert_eq!(by(Filter { failed: true, ..Filter::default() }), [9]);
    assert_eq!(by(Filter { host: Some("elsewhere".into()), ..Filter::default() }), [9]);
    assert_eq!(by(Filter { host: Some("192.0.2.7".into()), ..Filter::default() }), [9]);
    assert_eq!(
        by(Filter { transport: Some("tcp".into()), most: Some(2), ..Filter::default() }),
        [5, 4]
    );
    assert_eq!(by(Filter { id: Some("00000003".into()), ..Filter::default() }), [3]);
    let since = Some(Duration::from_secs(1_005));
    assert_eq!(by(Filter { since, evidence: true, ..Filter::default() }), [9, 5]);
    assert!(by(Filter { host: Some("' OR 1=1 --".into()), ..Filter::default() }).is_empty());
}

#[test]
fn the_migrations_make_the_published_tables() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut made = Store::at_schema(&place(&dir), 3).expect("made");
    let mut published = Store::at_schema(&Place::File(dir.path().join("old.db")), 0).expect("made");
    published.db.batch(include_str!("published.sql")).expect("written");
    // The columns with type, constraint, default and key, and the indexes.
    let tables = |store: &mut Store| {
        ["SELECT name, type, \"notnull\", dflt_value, pk FROM pragma_table_info('transfers') ORDER BY name",
         "SELECT name, sql FROM sqlite_master WHERE type = 'index' ORDER BY name"]
            .map(|sql| store.db.query(sql, &[]).expect("told"))
    };
    let [columns, indexes] = tables(&mut made);
    assert_eq!((columns.len(), indexes.len()), (47, 4));
    assert_eq!([columns, indexes], tables(&mut published));
}

#[test]
fn an_older_schema_becomes_todays() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = place(&dir);
    let mut old = Store::at_schema(&place, 1).expect("made");
    old.db
        .batch(
            "INSERT INTO transfers (key, id, began_us, kind, side, role, ended, host, login, pid, \
             version, from_host, to_host, source, target, peer, transport, transports, controller, \
             bytes, bytes_moved, files, failed_files, elapsed_us, throughput_bps, series, \
             retransmitted_bytes, streams) VALUES ('k', '0000abcd', 7, 'perf', 'called', 'sink', \
             'partial', 'h', 'u', 3, '0', 'a', 'b', 's', 't', 'p', 'tcp', '', '', 1, 2, 3, 4, \
             5000000, 6000, '', 8, 4)",
        )
        .expect("written");
    assert_eq!(schema::version(&mut old.db).expect("told"), 1);
    drop(old);
    let mut new = Store::open_read(&place).expect("brought up");
    assert_eq!(schema::version(&mut new.db).expect("told"), schema::NEWEST);
    let rows = all(&mut new);
    assert_eq!((rows.len(), rows[0].ended, rows[0].streams), (1, Ended::Partial, Some(4)));
    let samples = new.stream_samples("a", "b", 10, Duration::ZERO).expect("found");
    assert_eq!((samples.len(), samples[0].throughput), (1, DataRate::from_bps(6_000)));
    // A schema of a newer version is not changed.
    new.db.batch("UPDATE packtrain_schema SET version = 99").expect("written");
    drop(new);
    for tried in [Store::open_read(&place), Store::open(&place)] {
        assert!(matches!(tried, Err(HistoryError::Newer { found: 99, .. })));
    }
}

#[test]
fn many_writers_at_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = place(&dir);
    // All threads find no tables and try to create them.
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let place = &place;
            scope.spawn(move || {
                for n in 0..25 {
                    let mut store = Store::open(place).expect("opened");
                    store.keep(&row(writer * 100 + n)).expect("kept");
                }
            });
        }
    });
    assert_eq!(all(&mut Store::open_read(&place).expect("there")).len(), 100);
}

#[test]
fn what_is_no_database_is_named_and_kept() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = place(&dir);
    std::fs::create_dir(dir.path().join("state")).expect("made");
    let text = "not a database, but something that somebody wants to keep".repeat(100);
    std::fs::write(file(&place), &text).expect("written");
    for tried in [Store::open(&place), Store::open_read(&place)] {
        assert!(matches!(tried, Err(HistoryError::Damaged { .. })), "{:?}", tried.err());
    }
    assert_eq!(std::fs::read_to_string(file(&place)).expect("read"), text);
}

#[test]
fn a_torn_database_gives_an_error_and_no_panic() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = place(&dir);
    let mut store = Store::open(&place).expect("made");
    for n in 0..200 {
        store.keep(&row(n)).expect("kept");
    }
    drop(store);
    let mut bytes = std::fs::read(file(&place)).expect("read");
    let from = bytes.len() / 4;
    for byte in &mut bytes[from..] {
        *byte = 0x5a;
    }
    std::fs::write(file(&place), &bytes).expect("written");
    let tried = Store::open(&place).and_then(|mut store| {
        store.keep(&row(777))?;
        store.find(&Filter::default())
    });
    assert!(matches!(tried, Err(HistoryError::Damaged { .. })), "{tried:?}");
}

#[test]
fn old_rows_and_too_many_are_forgotten() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut store = Store::open(&place(&dir)).expect("made");
    for n in 0..300 {
        store.keep(&row(n)).expect("kept");
    }
    let mut other = row(1);
    (other.key, other.login) = ("other".into(), "you".into());
    store.keep(&other).expect("kept");
    let now = Duration::from_secs(1_400);
    let by_age = Retention { rows: 1_000, age: Duration::from_secs(390) };
    store.prune(&row(0), &by_age, now).expect("pruned");
    let rows = all(&mut store);
    // Rows that began before 1,010 are removed, except those of another user.
    assert_eq!(rows.len(), 291);
    assert_eq!(rows.iter().filter(|row| row.evidence.is_some()).count(), 257);
    let by_rows = Retention { rows: 5, ..Retention::default() };
    store.prune(&row(0), &by_rows, now).expect("pruned");
    let ids: Vec<String> = all(&mut store).into_iter().map(|row| row.key).collect();
    assert_eq!(ids, ["k299", "k298", "k297", "k296", "k295", "other"]);
}

#[test]
fn samples_of_streams_come_newest_first() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut store = Store::open(&place(&dir)).expect("made");
    let sample = |streams, mbps| StreamSample {
        streams,
        throughput: DataRate::from_mbps(mbps),
        began: Duration::from_secs(1),
    };
    let mut auto = row(7);
    auto.stream_samples = vec![sample(1, 10), sample(2, 19)];
    let mut short = row(8);
    short.elapsed = Duration::from_millis(100);
    let mut away = row(9);
    away.to_host = "elsewhere".into();
    // The time of a failure includes the silence before it, but not that of its samples.
    let mut failed = row(10);
    failed.ended = Ended::Failed;
    let mut partial = row(2);
    partial.ended = Ended::Partial;
    auto.ended = Ended::Failed;
    for row in [partial, row(3), auto, short, away, failed] {
        store.keep(&row).expect("kept");
    }
    let streams = |most| -> Vec<u32> {
        let found = store_samples(&place(&dir), most);
        found.iter().map(|sample| sample.streams).collect()
    };
    assert_eq!(streams(10), [2, 1, 3, 2]);
    assert_eq!(streams(2), [2, 1]);
}

#[test]
fn rows_of_a_clock_that_was_ahead_are_not_the_newest() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut store = Store::open(&place(&dir)).expect("made");
    let day = 86_400;
    let ahead = [row(1), row(day), row(day + 1)];
    for row in &ahead {
        store.keep(row).expect("kept");
    }
    let filter = Filter::default().begun_by(Duration::from_secs(1_000));
    let found = store.find(&filter).expect("found");
    assert_eq!(found.iter().map(|row| &row.key[..]).collect::<Vec<_>>(), ["k86400", "k1"]);
    assert_eq!(ahead.each_ref().map(|row| filter.fits(row)), [true, true, false]);
    let samples = store_samples(&place(&dir), 10);
    assert_eq!(samples.iter().map(|one| one.streams).collect::<Vec<_>>(), [86_400, 1]);
    // A list of the history has all of them.
    assert_eq!(all(&mut store).len(), 3);
}

fn store_samples(place: &Place, most: u32) -> Vec<StreamSample> {
    let mut store = Store::open_read(place).expect("there");
    store.stream_samples("here", "there", most, Duration::from_secs(1_000)).expect("found")
}

#[test]
fn a_directory_that_cannot_be_written_is_still_read() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().expect("a directory");
    let place = place(&dir);
    Store::open(&place).expect("made").keep(&row(1)).expect("kept");
    let state = dir.path().join("state");
    let mode = |bits| std::fs::Permissions::from_mode(bits);
    assert_eq!(std::fs::metadata(file(&place)).expect("there").permissions().mode() & 0o777, 0o600);
    std::fs::set_permissions(file(&place), mode(0o400)).expect("set");
    std::fs::set_permissions(&state, mode(0o500)).expect("set");
    let rows = all(&mut Store::open_read(&place).expect("readable"));
    assert_eq!(rows.len(), 1);
    // Root can write any directory; an end-to-end test uses a read-only mount.
    if !rustix::process::geteuid().is_root() {
        let tried = Store::open(&place);
        assert!(matches!(tried, Err(HistoryError::Other { .. })));
    }
    std::fs::set_permissions(&state, mode(0o700)).expect("set");
}

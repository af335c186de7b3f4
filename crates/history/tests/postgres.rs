//! The store on a real PostgreSQL server, which the tests start. Without PostgreSQL they are
//! reported as skipped, or fail with `PACKTRAIN_TEST_STRICT=1` or `CI=true`.

mod server;

use packtrain_history::{Ended, Filter, HistoryError, Place, Retention, Row, Store, StreamSample};
use packtrain_units::{ByteCount, DataRate, Duration};
use server::{Server, free_port};

fn place(server: &Server, rest: &str) -> Place {
    Place::parse(&server.url(rest)).expect("a place")
}

/// Opens the store, after the server has started.
fn store(server: &Server) -> Store {
    for _ in 0..200 {
        match Store::open(&place(server, "")) {
            Ok(store) => return store,
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(50)),
        }
    }
    panic!("{:?}\n{}", Store::open(&place(server, "")).err(), server.log());
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
        source: "zero \0 byte".into(),
        transport: "tcp".into(),
        streams: Some(n as u32 + 1),
        bytes: ByteCount(u64::MAX),
        p_cpu: Some(0.25),
        elapsed: Duration::from_secs(10),
        throughput: DataRate::from_mbps(100),
        evidence: Some("{}".into()),
        ..Row::default()
    }
}

#[test]
fn the_same_code_runs_on_postgresql() {
    let Some(server) = Server::start() else { return };
    let mut store = store(&server);
    // Several writers at once, each with its own connection.
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let server = &server;
            scope.spawn(move || {
                let mut store = Store::open(&place(server, "")).expect("opened");
                for n in 0..20 {
                    store.keep(&row(writer * 100 + n)).expect("kept");
                    store.keep(&row(writer * 100 + n)).expect("kept again");
                }
            });
        }
    });
    let mut bad = row(999);
    (bad.ended, bad.rtt) = (Ended::Failed, Some(Duration::from_millis(20)));
    bad.stream_samples = vec![StreamSample { streams: 9, ..StreamSample::default() }];
    store.keep(&bad).expect("kept");
    let rows = store.find(&Filter::default()).expect("found");
    assert_eq!(rows.len(), 61);
    let mut want = bad.clone();
    // Values that a text and a BIGINT cannot store.
    (want.source, want.bytes) = ("zero \u{fffd} byte".into(), ByteCount(i64::MAX as u64));
    assert_eq!(rows[0], want);
    let filter = Filter {
        id: Some("000003".into()),
        pid: Some(0),
        host: Some("there".into()),
        transport: Some("tcp".into()),
        since: Some(Duration::from_secs(5)),
        until: Some(Duration::from_secs(9_000_000)),
        failed: true,
        evidence: true,
        writer: Some(("here".into(), "me".into())),
        most: Some(3),
    };
    let found = store.find(&filter).expect("found");
    assert_eq!(found.len(), 1);
    let samples =
        store.stream_samples("here", "there", 3, Duration::from_secs(9_000_000)).expect("found");
    assert_eq!(samples.iter().map(|s| s.streams).collect::<Vec<_>>(), [9, 220, 219]);
    let few = Retention { rows: 4, age: Duration::from_secs(1_000) };
    store.prune(&row(0), &few, Duration::from_secs(3_000)).expect("pruned");
    assert!(store.find(&Filter::default()).expect("found").is_empty(), "all are too old");
    drop(store);

    encrypted(&server);
    wrong_passwords(&server);
}

fn encrypted(server: &Server) {
    let cert = server.path("cert.pem");
    if !cert.exists() {
        return;
    }
    // The server's certificate has no trusted issuer.
    let tried = Store::open_read(&place(server, "?sslmode=verify-full"));
    assert!(matches!(&tried, Err(HistoryError::Other { .. })), "{:?}", tried.err());
    let roots = format!("?sslmode=verify-full&sslrootcert={}", cert.display());
    let looked = Store::open_read(&place(server, &roots));
    assert!(looked.is_ok(), "{:?}", looked.err());
}

fn wrong_passwords(server: &Server) {
    let text = format!("postgresql://tester:nonsense@127.0.0.1:{}/postgres", server.port());
    let error = Store::open(&Place::parse(&text).expect("a place")).err().expect("refused");
    let said = error.to_string();
    assert!(said.contains("password") && !said.contains("nonsense"), "{said}");
}

#[test]
fn nobody_there_is_told_soon() {
    let port = free_port();
    let place = Place::parse(&format!("postgresql://me@127.0.0.1:{port}/x")).expect("a place");
    let error = Store::open(&place).err().expect("nobody").to_string();
    assert!(error.contains(&format!("postgresql://me@127.0.0.1:{port}/x")), "{error}");
}

//! The server in this process, with callers that violate the protocol.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration as StdDuration;

use packtrain_net::tcp::tls::{any_name, client_config};
use packtrain_runtime::handshake::{self, MeasureRequest};
use packtrain_transfer::message::{Open, Options};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;

use super::*;

/// Longer than any step of these tests, and shorter than the timeout of silent clients.
const LIMIT: StdDuration = StdDuration::from_secs(20);

fn rules(dir: &std::path::Path) -> AccessRules {
    AccessRules {
        kind: "serve",
        root: Some(dir.to_path_buf()),
        authorized: dir.join("authorized_keys"),
        tickets: TicketBook::new(dir.join("tickets")),
        base: Permissions::default(),
    }
}

/// The client that the server admits.
fn known_client() -> Identity {
    Identity::generate([1; 32])
}

/// Calls `with` with the address of a running server.
fn with_server(with: impl FnOnce(SocketAddr)) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let key = keys::public(&known_client()).to_string();
    std::fs::write(dir.path().join("authorized_keys"), key).expect("fine");
    let stop = StopHandle::new();
    let (ready, listens) = crossbeam_channel::bounded(1);
    std::thread::scope(|scope| {
        let server = scope.spawn({
            let (stop, rules) = (stop.clone(), rules(dir.path()));
            move || {
                let listening = Listening {
                    address: "127.0.0.1:0",
                    ticket: None,
                    stop,
                    clients: None,
                    limits: ClientLimits::default(),
                    drain: Duration::ZERO,
                    ready: &|address, _| {
                        let _ = ready.send(address);
                    },
                    notice: &|_| {},
                    done: Arc::new(|_| {}),
                    warn: Arc::new(|_| {}),
                    history: HistoryConfig::default(),
                };
                run_server(&Identity::generate(entropy::bytes()), rules, &listening)
            }
        });
        with(listens.recv_timeout(LIMIT).expect("it listens"));
        stop.request(15);
        server.join().expect("no panic").expect("it ends in order");
    });
}

#[test]
fn clients_that_are_silent_after_the_tls_handshake_keep_nobody_out() {
    with_server(|address| {
        let identity = Identity::generate(entropy::bytes());
        let config = client_config(&identity, Arc::new(|_| true)).expect("a configuration");
        let connector = TlsConnector::from(config);
        let connect = async || {
            let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, address.port())).await?;
            connector.connect(any_name(), socket).await
        };
        executor::handle().block_on(async {
            let mut silent = Vec::new();
            for _ in 0..MAX_UNAUTHENTICATED_PER_NETWORK + 8 {
                silent.push(connect().await.expect("nobody is refused"));
            }
            // The oldest connections are closed: the end follows the greeting.
            for stream in &mut silent[..8] {
                let mut greeting = Vec::new();
                let ended = tokio::time::timeout(LIMIT, stream.read_to_end(&mut greeting)).await;
                assert!(ended.is_ok(), "an old one is still there");
            }
            // They were not closed by a timeout: then the next ones would be closed too.
            let (mut next, mut greeting) = (silent.remove(8), Vec::new());
            let soon = StdDuration::from_millis(50);
            let ended = tokio::time::timeout(soon, next.read_to_end(&mut greeting)).await;
            assert!(ended.is_err(), "one that is not among the oldest was closed");
            // The newest connection gets an answer.
            let mut newest = silent.pop().expect("there are some");
            let mut greeting = [0; 8];
            let heard = tokio::time::timeout(LIMIT, newest.read_exact(&mut greeting)).await;
            heard.expect("in time").expect("a greeting");
        });
    });
}

/// A connection whose client sends no greeting is refused, and counts as long as it is open.
#[test]
fn a_refused_connection_counts_until_its_socket_is_closed() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let unauthenticated = Unauthenticated::new(1, 1);
    let (tell, told) = tokio::sync::mpsc::unbounded_channel();
    let counting = Arc::clone(&unauthenticated);
    let own = Identity::generate(entropy::bytes());
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let print = keys::public(&own).fingerprint();
    let server = Arc::new(Server {
        access: AccessPolicy {
            rules: rules(dir.path()),
            instance: ServerInstance::new("serve", print, address, Some(dir.path())),
        },
        acceptor: TlsAcceptor::from(server_config(&own, Arc::new(|_| true)).expect("fine")),
        unauthenticated: Arc::clone(&unauthenticated),
        clients: Clients::new(ClientLimits::default()),
        runs: Runs::default(),
        cut: StopHandle::new(),
        served: AtomicU64::new(0),
        // Called when the session is over.
        done: Arc::new(move |_| {
            let _ = tell.send(counting.count());
        }),
        warn: Arc::new(|_| {}),
        history: HistoryConfig::default(),
    });
    executor::handle().block_on(async {
        let mut told = told;
        let listener = TcpListener::bind(address).await.expect("it listens");
        let address = listener.local_addr().expect("bound");
        let identity = Identity::generate(entropy::bytes());
        let config = client_config(&identity, Arc::new(|_| true)).expect("a configuration");
        let connector = TlsConnector::from(config);
        let mut connect = async || {
            let socket = TcpStream::connect(address).await.expect("it accepts");
            let (accepted, peer) = listener.accept().await.expect("one comes");
            let (pending, eviction) = unauthenticated.register(peer.ip());
            let serving = Arc::clone(&server).connection(accepted, peer, pending, eviction);
            let serving = tokio::spawn(serving);
            let mut stream = connector.connect(any_name(), socket).await.expect("TLS");
            // A message of a number that no message has.
            stream.write_all(&[2, 0, 0, 0, 0xff, 0x7f]).await.expect("it takes it");
            stream.flush().await.expect("it takes it");
            let counted = tokio::time::timeout(LIMIT, told.recv()).await.expect("in time");
            assert_eq!(counted, Some(1), "its session is over, its connection is open");
            (stream, serving)
        };
        let (first, serving) = connect().await;
        // The next one takes the place of the first, which is closed.
        let (second, also) = connect().await;
        tokio::time::timeout(LIMIT, serving).await.expect("it was closed").expect("no panic");
        assert!(unauthenticated.count() <= 1);
        drop((first, second));
        tokio::time::timeout(LIMIT, also).await.expect("it has ended").expect("no panic");
        assert_eq!(unauthenticated.count(), 0);
    });
}

/// Asks for a measurement with as many flows over UDP as one may have.
fn measure(address: SocketAddr) -> Result<Control, Failure> {
    let config = client_config(&known_client(), Arc::new(|_| true)).expect("a configuration");
    let control = executor::handle().block_on(async {
        let socket = TcpStream::connect(address).await.expect("it accepts");
        let stream = TlsConnector::from(config).connect(any_name(), socket).await.expect("TLS");
        control::over_async(stream, None)
    });
    let perf = Some(MeasureRequest { parallel: 64, millis: 1000, bytes: None });
    let ask = SessionRequest { perf, choice: 1, ..SessionRequest::default() };
    let open = Open {
        role: packtrain_transfer::Role::Sink,
        paths: Vec::new(),
        sources: None,
        options: Options::default(),
        channel: ask.encode(),
    };
    handshake::call(&control, open, &Stop::new(StopHandle::new())).map(|_| control)
}

#[test]
fn measurements_of_one_key_leave_flows_to_other_keys() {
    with_server(|address| {
        let first = measure(address).expect("room");
        let _second = measure(address).expect("room");
        let failure = measure(address).err().expect("no more flows of this key");
        assert_eq!(failure.kind, FailureKind::Temporary);
        assert!(failure.text.contains("128 flows"), "{failure}");
        drop(first);
        let end = clock::now() + Duration::from_secs(60);
        let again = std::iter::repeat_with(|| measure(address)).find(|again| {
            std::thread::sleep(StdDuration::from_millis(20));
            again.is_ok() || clock::now() > end
        });
        assert!(again.is_some_and(|again| again.is_ok()), "an ended measurement leaves its flows");
    });
}

//! Connections between sockets of this crate, over loopback.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use packtrain_socket::{Error, Interest, Kind, Listener, Options, Poller, Port, Socket};
use packtrain_units::{ByteCount, Duration};

fn local() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

fn pair(options: &Options) -> (Socket, Socket) {
    let listener = Listener::bind(local(), options).expect("a listener");
    let at = listener.local_addr();
    thread::scope(|scope| {
        let called = scope.spawn(|| listener.accept().expect("a caller").0);
        let calling = Socket::connect(at, options).expect("a connection");
        (calling, called.join().expect("no panic"))
    })
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

#[test]
fn a_stream_arrives_whole_both_ways_and_ends() {
    let (mut near, mut far) = pair(&Options::default());
    let bytes = pattern(3_000_000);
    thread::scope(|scope| {
        let (bytes, far) = (&bytes, &mut far);
        scope.spawn(move || {
            let mut got = vec![0; bytes.len()];
            far.read_exact(&mut got).expect("bytes");
            assert!(got == *bytes, "what came is not what was sent");
            far.write_all(&got).expect("room");
        });
        near.write_all(bytes).expect("room");
        let mut back = vec![0; bytes.len()];
        near.read_exact(&mut back).expect("bytes");
        assert!(back == *bytes, "what came back is not what was sent");
    });
    let stats = near.stats();
    assert!(stats.sent_bytes.get() >= 3_000_000 && stats.received_bytes.get() == 3_000_000);
    near.close().expect("everything acknowledged");
    assert_eq!(near.acknowledged(), ByteCount(3_000_000));
    assert_eq!(far.recv(&mut [0; 10]).expect("an end"), 0);
    assert!(far.send(b"x").is_err(), "nobody is there any more");
}

#[test]
fn messages_keep_their_bounds() {
    let (near, far) = pair(&Options { kind: Kind::Datagram, ..Options::default() });
    let sizes = [1, 1_456, 1_457, 100_000, 7];
    for size in sizes {
        near.send_message(&pattern(size), None, true).expect("room");
    }
    let mut out = vec![0; 100_000];
    for size in sizes {
        assert_eq!(far.recv_message(&mut out).expect("a message"), Some(size));
        assert!(out[..size] == pattern(size), "{size}");
    }
    assert!(near.send(b"x").is_err(), "a stream's call");
    near.close().expect("everything acknowledged");
    assert_eq!(far.recv_message(&mut out).expect("an end"), None);
}

#[test]
fn calls_that_may_not_wait_say_so() {
    let (near, far) = pair(&Options::default());
    far.set_recv_timeout(Some(Duration::ZERO));
    assert!(matches!(far.recv(&mut [0; 9]), Err(Error::WouldBlock)));
    far.set_recv_timeout(Some(Duration::from_millis(30)));
    assert!(matches!(far.recv(&mut [0; 9]), Err(Error::TimedOut)));
    near.set_send_timeout(Some(Duration::ZERO));
    let block = pattern(100_000);
    let mut sent = 0;
    let full = loop {
        match near.send(&block) {
            Ok(n) => sent += n,
            Err(error) => break error,
        }
        assert!(sent < 100_000_000, "buffers have an end");
    };
    assert!(matches!(full, Error::WouldBlock), "{full}");
    far.set_recv_timeout(None);
    let mut got = 0;
    while got < sent {
        got += far.skip(usize::MAX).expect("bytes");
    }
    assert_eq!(got, sent);
}

#[test]
fn nobody_there_and_wrong_kinds_are_told_apart() {
    let options = Options { connect_timeout: Duration::from_millis(300), ..Options::default() };
    let nobody = Port::bind(local()).expect("a port");
    let error = Socket::connect(nobody.local_addr(), &options).expect_err("nobody listens");
    assert!(error.to_string().contains("no answer within"), "{error}");
    let listener = Listener::bind(local(), &Options::default()).expect("a listener");
    let messages = Options { kind: Kind::Datagram, ..options.clone() };
    let error = Socket::connect(listener.local_addr(), &messages).expect_err("another kind");
    assert!(error.to_string().contains("rejected by the peer"), "{error}");
    let bad = Options { cc: "no-such".to_owned(), ..options };
    assert!(matches!(Socket::connect(local(), &bad), Err(Error::Open(_))));
}

#[test]
fn two_ports_call_each_other() {
    // Free ports are found by binding them; another process may bind one in between.
    let free = || Port::bind(local()).expect("a port").local_addr();
    let (a, b) = (free(), free());
    thread::sleep(std::time::Duration::from_millis(50));
    let options = Options::default();
    thread::scope(|scope| {
        let one = scope.spawn(|| Socket::rendezvous(a, b, &options).expect("a meeting"));
        let two = Socket::rendezvous(b, a, &options).expect("a meeting");
        let one = one.join().expect("no panic");
        one.send_all(b"met").expect("room");
        let mut out = [0; 3];
        (&two).read_exact(&mut out).expect("bytes");
        assert_eq!(&out, b"met");
    });
}

#[test]
fn many_connections_share_a_port_and_a_poller() {
    let options = Options::default();
    let listener = Listener::bind(local(), &options).expect("a listener");
    let at = listener.local_addr();
    let port = Port::bind(local()).expect("a port");
    let mut poller = Poller::new();
    let mut far = Vec::new();
    let mut near = Vec::new();
    for key in 0..8 {
        near.push(port.connect(at, &options).expect("a connection"));
        let (socket, _) = listener.accept().expect("a caller");
        let socket = Arc::new(socket);
        poller.add(Arc::clone(&socket), key, Interest { readable: true, writable: false });
        far.push(socket);
    }
    assert_eq!(poller.wait(Some(Duration::from_millis(20))), []);
    near[5].send_all(b"five").expect("room");
    let ready = poller.wait(None);
    assert_eq!(ready.iter().map(|r| (r.key, r.readable)).collect::<Vec<_>>(), [(5, true)]);
    let mut out = [0; 9];
    assert_eq!(far[5].recv(&mut out).expect("bytes"), 4);
    // The poller reports no more after the last byte was read.
    near[5].send_all(b"again").expect("room");
    assert_eq!(poller.wait(None).first().map(|r| r.key), Some(5));
    drop(near.swap_remove(2));
    while !poller.wait(None).iter().any(|r| r.key == 2) {}
    assert_eq!(far[2].recv(&mut out).expect("an end"), 0);
}

#[test]
fn what_is_dropped_is_delivered_all_the_same() {
    let (near, far) = pair(&Options::default());
    let bytes = pattern(1_000_000);
    thread::scope(|scope| {
        scope.spawn(|| {
            near.send_all(&bytes).expect("room");
            drop(near);
        });
        let mut got = Vec::new();
        (&far).read_to_end(&mut got).expect("bytes");
        assert!(got == bytes);
    });
}

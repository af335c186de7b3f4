//! Connecting and listening.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};

use packtrain_net::tcp::{ConnectError, ConnectOptions, connect, connect_any, listen_in, tcp_info};
use packtrain_units::{ByteCount, Duration};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// An address that never answers, because its accept queue is full.
struct Silent {
    addr: SocketAddr,
    _listener: socket2::Socket,
    _queued: Vec<socket2::Socket>,
}

fn silent() -> Silent {
    let new = || socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let listener = new();
    listener.bind(&SocketAddr::new(HERE, 0).into()).unwrap();
    listener.listen(0).unwrap();
    let addr = listener.local_addr().unwrap().as_socket().unwrap();
    let queued = (0..8)
        .map(|_| {
            let socket = new();
            socket.set_nonblocking(true).unwrap();
            let _ = socket.connect(&addr.into());
            socket
        })
        .collect();
    Silent { addr, _listener: listener, _queued: queued }
}

fn refused() -> SocketAddr {
    TcpListener::bind((HERE, 0)).unwrap().local_addr().unwrap()
}

#[tokio::test]
async fn the_address_that_answers_wins() {
    let listener = listen_in(Some(HERE), None).unwrap();
    let good = listener.local_addr().unwrap();
    let silent = silent();
    let options = ConnectOptions {
        congestion: Some("reno".into()),
        notsent_lowat: Some(ByteCount(1 << 17)),
        ..ConnectOptions::default()
    };
    for addrs in [
        vec![good],
        vec![refused(), good],
        vec![silent.addr, good],
        vec![silent.addr, refused(), good],
    ] {
        let stream = connect_any(&addrs, &options).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), good);
        assert_eq!(tcp_info(&stream).unwrap().congestion, "reno");
        assert!(stream.nodelay().unwrap());
        stream.peer_addr().unwrap();
    }
}

#[tokio::test]
async fn errors_say_what_happened() {
    let options =
        ConnectOptions { timeout: Duration::from_millis(400), ..ConnectOptions::default() };
    let first = refused();
    match connect_any(&[first, refused()], &options).await {
        Err(ConnectError::Refused { addr, error }) => {
            assert_eq!(addr, first);
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        }
        other => panic!("{other:?}"),
    }
    let silent = silent();
    let late = connect_any(&[silent.addr], &options).await;
    assert!(matches!(late, Err(ConnectError::TimedOut(_))), "{late:?}");
    let nobody = connect_any(&[], &options).await;
    assert!(matches!(nobody, Err(ConnectError::Resolve { .. })), "{nobody:?}");
    let unknown = ConnectOptions { congestion: Some("no-such".into()), ..options };
    assert!(connect_any(&[first], &unknown).await.is_err());
}

#[tokio::test]
async fn names_and_bracketed_addresses_connect() {
    let listener = listen_in(None, None).unwrap();
    let port = listener.local_addr().unwrap().port();
    let options = ConnectOptions::default();
    for host in ["localhost", "127.0.0.1", "[::1]", "::1"] {
        if host.contains(':') && listener.local_addr().unwrap().is_ipv4() {
            packtrain_testkit::skip(&format!("{host}: this machine has no IPv6"));
            continue;
        }
        connect(host, port, &options).await.unwrap_or_else(|e| panic!("{host}: {e}"));
    }
}

#[tokio::test]
async fn a_range_of_ports_is_used_in_order() {
    // Finds a free pair of ports by binding and closing them.
    let (first, second) = loop {
        let probe = TcpListener::bind((HERE, 0)).unwrap().local_addr().unwrap().port();
        if probe < u16::MAX && TcpListener::bind((HERE, probe + 1)).is_ok() {
            break (probe, probe + 1);
        }
    };
    let one = listen_in(Some(HERE), Some(first..=second)).unwrap();
    assert_eq!(one.local_addr().unwrap().port(), first);
    let two = listen_in(Some(HERE), Some(first..=second)).unwrap();
    assert_eq!(two.local_addr().unwrap().port(), second);
    let error = listen_in(Some(HERE), Some(first..=second)).unwrap_err();
    assert!(error.to_string().contains("all ports"), "{error}");
    #[allow(clippy::reversed_empty_ranges)]
    let empty = listen_in(Some(HERE), Some(9..=8));
    assert_eq!(empty.unwrap_err().kind(), io::ErrorKind::InvalidInput);
}

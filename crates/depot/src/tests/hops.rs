//! Hops by datagrams: without losses, through a middlebox that loses, duplicates and reorders, and
//! through one that drops everything.

use std::collections::VecDeque;

use packtrain_session::hop::{FRAME_HEAD, Frame, HELLO};
use packtrain_session::{HEADER_HEAD, Header, HopTransport};
use packtrain_units::Rng;
use tokio::net::UdpSocket;

use super::*;
use packtrain_hops as hop;
use packtrain_hops::{Carrier, Hops};

fn route(to: &Place, route: &[(&Place, HopTransport)]) -> Session {
    let hop = |(place, transport): &(&Place, HopTransport)| Hop {
        transport: *transport,
        place: (*place).clone(),
    };
    Session { route: route.iter().map(hop).collect(), ..ask(to, &[]) }
}

fn byte(at: usize) -> u8 {
    (at * 31 + (at >> 9) * 7) as u8
}

/// Opens a session as a sender.
async fn open(session: &Session) -> Carrier {
    let first = &session.route[0];
    let mut socket = reach(&first.place).await;
    let header = header(session, 1);
    if !first.transport.is_datagram() {
        socket.write_all(&header).await.expect("room");
        return Carrier::Tcp(socket);
    }
    let pool = Arc::new(DepotLimits::default().pool());
    let hops = Arc::new(Hops::new(pool, PortRange::ANY, 16));
    hop::call(socket, first.transport, &header, &hops).await.expect("it is there").0
}

/// Sends bytes and checks their echo.
async fn there_and_back(session: &Session, len: usize) {
    let mut socket = open(session).await;
    assert_eq!(read_answer(&socket).await.expect("an answer"), Answer::Accepted);
    let (mut read, mut write) = tokio::io::split(&mut socket);
    let send = async {
        let mut at = 0;
        while at < len {
            let piece: Vec<u8> = (at..len.min(at + 50_000)).map(byte).collect();
            write.write_all(&piece).await.expect("it takes all");
            at += piece.len();
            // Part of the data is sent before datagrams start.
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        write.shutdown().await.expect("it is open");
    };
    let receive = async {
        let (mut at, mut piece) = (0, vec![0; 100_000]);
        loop {
            let count = read.read(&mut piece).await.expect("it is whole");
            if count == 0 {
                break;
            }
            let wrong = (0..count).find(|n| piece[*n] != byte(at + n));
            assert_eq!(wrong.map(|n| at + n), None, "another byte");
            at += count;
        }
        assert_eq!(at, len);
    };
    tokio::join!(send, receive);
}

#[test]
fn bytes_by_native_and_udt_and_tcp_in_any_order() {
    use HopTransport::{Native, Tcp, Udt};
    let (a, b) = (TestDepot::start(|_| {}), TestDepot::start(|_| {}));
    executor::handle().block_on(async {
        let to = echo().await;
        for (first, second) in [(Native, Tcp), (Tcp, Native), (Udt, Native), (Native, Udt)] {
            there_and_back(&route(&to, &[(&a.place, first), (&b.place, second)]), 5_000_001).await;
        }
        there_and_back(&route(&to, &[(&a.place, Udt)]), 5_000_001).await;
        // Too short for datagrams, and an empty stream.
        there_and_back(&route(&to, &[(&a.place, Native)]), 2_000).await;
        there_and_back(&route(&to, &[(&a.place, Native), (&b.place, Native)]), 0).await;
    });
    let (sessions, _) = a.end();
    // In the order in which they ended.
    let mut seen: Vec<_> = sessions.iter().map(|one| (one.by, one.carried)).collect();
    seen.sort_unstable();
    let mut expected = [
        (("native", "tcp"), (true, false)),
        (("tcp", "native"), (false, true)),
        (("udt", "native"), (true, true)),
        (("native", "udt"), (true, true)),
        (("udt", "tcp"), (true, false)),
        (("native", "tcp"), (false, false)),
        (("native", "native"), (false, false)),
    ];
    expected.sort_unstable();
    assert_eq!(seen, expected, "{sessions:?}");
    let whole = ByteCount(5_000_001);
    let all = sessions.iter().filter(|one| one.bytes == (whole, whole)).count();
    assert_eq!(all, 5, "{sessions:?}");
    assert!(sessions.iter().all(|one| one.failure.is_none()), "{sessions:?}");
    b.end();
}

#[test]
fn refusals_come_through_hops_by_datagrams() {
    let a = TestDepot::start(|_| {});
    let b = TestDepot::start(|request| request.allow.clear());
    executor::handle().block_on(async {
        let to = echo().await;
        let by = HopTransport::Native;
        let refused = async |session: Session| {
            let socket = open(&session).await;
            match read_answer(&socket).await.expect("an answer") {
                Answer::Refused(refusal) => (refusal.reason, refusal.depot),
                Answer::Accepted => panic!("it was let in"),
            }
        };
        assert_eq!(refused(route(&to, &[(&b.place, by)])).await, (Reason::Forbidden, 0));
        let two = route(&to, &[(&a.place, by), (&b.place, by)]);
        assert_eq!(refused(two).await, (Reason::Forbidden, 1));
        let two = route(&to, &[(&a.place, HopTransport::Tcp), (&b.place, by)]);
        assert_eq!(refused(two).await, (Reason::Forbidden, 1));
        let late = Session { sent: Duration::from_secs(9), ..route(&to, &[(&a.place, by)]) };
        assert_eq!(refused(late).await, (Reason::Stale, 0));
        // The server is reached by TCP.
        let hop = Hop { transport: by, place: to.clone() };
        let last = Session { destination: hop, ..route(&to, &[(&a.place, by)]) };
        assert_eq!(refused(last).await, (Reason::Unsupported, 0));
    });
}

/// Impairments of datagrams.
#[derive(Clone, Copy)]
struct Impairment {
    lost: f64,
    twice: f64,
    late: f64,
    seed: u64,
}

/// A middlebox between two ends of a hop. TCP bytes pass through, the announced ports are replaced
/// by its own, and datagrams are impaired.
async fn middle(depot: &Place, weather: Impairment) -> Place {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let place = listener.local_addr().expect("bound").to_string().parse().expect("a place");
    let depot = depot.clone();
    tokio::spawn(async move {
        while let Ok((caller, _)) = listener.accept().await {
            let called = reach(&depot).await;
            tokio::spawn(between(caller, called, weather));
        }
    });
    place
}

async fn between(caller: TcpStream, called: TcpStream, weather: Impairment) {
    let (mut from, mut back) = caller.into_split();
    let (mut other, mut to) = called.into_split();
    let ports: Arc<[StdMutex<[u16; 2]>; 2]> = Arc::default();
    let sockets = [0, 1].map(|_| std::net::UdpSocket::bind("127.0.0.1:0").expect("a port"));
    let own = [0, 1].map(|n: usize| sockets[n].local_addr().expect("bound").port());
    for (n, socket) in sockets.into_iter().enumerate() {
        socket.set_nonblocking(true).expect("it can");
        let socket = UdpSocket::from_std(socket).expect("it is one");
        tokio::spawn(datagrams(socket, Arc::clone(&ports), n, weather));
    }
    let there = async {
        let mut head = [0; HEADER_HEAD];
        from.read_exact(&mut head).await?;
        let len = Header::len(&head).expect("a header");
        let mut rest = vec![0; len - HEADER_HEAD + HELLO];
        from.read_exact(&mut rest).await?;
        to.write_all(&[&head[..], &rest].concat()).await?;
        frames(&mut from, &mut to, &ports, own, 0).await
    };
    let here = async {
        let mut hello = [0; HELLO];
        other.read_exact(&mut hello).await?;
        back.write_all(&hello).await?;
        frames(&mut other, &mut back, &ports, own, 1).await
    };
    let _ = tokio::join!(there, here);
}

/// Relays frames; `side` 0 is the caller's. Flow 0 is the caller's offer, flow 1 the other's.
async fn frames(
    from: &mut tokio::net::tcp::OwnedReadHalf,
    to: &mut tokio::net::tcp::OwnedWriteHalf,
    ports: &[StdMutex<[u16; 2]>; 2],
    own: [u16; 2],
    side: usize,
) -> std::io::Result<()> {
    loop {
        let mut head = [0; FRAME_HEAD];
        if from.read(&mut head[..1]).await? == 0 {
            return to.shutdown().await;
        }
        from.read_exact(&mut head[1..]).await?;
        let mut body = vec![0; Frame::len(&head).expect("a length")];
        from.read_exact(&mut body).await?;
        let frame = match Frame::read(head[0], &body).expect("a frame") {
            Frame::Offer(port) => {
                ports[side].lock()[side] = port;
                Frame::Offer(own[side])
            }
            Frame::Take(port) => {
                ports[1 - side].lock()[side] = port;
                Frame::Take(own[1 - side])
            }
            frame => frame,
        };
        to.write_all(&frame.write()).await?;
    }
}

async fn datagrams(
    socket: UdpSocket,
    ports: Arc<[StdMutex<[u16; 2]>; 2]>,
    flow: usize,
    weather: Impairment,
) {
    let (mut rng, mut buffer) = (Rng::new(weather.seed + flow as u64), vec![0; 65_536]);
    let mut late: VecDeque<(Vec<u8>, u16)> = VecDeque::new();
    // No task waits for this one: it ends with the runtime, or when no datagram arrives any more.
    let quiet = std::time::Duration::from_secs(20);
    while let Ok(Ok((len, from))) = tokio::time::timeout(quiet, socket.recv_from(&mut buffer)).await
    {
        let [near, far] = *ports[flow].lock();
        let to = if from.port() == near { far } else { near };
        if to == 0 || rng.chance(weather.lost) {
            continue;
        }
        let packet = buffer[..len].to_vec();
        if rng.chance(weather.late) {
            late.push_back((packet, to));
            continue;
        }
        let _ = socket.send_to(&packet, ("127.0.0.1", to)).await;
        if rng.chance(weather.twice) {
            let _ = socket.send_to(&packet, ("127.0.0.1", to)).await;
        }
        if late.len() > 3 || rng.chance(0.2) {
            for (packet, to) in late.drain(..) {
                let _ = socket.send_to(&packet, ("127.0.0.1", to)).await;
            }
        }
    }
}

#[test]
fn bytes_come_out_in_order_and_whole_through_loss_repetition_and_disorder() {
    use HopTransport::{Native, Tcp, Udt};
    let (a, b) = (TestDepot::start(|_| {}), TestDepot::start(|_| {}));
    executor::handle().block_on(async {
        let to = echo().await;
        for (by, seed) in [(Native, 1), (Udt, 2), (Native, 3)] {
            let weather = Impairment { lost: 0.02, twice: 0.02, late: 0.05, seed };
            let inner = middle(&b.place, weather).await;
            there_and_back(&route(&to, &[(&a.place, Tcp), (&inner, by)]), 1_500_001).await;
            let outer = middle(&a.place, weather).await;
            there_and_back(&route(&to, &[(&outer, by), (&inner, Native)]), 700_001).await;
        }
    });
    for station in [a, b] {
        let (sessions, _) = station.end();
        assert!(sessions.iter().all(|one| one.failure.is_none()), "{sessions:?}");
        assert!(sessions.iter().all(|one| one.carried != (false, false)), "{sessions:?}");
    }
}

#[test]
fn where_no_datagram_gets_through_tcp_carries_the_hop_and_it_is_told() {
    let (a, b) = (TestDepot::start(|_| {}), TestDepot::start(|_| {}));
    executor::handle().block_on(async {
        let to = echo().await;
        let weather = Impairment { lost: 1.0, twice: 0.0, late: 0.0, seed: 1 };
        let inner = middle(&b.place, weather).await;
        let by = [(&a.place, HopTransport::Tcp), (&inner, HopTransport::Native)];
        let mut socket = open(&route(&to, &by)).await;
        assert_eq!(read_answer(&socket).await.expect("an answer"), Answer::Accepted);
        // Bytes flow meanwhile, for longer than the timeout of datagrams.
        let mut piece = vec![5; 100_000];
        for _ in 0..50 {
            socket.write_all(&[5; 100_000]).await.expect("it takes all");
            socket.read_exact(&mut piece).await.expect("it comes back");
            assert!(piece.iter().all(|byte| *byte == 5));
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        socket.shutdown().await.expect("it is open");
        assert_eq!(socket.read(&mut piece).await.expect("an end"), 0);
    });
    let (sessions, _) = a.end();
    assert_eq!(sessions[0].fell_back, (false, true), "{sessions:?}");
    assert_eq!((sessions[0].carried, &sessions[0].failure), ((false, false), &None));
    b.end();
}

#[test]
fn who_does_not_read_stops_who_writes_over_datagrams_too() {
    let limits = DepotLimits { pool: ByteCount(4 << 20), sessions: 8, ..DepotLimits::default() };
    let depot = TestDepot::start(|request| request.limits = limits);
    executor::handle().block_on(async {
        // Accepts the connection and reads nothing.
        let unread = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let to = unread.local_addr().expect("bound").to_string().parse().expect("a place");
        let session = route(&to, &[(&depot.place, HopTransport::Native)]);
        let mut socket = open(&session).await;
        let (_kept, _) = unread.accept().await.expect("it comes");
        assert_eq!(read_answer(&socket).await.expect("an answer"), Answer::Accepted);
        let mut written = 0;
        let write = async {
            loop {
                socket.write_all(&[1; 65_536]).await.expect("it is open");
                written += 65_536;
            }
        };
        let limit = std::time::Duration::from_secs(2);
        assert!(tokio::time::timeout(limit, write).await.is_err(), "it waits");
        assert!(written < 100 << 20, "{written} bytes went nowhere");
    });
    let (_, stats) = depot.end();
    assert!(stats.held.1 <= ByteCount(4 << 20), "{:?}", stats.held);
}

#[test]
fn an_echo_comes_from_each_depot_of_a_route() {
    use packtrain_session::echo::{ECHO_HEAD, EchoHead};
    let (a, b) = (TestDepot::start(|_| {}), TestDepot::start(|_| {}));
    executor::handle().block_on(async {
        use HopTransport::{Native, Tcp};
        let nobody: Place = "192.0.2.1:9".parse().expect("a place");
        let routes = [
            vec![(&a.place, Tcp)],
            vec![(&a.place, Native)],
            vec![(&a.place, Tcp), (&b.place, Native)],
        ];
        for by in routes {
            let session = Session { kind: Kind::Echo, ..route(&nobody, &by) };
            let mut socket = open(&session).await;
            assert_eq!(read_answer(&socket).await.expect("an answer"), Answer::Accepted);
            for (len, tag) in [(0, 1), (50_000, 2), (65_536, 3)] {
                let head = EchoHead { len, flags: 0, tag };
                let asked = [&head.write()[..], &vec![9; len as usize]].concat();
                socket.write_all(&asked).await.expect("room");
                let mut received = vec![0; ECHO_HEAD + len as usize];
                socket.read_exact(&mut received).await.expect("an echo");
                assert!(received == asked);
            }
        }
    });
    b.end();
    a.end();
}

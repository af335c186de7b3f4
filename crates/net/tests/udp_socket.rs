//! The UDP socket on the real kernel, over loopback.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use packtrain_net::udp::{BindError, Ecn, PortRange, RecvSlab, SendError, UdpSocket};
use packtrain_os::clock;
use packtrain_units::Duration;
use rustix::event::{PollFd, PollFlags, poll};

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn pair(a: &str, b: &str) -> (UdpSocket, UdpSocket) {
    (UdpSocket::bind(a.parse().unwrap()).unwrap(), UdpSocket::bind(b.parse().unwrap()).unwrap())
}

fn wait(socket: &UdpSocket) {
    let mut fds = [PollFd::new(socket, PollFlags::IN)];
    let limit = rustix::event::Timespec { tv_sec: 10, tv_nsec: 0 };
    assert_eq!(poll(&mut fds, Some(&limit)).unwrap(), 1, "nothing came within ten seconds");
}

/// Receives datagrams until `count` have arrived.
fn collect(socket: &mut UdpSocket, count: usize) -> Vec<(SocketAddr, Option<Ecn>, Vec<u8>)> {
    let mut slab = RecvSlab::new();
    let mut out = Vec::new();
    while out.len() < count {
        wait(socket);
        socket.recv(&mut slab).unwrap();
        for message in slab.messages() {
            assert!(message.received_at <= clock::now());
            assert!(message.received_at + Duration::from_secs(10) > clock::now());
            for datagram in message.bytes.chunks(message.stride) {
                out.push((message.from, message.ecn, datagram.to_vec()));
            }
        }
    }
    out
}

fn datagrams(count: usize, size: usize, last: usize) -> Vec<u8> {
    let len = (count - 1) * size + last;
    (0..len).map(|i| (i / size * 7 + i) as u8).collect()
}

#[test]
fn a_batch_arrives_as_the_same_datagrams() {
    for (a, b) in [("127.0.0.1:0", "127.0.0.1:0"), ("[::1]:0", "[::1]:0")] {
        let (mut tx, mut rx) = pair(a, b);
        for (count, size, last) in [(1, 1, 1), (44, 1_472, 100), (3, 1_200, 1_200), (2, 9_000, 8)] {
            let batch = datagrams(count, size, last);
            let sent = tx.send(rx.local_addr(), &batch, size, None).unwrap();
            assert_eq!(sent, batch.len());
            let got = collect(&mut rx, count);
            assert_eq!(got.len(), count);
            let bytes: Vec<u8> = got.iter().flat_map(|(_, _, d)| d.iter().copied()).collect();
            assert_eq!(bytes, batch, "{count} of {size} over {a}");
            assert!(got.iter().all(|(from, _, _)| *from == tx.local_addr()));
        }
    }
}

#[test]
fn more_than_one_call_takes_is_sent_in_several() {
    let (mut tx, mut rx) = pair("127.0.0.1:0", "127.0.0.1:0");
    let batch = datagrams(100, 1_000, 1_000);
    assert_eq!(tx.send(rx.local_addr(), &batch, 1_000, None).unwrap(), batch.len());
    let got: Vec<u8> = collect(&mut rx, 100).into_iter().flat_map(|(_, _, d)| d).collect();
    assert_eq!(got, batch);
}

#[test]
fn a_dual_stack_socket_speaks_both_families() {
    let Ok(mut dual) = UdpSocket::bind("[::]:0".parse().unwrap()) else {
        packtrain_testkit::skip("this machine has no IPv6");
        return;
    };
    let port = dual.local_addr().port();
    for own in ["127.0.0.1:0", "[::1]:0"] {
        let mut peer = UdpSocket::bind(own.parse().unwrap()).unwrap();
        let there = SocketAddr::new(peer.local_addr().ip(), port);
        peer.send(there, b"ping", 4, Some(Ecn::Ect0)).unwrap();
        let got = collect(&mut dual, 1);
        assert_eq!(got[0].0, peer.local_addr(), "an address is given in its own family");
        assert_eq!(got[0].1, Some(Ecn::Ect0));
        dual.send(got[0].0, b"pong", 4, Some(Ecn::Ce)).unwrap();
        let back = collect(&mut peer, 1);
        assert_eq!((back[0].0, back[0].1), (there, Some(Ecn::Ce)));
        assert_eq!(back[0].2, b"pong");
    }
}

#[test]
fn drops_for_want_of_buffer_are_counted() {
    let (mut tx, mut rx) = pair("127.0.0.1:0", "127.0.0.1:0");
    assert_eq!(rx.drops().0, 0);
    let batch = datagrams(44, 1_472, 1_472);
    for _ in 0..1_000 {
        // The sender's buffer never fills on loopback: datagrams are dropped at the receiver.
        let _ = tx.send(rx.local_addr(), &batch, 1_472, None);
    }
    let total = rx.drops().0;
    assert!(total > 0, "44,000 datagrams cannot all have waited");
    // Empties the queue; the next datagram carries the counter.
    let mut slab = RecvSlab::new();
    let mut got = 0;
    while rx.recv(&mut slab).unwrap() > 0 {
        got += slab.messages().map(|m| m.bytes.len().div_ceil(m.stride)).sum::<usize>();
    }
    tx.send(rx.local_addr(), b"x", 1, None).unwrap();
    collect(&mut rx, 1);
    assert_eq!(rx.seen_drops().0, total);
    if rx.offloads().coalescing {
        // Kernels count a dropped batch as one, or by its datagrams.
        assert!(got + total as usize * 44 >= 44_000, "each batch arrived or was counted");
    }
}

#[test]
fn what_is_too_big_is_said() {
    let (mut tx, rx) = pair("127.0.0.1:0", "127.0.0.1:0");
    let huge = vec![0; 65_520];
    assert!(matches!(tx.send(rx.local_addr(), &huge, huge.len(), None), Err(SendError::TooBig)));
    // An address of the wrong family is refused, and the socket stays usable.
    let elsewhere = "[2001:db8::1]:9".parse().unwrap();
    assert!(matches!(tx.send(elsewhere, b"x", 1, None), Err(SendError::Refused(_))));
    assert_eq!(tx.send(rx.local_addr(), b"x", 1, None).unwrap(), 1);
}

#[test]
fn ports_come_from_the_range_until_it_is_used_up() {
    // Finds free consecutive ports by binding one port and trying those after it.
    let probe = UdpSocket::bind((LOCAL, 0).into()).unwrap();
    let first = probe.local_addr().port().min(65_000);
    let range = PortRange::new(first, first + 20).unwrap();
    let mut held = Vec::new();
    let error = loop {
        match UdpSocket::bind_in(Some(LOCAL), range, held.len() as u64 * 5) {
            Ok(socket) => held.push(socket),
            Err(e) => break e,
        }
    };
    assert!(held.len() <= 21);
    assert!(held.iter().all(|s| (first..=first + 20).contains(&s.local_addr().port())));
    assert!(matches!(error, BindError::NoFreePort { .. }), "{error}");
    drop(held);
    let lanes = UdpSocket::bind_lanes(None, PortRange::ANY, 4, 1).unwrap();
    assert_eq!(lanes.len(), 4);
}

#[test]
fn sizes_are_what_the_kernel_granted() {
    let (socket, _) = pair("127.0.0.1:0", "127.0.0.1:0");
    let sizes = socket.buffer_sizes().unwrap();
    assert!(sizes.receive.get() > 0 && sizes.send.get() > 0);
    assert!(sizes.wanted.get() >= 1 << 20);
}

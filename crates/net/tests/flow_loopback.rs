//! Both ends of a flow on their own threads, over loopback.

mod flow_ends;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_channel::unbounded;
use flow_ends::{Source, config, ends, is, range, sockets, until};
use packtrain_cc::{ControllerConfig, build};
use packtrain_net::flow::{FlowEvent, spawn_sender};
use packtrain_net::udp::UdpSocket;
use packtrain_os::{clock, entropy};
use packtrain_proto::{CloseReason, Event, Flow, Role};

fn moves(local: &str, lanes: usize, cc: &str, size: u64) {
    let ends = ends(local, lanes, cc);
    ends.tx.assign(range(0, size));
    let mut placed = 0;
    until(&ends.told, |event| {
        if let FlowEvent::Flow(Event::Placed(range)) = event {
            placed += range.end.since(range.start).get();
        }
        is(event, &Event::Idle)
    });
    assert_eq!(placed, size, "each byte is told exactly once");
    assert_eq!(ends.sink.total(), size);
    ends.tx.close(CloseReason::Done);
    until(&ends.told_rx, |e| matches!(e, FlowEvent::Flow(Event::Closed(CloseReason::Done))));
    let (tx, rx) = (ends.tx.join(), ends.rx.join());
    assert!(tx.io.datagrams_out > 0 && rx.io.datagrams_in > 0);
    assert!(tx.flow.acked_bytes.get() >= size && rx.flow.received_bytes.get() >= size);
    // The marks of all data arrive, so a sender that answers marks goes on marking.
    let marks = !cc.starts_with("fixed");
    assert_eq!((tx.flow.ecn, tx.flow.ecn_ce), (marks, 0));
    assert!(!marks || rx.flow.ecn_ect0 >= rx.flow.received_packets);
    assert!(!tx.cpu.is_zero() && !rx.cpu.is_zero());
    assert!(matches!(ends.told_rx.try_iter().last(), Some(FlowEvent::Ended(_))));
}

#[test]
fn bytes_move_over_one_lane() {
    moves("127.0.0.1:0", 1, "native", 32 << 20);
}

#[test]
fn bytes_move_over_several_lanes() {
    moves("127.0.0.1:0", 4, "fixed:2gbit", (32 << 20) + 17);
}

#[test]
fn bytes_move_over_ipv6() {
    if UdpSocket::bind("[::1]:0".parse().unwrap()).is_err() {
        packtrain_testkit::skip("this machine has no IPv6");
        return;
    }
    moves("[::1]:0", 2, "native", 8 << 20);
}

#[test]
fn a_pending_payload_lets_the_thread_sleep_and_a_call_wakes_it() {
    let ends = ends("127.0.0.1:0", 1, "native");
    ends.ready.store(1 << 20, Ordering::SeqCst);
    ends.tx.assign(range(0, 2 << 20));
    let mut placed = 0;
    until(&ends.told, |event| {
        if let FlowEvent::Flow(Event::Placed(range)) = event {
            placed += range.end.since(range.start).get();
        }
        // A full datagram may extend beyond the available bytes.
        placed >= (1 << 20) - 1_500
    });
    let asked = ends.asked.load(Ordering::SeqCst);
    std::thread::sleep(std::time::Duration::from_millis(300));
    let more = ends.asked.load(Ordering::SeqCst) - asked;
    assert!(more < 3_000, "asked {more} times for what is pending: it spins");
    ends.ready.store(u64::MAX, Ordering::SeqCst);
    ends.tx.waker().wake();
    until(&ends.told, |e| is(e, &Event::Idle));
    assert_eq!(ends.sink.total(), 2 << 20);
}

#[test]
fn a_revoked_range_comes_back() {
    let ends = ends("127.0.0.1:0", 1, "native");
    ends.ready.store(0, Ordering::SeqCst);
    ends.tx.assign(range(0, 1 << 20));
    ends.tx.revoke(range(1 << 19, 1 << 20));
    until(&ends.told, |e| is(e, &Event::Returned(range(1 << 19, 1 << 20))));
    ends.ready.store(u64::MAX, Ordering::SeqCst);
    ends.tx.wake();
    until(&ends.told, |e| is(e, &Event::Idle));
    assert_eq!(ends.sink.total(), 1 << 19);
}

#[test]
fn a_dropped_handle_ends_both_threads() {
    let ends = ends("127.0.0.1:0", 2, "native");
    ends.tx.assign(range(0, 1 << 40));
    until(&ends.told, |e| matches!(e, FlowEvent::Flow(Event::Placed(_))));
    drop(ends.tx);
    until(&ends.told, |e| matches!(e, FlowEvent::Ended(_)));
    until(&ends.told_rx, |e| matches!(e, FlowEvent::Flow(Event::Closed(_))));
    until(&ends.told_rx, |e| matches!(e, FlowEvent::Ended(_)));
    assert!(ends.rx.join().flow.received_bytes.get() > 0);
}

#[test]
fn a_panic_in_the_payload_is_told() {
    let ends = ends("127.0.0.1:0", 1, "native");
    ends.broken.store(true, Ordering::SeqCst);
    ends.tx.assign(range(0, 1 << 20));
    let end = ends.told.iter().find(|e| matches!(e, FlowEvent::Panicked | FlowEvent::Ended(_)));
    assert!(matches!(end, Some(FlowEvent::Panicked)));
    ends.tx.join();
}

#[test]
fn a_peer_that_is_not_there_is_survived() {
    // The port is closed: sends cause ICMP errors, and nothing else.
    let gone = UdpSocket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let (secret, now) = (entropy::bytes(), clock::now());
    let config = config(Role::Sender, secret, vec![vec![gone.local_addr()]]);
    drop(gone);
    let control = ControllerConfig { mtu: config.mtu, seed: 1, now, ceiling: None, rtt: None };
    let flow = Flow::new(config, Some(build("native", &control).unwrap()), now).unwrap();
    let source =
        Source { ready: Arc::new(u64::MAX.into()), asked: Arc::default(), broken: Arc::default() };
    let (tell, told) = unbounded();
    let sockets = sockets("127.0.0.1:0", 1);
    let tx = spawn_sender(sockets, flow, source, move |e| drop(tell.send(e))).unwrap();
    tx.assign(range(0, 1 << 20));
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert!(!tx.is_finished());
    tx.close(CloseReason::Abandoned);
    until(&told, |e| matches!(e, FlowEvent::Ended(_)));
    assert!(tx.join().io.sends > 0);
}

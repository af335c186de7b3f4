//! Both ends of a flow, with a relay between them that loses datagrams or changes its address.

mod flow_ends;

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use flow_ends::{is, join, range, sockets, until};
use packtrain_net::flow::FlowEvent;
use packtrain_proto::{CloseReason, Event};
use packtrain_units::Rng;

/// What the relay does to datagrams, and its counters.
#[derive(Default)]
struct Rules {
    /// Losses per 10,000 datagrams.
    loss: u64,
    /// Number of datagrams from the sender after which the relay uses another port.
    move_after: Option<u64>,
    lost: AtomicU64,
    stop: AtomicBool,
}

/// A relay between the sender, which it identifies by the first datagram, and the receiver at `to`.
/// The receiver sees the relay as the sender. Returns the address for the sender.
fn relay(to: SocketAddr, rules: &Arc<Rules>) -> (SocketAddr, JoinHandle<()>) {
    let inner = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = inner.local_addr().unwrap();
    let rules = Arc::clone(rules);
    let pause = std::time::Duration::from_micros(200);
    let thread = std::thread::spawn(move || {
        let mut outer = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (mut rng, mut buffer) = (Rng::new(7), [0; 65_536]);
        let (mut sender, mut forward) = (None, 0);
        inner.set_nonblocking(true).unwrap();
        outer.set_nonblocking(true).unwrap();
        while !rules.stop.load(Ordering::Relaxed) {
            let mut idle = true;
            for _ in 0..64 {
                let Ok((len, from)) = inner.recv_from(&mut buffer) else { break };
                (sender, forward, idle) = (Some(from), forward + 1, false);
                if rules.move_after == Some(forward) {
                    outer = UdpSocket::bind("127.0.0.1:0").unwrap();
                    outer.set_nonblocking(true).unwrap();
                }
                if rng.next_u64() % 10_000 < rules.loss {
                    rules.lost.fetch_add(1, Ordering::Relaxed);
                } else {
                    let _ = outer.send_to(&buffer[..len], to);
                }
            }
            for _ in 0..64 {
                let Ok((len, _)) = outer.recv_from(&mut buffer) else { break };
                idle = false;
                if let Some(sender) = sender
                    && rng.next_u64() % 10_000 >= rules.loss
                {
                    let _ = inner.send_to(&buffer[..len], sender);
                }
            }
            if idle {
                std::thread::sleep(pause);
            }
        }
    });
    (address, thread)
}

fn moves_through(rules: Rules, size: u64) -> (Arc<Rules>, Vec<FlowEvent>) {
    let (near, far) = (sockets("127.0.0.1:0", 1), sockets("127.0.0.1:0", 1));
    let rules = Arc::new(rules);
    let (entry, thread) = relay(far[0].local_addr(), &rules);
    // The receiver knows no address: it answers the peer that authenticates as the sender.
    let ends = join(near, far, vec![vec![]], vec![vec![entry]], "native");
    ends.tx.assign(range(0, size));
    until(&ends.told, |e| is(e, &Event::Idle));
    assert_eq!(ends.sink.total(), size);
    ends.tx.close(CloseReason::Done);
    ends.tx.join();
    ends.rx.close(CloseReason::Done);
    ends.rx.join();
    rules.stop.store(true, Ordering::Relaxed);
    thread.join().unwrap();
    (rules, ends.told_rx.try_iter().collect())
}

#[test]
fn losses_are_repaired() {
    let (rules, _) = moves_through(Rules { loss: 100, ..Rules::default() }, 16 << 20);
    assert!(rules.lost.load(Ordering::Relaxed) > 50);
}

#[test]
fn the_flow_follows_a_sender_behind_a_nat_that_forgets() {
    let rules = Rules { move_after: Some(3_000), ..Rules::default() };
    let (_, told) = moves_through(rules, 16 << 20);
    let moved = |e: &FlowEvent| matches!(e, FlowEvent::Flow(Event::PathChanged { .. }));
    assert!(told.iter().any(moved), "{told:?}");
}

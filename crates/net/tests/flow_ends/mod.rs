//! Two ends of a flow for tests, with a source and a sink that check every byte.
#![allow(dead_code, unreachable_pub, missing_docs)]

use parking_lot::Mutex;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam_channel::{Receiver, unbounded};
use packtrain_cc::{ControllerConfig, build};
use packtrain_net::flow::{FlowEvent, FlowHandle, spawn_receiver, spawn_sender};
use packtrain_net::udp::UdpSocket;
use packtrain_os::{clock, entropy};
use packtrain_proto::{
    Event, FeedbackKind, Fill, Flow, FlowConfig, FlowKeys, Payload, Placed, Placement, Role, Suite,
};
use packtrain_units::{ByteCount, Offset, RangeSet};

pub const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);

/// The byte at an offset; no two ranges are equal.
pub fn byte(at: u64) -> u8 {
    (at ^ (at >> 8).wrapping_mul(31) ^ (at >> 16)) as u8
}

/// Bytes below `ready` are available, others are pending.
pub struct Source {
    pub ready: Arc<AtomicU64>,
    pub asked: Arc<AtomicU64>,
    pub broken: Arc<AtomicBool>,
}

impl Payload for Source {
    fn fill(&mut self, at: Offset, out: &mut [u8]) -> Fill {
        self.asked.fetch_add(1, Ordering::SeqCst);
        assert!(!self.broken.load(Ordering::SeqCst), "this source is broken on purpose");
        if at.get() + out.len() as u64 > self.ready.load(Ordering::SeqCst) {
            return Fill::Pending;
        }
        out.iter_mut().zip(at.get()..).for_each(|(b, i)| *b = byte(i));
        Fill::Ready
    }

    fn release(&mut self, _range: Range<Offset>) {}
}

/// Records which bytes were received, after checking their values. A retransmission may be cut
/// elsewhere than the first transmission, because the MTU of the path changed between them.
#[derive(Clone, Default)]
pub struct Sink(pub Arc<Mutex<RangeSet<Offset>>>);

impl Sink {
    pub fn total(&self) -> u64 {
        self.0.lock().len_bytes().get()
    }
}

impl Placement for Sink {
    fn place(&mut self, at: Offset, bytes: &[u8]) -> Placed {
        assert!(bytes.iter().zip(at.get()..).all(|(b, i)| *b == byte(i)), "wrong bytes at {at:?}");
        let range = at..at + ByteCount(bytes.len() as u64);
        if self.0.lock().insert(range).get() > 0 { Placed::New } else { Placed::Duplicate }
    }

    fn room(&self) -> ByteCount {
        ByteCount(16 << 20)
    }
}

pub struct Ends {
    pub tx: FlowHandle,
    pub rx: FlowHandle,
    pub told: Receiver<FlowEvent>,
    pub told_rx: Receiver<FlowEvent>,
    pub sink: Sink,
    pub ready: Arc<AtomicU64>,
    pub asked: Arc<AtomicU64>,
    pub broken: Arc<AtomicBool>,
}

pub fn sockets(local: &str, lanes: usize) -> Vec<UdpSocket> {
    (0..lanes).map(|_| UdpSocket::bind(local.parse().unwrap()).unwrap()).collect()
}

pub fn addresses(sockets: &[UdpSocket]) -> Vec<Vec<SocketAddr>> {
    sockets.iter().map(|s| vec![s.local_addr()]).collect()
}

pub fn config(role: Role, secret: [u8; 32], peers: Vec<Vec<SocketAddr>>) -> FlowConfig {
    let keys = FlowKeys { suite: Suite::Aes128Gcm, secret };
    FlowConfig { ecn: true, ..FlowConfig::new(role, keys, 7, peers) }
}

/// Two ends that know each other's addresses.
pub fn ends(local: &str, lanes: usize, cc: &str) -> Ends {
    let (near, far) = (sockets(local, lanes), sockets(local, lanes));
    let (here, there) = (addresses(&near), addresses(&far));
    join(near, far, here, there, cc)
}

/// Two ends whose peers are at `here` (the sender's address for the receiver) and `there`.
pub fn join(
    near: Vec<UdpSocket>,
    far: Vec<UdpSocket>,
    here: Vec<Vec<SocketAddr>>,
    there: Vec<Vec<SocketAddr>>,
    cc: &str,
) -> Ends {
    let secret = entropy::bytes();
    let now = clock::now();
    let feedback = if cc.starts_with("sabul") { FeedbackKind::Sabul } else { FeedbackKind::Native };
    let sending = FlowConfig { feedback, ..config(Role::Sender, secret, there) };
    let seed = entropy::seed();
    let control =
        ControllerConfig { mtu: sending.first_mtu(), seed, now, ceiling: None, rtt: None };
    let controller = build(cc, &control).unwrap();
    let receiving = FlowConfig { feedback, ..config(Role::Receiver, secret, here) };
    let (ready, asked, broken) = <(Arc<AtomicU64>, Arc<AtomicU64>, Arc<AtomicBool>)>::default();
    ready.store(u64::MAX, Ordering::SeqCst);
    let source = Source {
        ready: Arc::clone(&ready),
        asked: Arc::clone(&asked),
        broken: Arc::clone(&broken),
    };
    let sink = Sink::default();
    let (tell, told) = unbounded();
    let (tell_rx, told_rx) = unbounded();
    let flow = Flow::new(sending, Some(controller), now).unwrap();
    let tx = spawn_sender(near, flow, source, move |e| drop(tell.send(e))).unwrap();
    let flow = Flow::new(receiving, None, now).unwrap();
    let rx = spawn_receiver(far, flow, sink.clone(), move |e| drop(tell_rx.send(e))).unwrap();
    Ends { tx, rx, told, told_rx, sink, ready, asked, broken }
}

/// Waits for events until `done` returns true.
pub fn until(events: &Receiver<FlowEvent>, mut done: impl FnMut(&FlowEvent) -> bool) {
    loop {
        let event = events.recv_timeout(TIMEOUT).expect("the event comes in time");
        assert!(!matches!(event, FlowEvent::Panicked), "the thread died");
        if done(&event) {
            return;
        }
    }
}

pub fn is(event: &FlowEvent, wanted: &Event) -> bool {
    matches!(event, FlowEvent::Flow(e) if e == wanted)
}

pub fn range(from: u64, to: u64) -> Range<Offset> {
    Offset(from)..Offset(to)
}

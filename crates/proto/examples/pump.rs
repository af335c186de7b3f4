//! Pumps a flow from sender to receiver in memory and prints the cost of the protocol and its
//! codec: `cargo run --release -p packtrain-proto --example pump -- [SECONDS] [LANES]`.
//!
//! Both ends share one thread, so "per core" counts both; the time of each end is also printed.

#![allow(clippy::disallowed_methods, clippy::print_stdout)]

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Instant;

use packtrain_cc::{ControllerConfig, build};
use packtrain_proto::{
    BATCH_BYTES, Datagrams, Fill, Flow, FlowConfig, FlowKeys, Payload, Placed, Placement, Role,
    Suite, Transmit,
};
use packtrain_units::{ByteCount, Duration, Offset, Time};

/// One buffer that is read repeatedly.
struct Memory(Vec<u8>);

impl Payload for Memory {
    fn fill(&mut self, at: Offset, out: &mut [u8]) -> Fill {
        let start = at.get() as usize & 0xf_ffff;
        out.copy_from_slice(&self.0[start..start + out.len()]);
        Fill::Ready
    }

    fn release(&mut self, _range: Range<Offset>) {}
}

impl Placement for Memory {
    fn place(&mut self, at: Offset, bytes: &[u8]) -> Placed {
        let start = at.get() as usize & 0xf_ffff;
        self.0[start..start + bytes.len()].copy_from_slice(bytes);
        Placed::New
    }

    fn room(&self) -> ByteCount {
        ByteCount(64 << 20)
    }
}

/// Nanoseconds that this thread has run on a processor, where the kernel reports it: on a busy
/// machine the wall clock includes other work.
fn on_cpu() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |or: u64| arguments.next().and_then(|a| a.parse().ok()).unwrap_or(or);
    let (seconds, lanes) = (number(3), number(1).clamp(1, 16) as u8);
    let drop_every = number(0);
    let epoch = Instant::now();
    let clock = || Time::from_nanos(epoch.elapsed().as_nanos() as u64 + 1_000_000);
    let port = |p: u16, lane: u8| SocketAddr::from(([127, 0, 0, 1], p + u16::from(lane)));
    let peers = |p| (0..lanes).map(|lane| vec![port(p, lane)]).collect();
    let keys = FlowKeys { suite: Suite::Aes128Gcm, secret: [1; 32] };
    let start = clock();
    let controller =
        ControllerConfig { mtu: ByteCount(1472), seed: 1, now: start, ceiling: None, rtt: None };
    let controller = build("fixed:100gbit", &controller).expect("a known controller");
    let config = FlowConfig::new(Role::Sender, keys.clone(), 1, peers(2000));
    let mut sender = Flow::new(config, Some(controller), start).expect("a valid flow");
    let config = FlowConfig::new(Role::Receiver, keys, 1, peers(1000));
    let mut receiver = Flow::new(config, None, start).expect("a valid flow");
    sender.assign(Offset(0)..Offset(1 << 60));

    let mut slab = vec![0; BATCH_BYTES];
    let (mut source, mut sink) = (Memory(vec![7; 2 << 20]), Memory(vec![0; 2 << 20]));
    let (mut sending, mut receiving) = (0u64, 0u64);
    let mut batches = 0u64;
    let cpu = on_cpu();
    while clock().since(start) < Duration::from_secs(seconds) {
        let now = clock();
        let sent = sender.poll_transmit(now, &mut source, &mut slab);
        let middle = clock();
        sending += middle.since(now).as_nanos();
        if let Some(Transmit { lane, len, segment, .. }) = sent {
            batches += 1;
            let mut from = 0;
            if drop_every > 0 && batches.is_multiple_of(drop_every) && len > segment {
                from = segment;
            }
            let bytes = &mut slab[from..len];
            let from = port(1000, lane);
            let input =
                Datagrams { lane, from, bytes, stride: segment, ecn: None, received_at: middle };
            receiver.handle(middle, input, &mut sink);
            receiving += clock().since(middle).as_nanos();
        }
        let before = clock();
        while let Some(Transmit { lane, len, segment, .. }) =
            receiver.poll_transmit(before, &mut source, &mut slab)
        {
            let from = port(2000, lane);
            let bytes = &mut slab[..len];
            let input =
                Datagrams { lane, from, bytes, stride: segment, ecn: None, received_at: before };
            sender.handle(before, input, &mut sink);
        }
        while sender.poll_event().is_some() {}
        while receiver.poll_event().is_some() {}
    }
    let stats = receiver.stats();
    let (packets, bits) = (stats.received_packets.max(1), stats.received_bytes.get() * 8);
    println!(
        "{:.2} Gbit/s with both ends on one core, wall time",
        bits as f64 / seconds as f64 / 1e9
    );
    let cpu = (on_cpu() - cpu).max(1);
    let rate = bits as f64 / cpu as f64;
    println!("{rate:.2} Gbit/s a core-second, {} ns/packet for both ends", cpu / packets);
    println!(
        "sender   {} ns/packet, {:.1} Gbit/s",
        sending / packets,
        bits as f64 / sending as f64
    );
    println!(
        "receiver {} ns/packet, {:.1} Gbit/s",
        receiving / packets,
        bits as f64 / receiving as f64
    );
    println!("{packets} packets, {} reports", stats.reports);
    println!("{:?}", sender.stats());
}

//! Pumps a stock UDT connection from sender to receiver in memory and prints the cost of the
//! protocol: `cargo run --release -p packtrain-udt4 --example udt4 -- [SECONDS] [DROP_EVERY]`. The
//! first packet of every DROP_EVERY batches is lost.
//!
//! Both ends share one thread. The owner's work is counted too: copying 64 KiB at a time into the
//! send buffer and out of the receive buffer.

#![allow(clippy::disallowed_methods, clippy::print_stdout)]

use std::net::SocketAddr;
use std::time::Instant;

use packtrain_proto::{BATCH_BYTES, Datagrams, Transmit};
use packtrain_udt4::{Endpoint, Event, Options, Secret, SocketId, Status};
use packtrain_units::{Duration, Time};

struct Ends {
    ends: [Endpoint; 2],
    slab: Vec<u8>,
    batches: u64,
    drop_every: u64,
}

impl Ends {
    /// Passes one batch from an end to the other; returns whether there was one.
    fn pass(&mut self, from: usize, clock: &impl Fn() -> Time, spent: &mut [u64; 2]) -> bool {
        let now = clock();
        let sent = self.ends[from].poll_transmit(now, &mut self.slab);
        let middle = clock();
        spent[0] += middle.since(now).as_nanos();
        let Some(Transmit { len, segment, .. }) = sent else { return false };
        self.batches += u64::from(from == 0);
        let lost = from == 0 && self.drop_every > 0 && self.batches.is_multiple_of(self.drop_every);
        let start = if lost && len > segment { segment } else { 0 };
        let input = Datagrams {
            lane: 0,
            from: address(from),
            bytes: &mut self.slab[start..len],
            stride: segment,
            ecn: None,
            received_at: middle,
        };
        self.ends[1 - from].handle(middle, input);
        spent[1] += clock().since(middle).as_nanos();
        true
    }
}

fn address(end: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 1000 + end as u16))
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |or: u64| arguments.next().and_then(|a| a.parse().ok()).unwrap_or(or);
    let (seconds, drop_every) = (number(3), number(0));
    let epoch = Instant::now();
    let clock = || Time::from_nanos(epoch.elapsed().as_nanos() as u64 + 1_000_000_000);
    let ends = [1, 2].map(|byte| Endpoint::new(&Secret([byte; 32])));
    let mut pair = Ends { ends, slab: vec![0; BATCH_BYTES], batches: 0, drop_every };
    let options = Options { cc: "fixed:100gbit".to_owned(), ..Options::default() };
    pair.ends[1].listen(options.clone(), 1).expect("a listener");
    let client = pair.ends[0].connect(clock(), address(1), &options).expect("a call");
    let mut unused = [0; 2];
    for from in [0, 1, 0, 1] {
        pair.pass(from, &clock, &mut unused);
    }
    let server = pair.ends[1].accept().expect("a connection");

    let (chunk, mut out) = (vec![7; 64 << 10], vec![0; 64 << 10]);
    let (mut there, mut back, mut owner) = ([0; 2], [0; 2], [0; 2]);
    let (start, mut received) = (clock(), 0u64);
    while clock().since(start) < Duration::from_secs(seconds) {
        let now = clock();
        if connection(&mut pair.ends[0], client).status() == Status::Open {
            let _ = connection(&mut pair.ends[0], client).send(&chunk);
        }
        let middle = clock();
        owner[0] += middle.since(now).as_nanos();
        for end in &mut pair.ends {
            if end.poll_timeout().is_some_and(|at| at <= middle) {
                end.handle_timeout(middle);
            }
        }
        pair.pass(0, &clock, &mut there);
        while pair.pass(1, &clock, &mut back) {}
        let now = clock();
        while let Ok(got @ 1..) = connection(&mut pair.ends[1], server).recv(now, &mut out) {
            received += got as u64;
        }
        owner[1] += clock().since(now).as_nanos();
        for end in &mut pair.ends {
            while let Some((_, event)) = end.poll_event() {
                assert!(!matches!(event, Event::Ended(_)), "{event:?}");
            }
        }
    }
    let now = clock();
    let packets = (received / 1456).max(1);
    println!(
        "{:.2} Gbit/s with both ends on one core",
        received as f64 * 8.0 / seconds as f64 / 1e9
    );
    println!("send     {:>4} ns/packet into the buffer", owner[0] / packets);
    println!("transmit {:>4} ns/packet, headers and copy", there[0] / packets);
    println!("handle   {:>4} ns/packet, headers and copy", there[1] / packets);
    println!("recv     {:>4} ns/packet out of the buffer", owner[1] / packets);
    println!("feedback {:>4} ns/packet, both ends", (back[0] + back[1]) / packets);
    println!("{:?}", connection(&mut pair.ends[0], client).perf(now));
}

fn connection(end: &mut Endpoint, id: SocketId) -> &mut packtrain_udt4::Connection {
    end.get_mut(id).expect("a connection")
}

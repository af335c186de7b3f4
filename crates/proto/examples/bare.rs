//! Cost of a flow's core without its codec: a sender and a receiver over a link of 10 Gbit/s and
//! 100 ms in virtual time.
//! `cargo run --release -p packtrain-proto --example bare -- [SECONDS] [CONTROLLER] [LOSS]`,
//! where LOSS N means one packet in N (0: none).

#![allow(clippy::disallowed_methods, clippy::print_stdout)]

use std::collections::VecDeque;
use std::time::Instant;

use packtrain_cc::{ControllerConfig, build};
use packtrain_proto::Role;
use packtrain_proto::bare::{BareConfig, BareFlow, BarePacket};
use packtrain_units::{ByteCount, DataRate, Duration, Offset, Rng, Time};

const RATE: DataRate = DataRate::from_mbps(10_000);
const DELAY: Duration = Duration::from_millis(50);
const QUEUE: Duration = Duration::from_millis(100);

/// One direction: trains with the time at which their last packet arrives.
struct Way {
    free_at: Time,
    lost_one_in: u64,
    rng: Rng,
    flying: VecDeque<(Time, BarePacket)>,
}

impl Way {
    fn new(lost_one_in: u64, seed: u64) -> Self {
        Self { free_at: Time::ZERO, lost_one_in, rng: Rng::new(seed), flying: VecDeque::new() }
    }

    fn offer(&mut self, now: Time, mut packet: BarePacket) {
        if self.free_at.since(now) > QUEUE {
            return;
        }
        while self.lost_one_in > 0
            && let BarePacket::Train(train) = &mut packet
            && train.count() > 1
        {
            let hit = self.rng.below(self.lost_one_in) as u32;
            if hit >= train.count() {
                break;
            }
            // The packet before the cut is the lost one.
            if hit + 1 == train.count() {
                break;
            }
            let rest = train.split_off(hit + 1);
            if hit > 0 {
                train.split_off(hit);
                let head = std::mem::replace(&mut packet, BarePacket::Train(rest));
                self.put(now, head);
            } else {
                packet = BarePacket::Train(rest);
            }
        }
        self.put(now, packet);
    }

    fn put(&mut self, now: Time, packet: BarePacket) {
        let bytes: u64 = (0..packet.count()).map(|i| packet.datagram(i).get() + 28).sum();
        self.free_at = self.free_at.max(now) + RATE.time_for(ByteCount(bytes));
        self.flying.push_back((self.free_at + DELAY, packet));
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().and_then(|a| a.parse().ok()).unwrap_or(60);
    let name = arguments.next().unwrap_or_else(|| "native".to_owned());
    let lost_one_in = arguments.next().and_then(|a| a.parse().ok()).unwrap_or(0);
    let mut now = Time::ZERO;
    let config = ControllerConfig { mtu: ByteCount(1472), seed: 1, now, ceiling: None, rtt: None };
    let controller = build(&name, &config).expect("a known controller");
    let end = |role, controller| BareFlow::new(BareConfig::new(role), controller, now);
    let mut ends = [
        end(Role::Sender, Some(controller)).expect("a valid flow"),
        end(Role::Receiver, None).expect("a valid flow"),
    ];
    ends[0].assign(Offset(0)..Offset(1 << 60));
    let mut ways = [Way::new(lost_one_in, 1), Way::new(0, 2)];
    let (start, mut turns) = (Instant::now(), 0u64);
    while now < Time::ZERO + Duration::from_secs(seconds) {
        turns += 1;
        for (end, way) in ends.iter_mut().zip(&mut ways) {
            while let Some(packet) = end.poll_transmit(now) {
                way.offer(now, packet);
            }
            while end.poll_event().is_some() {}
        }
        let arrivals = ways.iter().filter_map(|way| way.flying.front()).map(|(at, _)| *at);
        let timers = ends.iter().filter_map(BareFlow::poll_timeout);
        now = arrivals.chain(timers).min().expect("something is due").max(now);
        for i in 0..2 {
            while ways[i].flying.front().is_some_and(|(at, _)| *at <= now) {
                let (at, packet) = ways[i].flying.pop_front().expect("just seen");
                ends[1 - i].handle(now, at, None, &[packet]);
            }
            ends[i].handle_timeout(now);
        }
    }
    let took = start.elapsed();
    let stats = ends[0].stats();
    let packets = ends[1].stats().received_packets.max(1);
    println!(
        "{seconds} s in {:.2} s: {:.1} ns a packet, {} packets, {turns} turns, {:.2} Gbit/s",
        took.as_secs_f64(),
        took.as_nanos() as f64 / packets as f64,
        packets,
        ends[1].delivered().get() as f64 * 8e-9 / seconds as f64,
    );
    println!("{stats:?}");
}

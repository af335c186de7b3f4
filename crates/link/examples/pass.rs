//! Measures the throughput of links: `cargo run --release -p packtrain-link --example pass`.
//!
//! Each line offers the same packets through one kind of link in trains of 64, then one by one.

// This is a measurement: it uses a clock, which the crate itself must not, and prints.
#![allow(clippy::disallowed_methods, clippy::print_stdout)]

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Instant;

use packtrain_link::{
    CoDelConfig, Count, Element, Limit, Link, LinkConfig, LossConfig, Pace, QueueConfig, RedConfig,
    RedMode,
};
use packtrain_units::{DataRate, Duration, Time};

const PACKETS: u64 = 20_000_000;

fn main() {
    let clean = LinkConfig::new(DataRate::from_mbps(10_000), Duration::from_millis(50), 10_000);
    let lossy = LinkConfig { loss: LossConfig::Independent(1e-4), ..clean.clone() };
    let short = LinkConfig::new(DataRate::from_mbps(10_000), Duration::from_millis(50), 100);
    let limit = Limit::Packets(10_000);
    let red = RedConfig::ns2(limit, RedMode::Gentle);
    let red = LinkConfig { queue: QueueConfig::Red(red), ..clean.clone() };
    let codel = CoDelConfig::new(limit);
    let codel = LinkConfig { queue: QueueConfig::CoDel(codel), ..clean.clone() };
    println!("{:<28}{:>18}{:>18}", "link", "trains of 64", "one by one");
    line("backlog", &clean, Duration::from_nanos(1_150));
    line("no backlog", &clean, Duration::from_nanos(1_300));
    line("loss 1e-4", &lossy, Duration::from_nanos(1_200));
    line("queue full, 4 % dropped", &short, Duration::from_nanos(1_150));
    line("RED", &red, Duration::from_nanos(1_190));
    line("CoDel", &codel, Duration::from_nanos(1_190));
}

fn line(name: &str, config: &LinkConfig, gap: Duration) {
    let (trains, singles) = (measure(config, gap, 64), measure(config, gap, 1));
    println!("{name:<28}{trains:>9.2} ns/packet{singles:>9.2} ns/packet");
}

/// Nanoseconds of processor time per packet. Occasional pauses bound the backlog.
fn measure(config: &LinkConfig, gap: Duration, train_len: u32) -> f64 {
    let mut link = Link::new(config.clone());
    let (mut now, mut number, mut out) = (Time::ZERO, 0, 0u64);
    let start = processor_time();
    while number < PACKETS {
        let train = Count { count: train_len, size: 1500, first: number };
        let pace = Pace { first: now, gap };
        link.offer(black_box(pace), train, &mut ());
        while let Some((_, train)) = link.poll_departure(now, &mut ()) {
            out += u64::from(train.count);
        }
        while let Some((_, train)) = link.poll_departure(Time::MAX, &mut ()) {
            out += u64::from(train.count);
        }
        number += u64::from(train_len);
        now = pace.time(train_len);
        if number % (1 << 17) == 0 {
            now += Duration::from_millis(20);
        }
    }
    black_box(out);
    (processor_time() - start) as f64 / number as f64
}

/// Nanoseconds that this thread had a processor; wall-clock time where the system does not report
/// it.
fn processor_time() -> u128 {
    static START: OnceLock<Instant> = OnceLock::new();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let spent = text.split(' ').next().and_then(|n| n.parse().ok());
    spent.unwrap_or_else(|| START.get_or_init(Instant::now).elapsed().as_nanos())
}

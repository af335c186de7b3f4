//! The cost of simulating one engine alone on a path of 10 Gbit/s (or another rate) and 100 ms:
//! `cargo run --release -p packtrain-sim --example engine_hour --
//! [CONTROLLER] [RATE] [SECONDS] [codec] [loss=P]`.

#![allow(clippy::disallowed_methods, clippy::print_stdout)]

use std::time::Instant;

use packtrain_link::{LinkConfig, LossConfig};
use packtrain_sim::run;
use packtrain_sim::spec::{EngineSpec, FlowKind, FlowSpec, LinkSpec, NodeSpec, Scenario};
use packtrain_units::{ByteCount, DataRate, Duration, Time, parse_rate};

fn scenario(cc: &str, rate: DataRate, seconds: u64, codec: bool, loss: f64) -> Scenario {
    let rtt = Duration::from_millis(100);
    let mut config = LinkConfig::new(rate, rtt / 2, rate.bytes_in(rtt).get() / 1_500);
    let back = LinkSpec { name: "back".to_owned(), from: 1, to: 0, config: config.clone() };
    if loss > 0.0 {
        config.loss = LossConfig::Independent(loss);
    }
    let there = LinkSpec { name: "there".to_owned(), from: 0, to: 1, config };
    let node = |name: &str| NodeSpec { name: name.to_owned(), host: None };
    let mtu = ByteCount(1_472);
    let spec = EngineSpec {
        cc: cc.to_owned(),
        bytes: None,
        mtu,
        codec,
        ceiling: None,
        coalesce: true,
        train: 44,
        warnings: true,
        ecn: true,
        probe_train: None,
        saved: None,
    };
    Scenario {
        name: "engine-hour".to_owned(),
        title: "One engine alone on a long fat path.".to_owned(),
        duration: Duration::from_secs(seconds),
        warm_up: Duration::from_secs(seconds / 10),
        seed: 1,
        sample: None,
        nodes: vec![node("near"), node("far")],
        links: vec![there, back],
        flows: vec![FlowSpec {
            name: "engine".to_owned(),
            from: 0,
            to: 1,
            start: Time::ZERO,
            stop: None,
            kind: FlowKind::Engine(spec),
            from_depot: None,
        }],
        train: 64,
        record: None,
    }
}

/// Seconds that this thread has run on a processor, where the kernel reports it: on a busy machine
/// the wall clock includes other work.
fn on_cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).map_or(0.0, |ns: f64| ns / 1e9)
}

fn main() {
    let (mut codec, mut loss, mut plain) = (false, 0.0, Vec::new());
    for argument in std::env::args().skip(1) {
        match argument.strip_prefix("loss=") {
            Some(p) => loss = p.parse().expect("a probability"),
            None if argument == "codec" => codec = true,
            None => plain.push(argument),
        }
    }
    let cc = plain.first().map_or("native", String::as_str);
    let rate = plain.get(1).map_or("10gbit", String::as_str);
    let rate = parse_rate(rate).expect("a rate such as 10gbit");
    let seconds = plain.get(2).map_or(60, |s| s.parse().expect("seconds"));
    let scenario = scenario(cc, rate, seconds, codec, loss);
    let start = Instant::now();
    let outcome = run(&scenario, &mut |_| ()).expect("a sound scenario");
    let (wall, cpu) = (start.elapsed().as_secs_f64(), on_cpu());
    let took = if cpu > 0.0 { cpu } else { wall };
    let sent = outcome.flows[0].sent_packets.max(1);
    println!(
        "{seconds} virtual s in {took:.2} s of a core ({wall:.2} s of wall clock): {:.1} virtual s a second, {:.2e} packets a second, \
         {:.1} ns a packet, {} events",
        seconds as f64 / took,
        outcome.packet_hops as f64 / took,
        took * 1e9 / sent as f64,
        outcome.events,
    );
    println!("{:#?}", outcome.flows[0]);
    println!("{:#?}", outcome.links);
}

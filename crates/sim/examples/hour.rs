//! Speed of the simulator: one TCP flow over 10 Gbit/s and 100 ms with a drop-tail queue of one
//! bandwidth-delay product.
//!
//!     hour [CONTROLLER [VIRTUAL-SECONDS [TRAIN [SAMPLE-MILLISECONDS]]]]

use std::time::SystemTime;

use packtrain_link::LinkConfig;
use packtrain_sim::spec::{FlowKind, FlowSpec, LinkSpec, NodeSpec, Scenario, TcpSpec};
use packtrain_units::{DataRate, Duration, Time};

#[allow(clippy::print_stdout, clippy::disallowed_methods)]
fn main() -> Result<(), packtrain_sim::SimError> {
    let mut args = std::env::args().skip(1);
    let cc = args.next().unwrap_or_else(|| "reno".to_owned());
    let seconds: u64 = args.next().and_then(|arg| arg.parse().ok()).unwrap_or(60);
    let train: u32 = args.next().and_then(|arg| arg.parse().ok()).unwrap_or(64);
    let sample: Option<u64> = args.next().and_then(|arg| arg.parse().ok());
    let scenario = Scenario {
        sample: sample.map(Duration::from_millis),
        ..scenario(&cc, Duration::from_secs(seconds), train)
    };
    let start = SystemTime::now();
    let outcome = packtrain_sim::run(&scenario, &mut |_| {})?;
    let took = start.elapsed().map_or(0.0, |took| took.as_secs_f64());
    for s in &outcome.samples {
        println!(
            "{:.3} {} {} {}",
            s.at.as_nanos() as f64 / 1e9,
            s.cwnd.unwrap_or_default(),
            s.goodput,
            s.rtt.unwrap_or_default()
        );
    }
    println!("{:#?}\n{:#?}", outcome.flows, outcome.links);
    println!("hash {} events {}", outcome.trace_hash, outcome.events);
    println!(
        "{:.2} s: {:.2} million packets a second, {:.1} virtual seconds a second",
        took,
        outcome.flows[0].sent_packets as f64 / took / 1e6,
        seconds as f64 / took
    );
    Ok(())
}

fn scenario(cc: &str, duration: Duration, train: u32) -> Scenario {
    let node = |name: &str| NodeSpec { name: name.to_owned(), host: None };
    // 10 Gbit/s for 100 ms are 83,333 packets of 1,500 bytes.
    let config = LinkConfig::new(DataRate::from_mbps(10_000), Duration::from_millis(50), 83_333);
    let link =
        |name: &str, from, to| LinkSpec { name: name.to_owned(), from, to, config: config.clone() };
    Scenario {
        name: "hour".to_owned(),
        title: "One flow over a long fat link.".to_owned(),
        duration,
        warm_up: Duration::ZERO,
        seed: 1,
        sample: None,
        nodes: vec![node("near"), node("far")],
        links: vec![link("out", 0, 1), link("back", 1, 0)],
        flows: vec![FlowSpec {
            name: "one".to_owned(),
            from: 0,
            to: 1,
            start: Time::ZERO,
            stop: None,
            kind: FlowKind::Tcp(TcpSpec::linux(cc)),
            from_depot: None,
        }],
        train,
        record: None,
    }
}

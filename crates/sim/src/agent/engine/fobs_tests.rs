//! FOBS without a requested rate: alone, with a starved receiver, and beside other flows.

use packtrain_link::{HostConfig, Limit, QueueConfig, Scheduler};
use packtrain_units::{DataRate, Duration, Time};

use super::tests::{engine, flow, path, play};
use crate::spec::{FlowKind, FlowSpec, Scenario, TcpSpec};

const RATE: DataRate = DataRate::from_mbps(1_000);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A gigabit over 65 ms for 20 s, including the launch; `queue` in bandwidth-delay products.
fn scenario(queue: f64, scheduler: Scheduler, seed: u64) -> Scenario {
    let rtt = ms(65);
    let mut scenario = path(RATE, rtt, vec![flow("fobs", engine("fobs"))]);
    let packets = (RATE.bytes_in(rtt).get() as f64 / 1_500.0 * queue) as u64;
    scenario.links[0].config.queue = QueueConfig::DropTail(Limit::Packets(packets));
    (scenario.warm_up, scenario.duration, scenario.seed) = (Duration::ZERO, ms(20_000), seed);
    scenario.nodes[1].host = Some(HostConfig { scheduler, seed, ..HostConfig::default() });
    scenario
}

/// Goodput of each flow in Mbit/s; `--nocapture` prints the numbers of the guide.
#[allow(clippy::print_stdout, reason = "figures for the guide")]
fn goodput(name: &str, scenario: &Scenario) -> Vec<f64> {
    let flows = play(scenario).flows;
    let mbps: Vec<_> = flows.iter().map(|f| f.goodput.as_bps() as f64 / 1e6).collect();
    let (dropped, host) = (flows[0].dropped_packets, flows[0].host_dropped_packets);
    println!("{name}, seed {}: {mbps:.0?}, lost {dropped}, at the host {host}", scenario.seed);
    mbps
}

/// The receiver's thread is sometimes late by a few milliseconds.
fn late() -> Scheduler {
    Scheduler::OnOff { on: ms(200), off: ms(2) }
}

#[test]
fn alone_an_overflow_of_its_own_costs_little() {
    for queue in [1.0, 0.2, 0.05] {
        let schedulers = (1..=2).map(|seed| (late(), seed)).chain([(Scheduler::Alone, 1)]);
        let mut found: Vec<_> = schedulers
            .map(|(scheduler, seed)| {
                goodput(&format!("alone, queue {queue}"), &scenario(queue, scheduler, seed))[0]
            })
            .collect();
        found.sort_by(f64::total_cmp);
        let bounds = if queue >= 0.5 { (750.0, 800.0) } else { (550.0, 700.0) };
        assert!(found[0] > bounds.0 && found[1] > bounds.1, "queue {queue}: {found:.0?}");
    }
}

#[test]
fn a_starved_receiver_is_no_congestion() {
    let generator = Scheduler::Generator { most: 7, slice: ms(3), spread: 0.3, keep: ms(20) };
    let often = Scheduler::OnOff { on: ms(30), off: ms(5) };
    let seldom = Scheduler::OnOff { on: ms(500), off: ms(20) };
    let alone = goodput("its own", &scenario(1.0, Scheduler::Alone, 1))[0];
    for (name, scheduler) in [("generator", generator), ("often", often), ("seldom", seldom)] {
        let runs = (1..=3).map(|seed| goodput(name, &scenario(1.0, scheduler, seed))[0]);
        let mut found: Vec<_> = runs.collect();
        found.sort_by(f64::total_cmp);
        assert!(found[1] > 0.8 * alone, "{name}: {found:.0?} of {alone:.0}");
    }
}

#[test]
fn beside_cubic_both_live() {
    for (name, first) in [("cubic joins", 0), ("fobs joins", 1)] {
        let mut scenario = scenario(1.0, late(), 1);
        let kind = FlowKind::Tcp(TcpSpec::linux("cubic"));
        scenario.flows.push(FlowSpec { name: "cubic".into(), kind, ..scenario.flows[0].clone() });
        scenario.flows[1 - first].start = Time::ZERO + ms(4_000);
        scenario.duration = ms(40_000);
        scenario.warm_up = ms(10_000);
        let found = goodput(name, &scenario);
        assert!(found[0] > 120.0 && found[1] > 120.0, "{name}: {found:.0?}");
        assert!(found[0] + found[1] > 800.0, "{name}: {found:.0?}");
    }
}

//! Compares the fluid model with the simulator's packets.

use packtrain_link::{LinkConfig, LossConfig};
use packtrain_sim::spec::{DepotSpec, FlowKind, FlowSpec, LinkSpec, NodeSpec, Scenario, TcpSpec};
use packtrain_units::{ByteCount, Duration, Rng, Time};

use super::fluid::stages;
use super::world::{Kind, World, mbps, span};

/// Ratios of the simulator's time to the fluid model's, for routes of one to three connections.
pub(crate) fn ratios(kind: Kind, seed: u64, count: usize) -> Vec<f64> {
    let world = World::new(kind, seed);
    let mut rng = Rng::new(seed ^ 0xac);
    let mut found = Vec::new();
    while found.len() < count {
        let hops = 1 + rng.below(3) as usize;
        let mut route: Vec<usize> = Vec::new();
        while route.len() <= hops {
            let host = rng.below(world.len() as u64) as usize;
            if !route.contains(&host) {
                route.push(host);
            }
        }
        let bytes = 1e6 * (1_u64 << rng.below(4)) as f64;
        let legs: Vec<(f64, f64)> = route
            .windows(2)
            .map(|pair| world.path(pair[0], pair[1]))
            .map(|path| (path.probed, path.rtt))
            .collect();
        let fluid = stages(&legs, f64::INFINITY, bytes);
        // Five runs with different random losses.
        let times: Vec<f64> = (0..5).map(|run| played(&world, &route, bytes, run)).collect();
        found.push(times.iter().sum::<f64>() / times.len() as f64 / fluid);
    }
    found
}

fn played(world: &World, route: &[usize], bytes: f64, seed: u64) -> f64 {
    let (mut links, mut flows) = (Vec::new(), Vec::new());
    for (hop, pair) in route.windows(2).enumerate() {
        let path = world.path(pair[0], pair[1]);
        // A queue of one bandwidth-delay product, and at least 20 packets.
        let packets = (path.link * 1e6 / 8.0 * path.rtt / 1e3 / 1_500.0).max(20.0);
        let config = LinkConfig::new(mbps(path.link), span(path.rtt / 2.0), packets as u64);
        let mut lossy = config.clone();
        lossy.loss = LossConfig::Independent(path.loss);
        links.push(LinkSpec { name: format!("l{hop}"), from: hop, to: hop + 1, config: lossy });
        links.push(LinkSpec { name: format!("b{hop}"), from: hop + 1, to: hop, config });
        let mut tcp = TcpSpec::linux("reno");
        tcp.bytes = Some(ByteCount(bytes as u64));
        tcp.window = Some(ByteCount(path.window as u64));
        let buffer = ByteCount(path.window as u64);
        let depot =
            DepotSpec { of: hop.wrapping_sub(1), receive: buffer, user: buffer, send: buffer };
        flows.push(FlowSpec {
            name: format!("hop{hop}"),
            from: hop,
            to: hop + 1,
            start: Time::ZERO,
            stop: None,
            kind: FlowKind::Tcp(tcp),
            from_depot: (hop > 0).then_some(depot),
        });
    }
    let scenario = Scenario {
        name: "check".to_owned(),
        title: String::new(),
        duration: Duration::from_secs(3_600),
        warm_up: Duration::ZERO,
        seed,
        sample: None,
        nodes: (0..route.len()).map(|i| NodeSpec { name: format!("n{i}"), host: None }).collect(),
        links,
        flows,
        train: 64,
        record: None,
    };
    let outcome = packtrain_sim::run(&scenario, &mut |_| {}).expect("it can be played");
    let last = outcome.flows.last().expect("there is one");
    last.completed_in.expect("it ends").as_secs_f64()
}

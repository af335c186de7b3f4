//! Estimates of capacity and arrival rate are right although the receiving host coalesces packets.

use packtrain_link::{HostConfig, Scheduler};
use packtrain_units::{ByteCount, DataRate, Duration};

use super::tests::{engine, flow, path, play};
use crate::outcome::FlowOutcome;
use crate::spec::EngineSpec;

/// IP and UDP headers: estimates count UDP payload, links whole packets.
const HEADERS: f64 = 1_500.0 / 1_472.0;

fn host(coalesce: Duration) -> HostConfig {
    HostConfig {
        buffer: ByteCount(8 << 20),
        coalesce,
        coalesce_most: 44,
        per_packet: Duration::from_nanos(200),
        per_batch: Duration::from_micros(2),
        scheduler: Scheduler::Alone,
        seed: 1,
    }
}

/// A flow with `cc` over `rate`, read by a host that sleeps `coalesce` after a packet arrives.
fn estimates(cc: &str, train: u32, rate: DataRate, coalesce: Duration) -> FlowOutcome {
    let spec = EngineSpec { train, ..engine(cc) };
    let mut scenario = path(rate, Duration::from_millis(20), vec![flow("a", spec)]);
    scenario.nodes[1].host = Some(host(coalesce));
    (scenario.warm_up, scenario.duration) = (Duration::from_secs(1), Duration::from_secs(2));
    play(&scenario).flows.remove(0)
}

fn check(cc: &str, train: u32) {
    for mbit in [100, 1_000, 5_000] {
        for us in [20, 50, 200] {
            let rate = DataRate::from_mbps(mbit);
            let found = estimates(cc, train, rate, Duration::from_micros(us));
            let bps = |rate: Option<DataRate>| rate.map_or(0.0, |r| r.as_bps() as f64 * HEADERS);
            let capacity = bps(found.capacity) / rate.as_bps() as f64;
            assert!((capacity - 1.0).abs() < 0.1, "{cc} {mbit} Mbit/s {us} us: B {capacity:.3}");
            let arrival = bps(found.arrival_rate) / found.throughput.as_bps() as f64;
            assert!((arrival - 1.0).abs() < 0.1, "{cc} {mbit} Mbit/s {us} us: AS {arrival:.3}");
        }
    }
}

#[test]
fn natives_estimates_survive_a_host_that_joins_packets() {
    check("native", 44);
}

#[test]
fn udts_estimates_survive_a_host_that_joins_packets() {
    check("udt:grid", 44);
}

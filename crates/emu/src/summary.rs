//! Makes the report from the engine's counters.

use packtrain_link::Histogram;
use packtrain_units::Duration;

use crate::engine::Counts;
use crate::hosts::{DeviceKind, Host};
use crate::plan::Plan;
use crate::report::{DelayError, HostReport, LinkReport, Report};

/// Maximum 99th percentile of lateness, unless the shortest link's delay allows more.
const TOLERATED: Duration = Duration::from_millis(1);
/// Maximum share of the shortest link's delay.
const TOLERATED_SHARE: f64 = 0.05;

/// Makes the report.
pub(crate) fn report(plan: &Plan, kind: DeviceKind, hosts: &mut [Host], counts: Counts) -> Report {
    let mut lateness = Histogram::default();
    let mut links = Vec::new();
    for (wire, (counters, own)) in plan.topology.wires.iter().zip(&counts.wires) {
        lateness.merge(own);
        links.push(LinkReport {
            name: wire.name.clone(),
            offered: counters.offered,
            offered_bytes: counters.offered_bytes,
            delivered: counters.delivered,
            delivered_bytes: counters.delivered_bytes,
            throughput_bps: counters.mean_rate().as_bps(),
            busiest_bps: counters.busiest_rate().as_bps(),
            longest_queue_seconds: counters.longest_queue.as_secs_f64(),
            dropped: counters.drops(),
            delay_error: delay_error(own),
        });
    }
    let hosts = hosts.iter_mut().map(|host| HostReport {
        name: host.name.clone(),
        address: host.address.to_string(),
        device_drops: host.device_drops(),
        write_failures: counts.nodes[host.node].0,
        unroutable: counts.nodes[host.node].1,
    });
    let mut report = Report {
        seconds: counts.ran.as_secs_f64(),
        device: kind.name().to_owned(),
        per_packet: plan.per_packet,
        links,
        hosts: hosts.collect(),
        delay_error: delay_error(&lateness),
        cpu_seconds: counts.cpu.as_secs_f64(),
        bottleneck: None,
        record_error: counts.record_error.map(|error| error.to_string()),
    };
    let shortest = plan.topology.wires.iter().map(|wire| wire.config.delay).min();
    report.bottleneck =
        bottleneck(&report, shortest.unwrap_or(Duration::ZERO), lateness.quantile(0.99));
    report
}

fn delay_error(lateness: &Histogram) -> DelayError {
    DelayError {
        mean_seconds: lateness.mean().as_secs_f64(),
        p99_seconds: lateness.quantile(0.99).as_secs_f64(),
        worst_seconds: lateness.max().as_secs_f64(),
    }
}

/// Why the emulator instead of the network limited the rate, with a remedy; none: it did not.
fn bottleneck(report: &Report, delay: Duration, p99: Duration) -> Option<String> {
    let lost: u64 = report.hosts.iter().map(|h| h.device_drops + h.write_failures).sum();
    let remedy = if report.per_packet {
        "use a lower rate or do without --per-packet"
    } else {
        "use a lower rate or a quieter machine"
    };
    if lost > 0 {
        return Some(format!("devices lost {lost} packets that no link saw: {remedy}"));
    }
    let tolerated = TOLERATED.max(delay.mul_f64(TOLERATED_SHARE));
    (p99 > tolerated)
        .then(|| format!("1 % of the packets were delivered more than {p99} late: {remedy}"))
}

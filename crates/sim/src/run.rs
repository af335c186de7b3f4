//! Runs a scenario.

use packtrain_cc as cc;
use packtrain_link::CrossKind;
use packtrain_units::{ByteCount, DataRate, Duration, Time};

use crate::agent::{Counts, build};
use crate::error::SimError;
use crate::network::Network;
use crate::node::{Ends, Node};
use crate::outcome::{FlowOutcome, LinkOutcome, Outcome, Sample};
use crate::scheduler::Scheduler;
use crate::spec::{FlowKind, FlowSpec, Scenario};
use crate::trace::Digest;

/// Progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Virtual time reached.
    pub at: Time,
    /// Total virtual time.
    pub of: Duration,
    /// Events so far.
    pub events: u64,
}

/// Bytes of IPv4 and UDP headers.
const UDP_HEADERS: u64 = 28;

/// Steps between two reports of progress.
const REPORT_STEPS: u32 = 1 << 14;

/// Runs a scenario to its end and reports its progress.
///
/// # Errors
/// Those of [`Scenario::check`].
pub fn run(scenario: &Scenario, progress: &mut impl FnMut(Progress)) -> Result<Outcome, SimError> {
    scenario.check()?;
    let mut ends = Ends::default();
    build::all(scenario)?.into_iter().for_each(|end| ends.push(end));
    let net = Network::new(scenario);
    let nodes = (0..scenario.nodes.len()).map(|i| Node::new(scenario, i, &net)).collect();
    let mut scheduler = Scheduler::new(net, nodes, ends);
    // Events at the very last instant are part of the run.
    let end = Time::ZERO + scenario.duration + Duration::from_nanos(1);
    let mut steps = 0u32;
    while let Some(at) = scheduler.step(end) {
        steps = steps.wrapping_add(1);
        if steps.is_multiple_of(REPORT_STEPS) {
            progress(Progress { at, of: scenario.duration, events: scheduler.events });
        }
    }
    Ok(outcome(scenario, scheduler))
}

fn outcome(scenario: &Scenario, done: Scheduler) -> Outcome {
    let mut digest = Digest::default();
    done.nodes.iter().for_each(|node| digest.value(node.digest.get()));
    done.net.links.iter().for_each(|link| digest.value(link.stats.digest.get()));
    Outcome {
        scenario: scenario.name.clone(),
        seed: scenario.seed,
        trace_hash: format!("{:016x}", digest.get()),
        duration: scenario.duration,
        packet_hops: done.net.links.iter().map(|link| link.stats.offered).sum(),
        events: done.events,
        flows: (0..scenario.flows.len()).map(|i| flow(scenario, i, &done)).collect(),
        links: (0..scenario.links.len()).map(|i| link(scenario, i, &done.net)).collect(),
        sessions: scenario.flows.iter().any(|flow| flow.from_depot.is_some()),
        samples: samples(&done.ends),
        waits: waits(&done.net),
        record: done
            .net
            .links
            .into_iter()
            .find_map(|link| link.stats.record)
            .map_or_else(Vec::new, |record| record.packets),
    }
}

/// The controller or kind of a flow, as shown beside its name.
fn kind(flow: &FlowSpec) -> String {
    match &flow.kind {
        FlowKind::Tcp(spec) => spec.cc.clone(),
        FlowKind::Engine(spec) => spec.cc.clone(),
        FlowKind::Short(spec) => spec.tcp.cc.clone(),
        FlowKind::Cross(cross) => match cross.kind {
            CrossKind::Cbr(_) => "cbr",
            CrossKind::Poisson(_) => "poisson",
            CrossKind::ParetoOnOff { .. } => "pareto",
            CrossKind::Bursts { .. } => "bursts",
        }
        .to_owned(),
    }
}

/// Bytes of a full packet of an engine on a link.
fn wire_size(kind: &FlowKind) -> u64 {
    match kind {
        FlowKind::Engine(spec) => spec.mtu.get() + UDP_HEADERS,
        _ => 0,
    }
}

fn flow(scenario: &Scenario, index: usize, done: &Scheduler) -> FlowOutcome {
    let spec = &scenario.flows[index];
    let (sender, receiver) = (done.ends.agent(2 * index), done.ends.agent(2 * index + 1));
    let since = |end: usize| done.ends.agent(end).counts().since(&done.ends.at_warm_up[end]);
    let counts = since(2 * index).and(&since(2 * index + 1));
    // Packets in flight when the sender stopped arrive later and belong to no rate before.
    let until_stop = |end: usize| match &done.ends.at_stop[end] {
        Some(counts) => counts.since(&done.ends.at_warm_up[end]),
        None => since(end),
    };
    let timely = until_stop(2 * index).and(&until_stop(2 * index + 1));
    let warm = (Time::ZERO + scenario.warm_up).max(spec.start);
    let completed = sender.completed_at();
    let end = Time::ZERO + scenario.duration;
    let until = completed.or(spec.stop).unwrap_or(end).min(end);
    let at_links = done.net.links.iter().filter_map(|link| link.stats.flows.get(index)?.as_deref());
    let longest = at_links.clone().max_by_key(|at| at.waits.mean());
    let curve = sender.curve().unwrap_or_default();
    FlowOutcome {
        name: spec.name.clone(),
        cc: kind(spec),
        goodput: rate(timely.delivered, until.since(warm)),
        delivered: ByteCount(counts.delivered),
        sent_packets: counts.sent_packets,
        received_packets: counts.received,
        throughput: rate(timely.received * wire_size(&spec.kind), until.since(warm)),
        retransmitted: ByteCount(counts.retransmitted),
        dropped_packets: at_links.clone().map(|at| at.dropped).sum(),
        host_dropped_packets: counts.host_dropped,
        loss_events: counts.loss_events,
        timeouts: counts.timeouts,
        queueing_mean: at_links.fold(Duration::ZERO, |sum, at| sum + at.waits.mean()),
        queueing_p99: longest.map_or(Duration::ZERO, |at| at.waits.quantile(0.99)),
        rtt_mean: counts.rtt_mean(),
        capacity: curve.capacity,
        arrival_rate: curve.arrival_rate,
        completed_in: completed.map(|at| at.since(spec.start)),
        completed: sender.completions().or(receiver.completions()),
    }
}

/// Zero for a span of zero.
fn rate(bytes: u64, span: Duration) -> DataRate {
    if span.is_zero() {
        return DataRate::ZERO;
    }
    DataRate::from_bytes_over(ByteCount(bytes), span)
}

fn link(scenario: &Scenario, index: usize, net: &Network) -> LinkOutcome {
    let (spec, stats) = (&scenario.links[index], &net.links[index].stats);
    let (before, bytes_before, busy_at_warm_up) = stats.at_warm_up;
    let packets = stats.passed - before;
    let bytes = stats.bytes - bytes_before + packets * spec.config.overhead.get();
    let (from, to) = (Time::ZERO + scenario.warm_up, Time::ZERO + scenario.duration);
    let could = capacity(spec, from, to);
    // Packets count when they are accepted; those still waiting at an instant keep the transmitter
    // busy from then on without a pause.
    let waiting = |at: Time, until: Time| capacity(spec, at, until.max(at));
    let left = waiting(to, net.links[index].link.busy_until());
    let bits = bytes as f64 * 8.0 + waiting(from, busy_at_warm_up) - left;
    let transmitted = stats.bytes.saturating_sub((left / 8.0) as u64);
    LinkOutcome {
        name: spec.name.clone(),
        offered: stats.offered,
        transmitted: ByteCount(transmitted),
        utilisation: if could > 0.0 { (bits / could).clamp(0.0, 1.0) } else { 0.0 },
        dropped: stats.dropped,
        marked: stats.marked,
    }
}

/// Bits that a link can carry between two instants; zero if its rate is unlimited.
fn capacity(link: &crate::spec::LinkSpec, from: Time, to: Time) -> f64 {
    let schedule = &link.config.rate;
    if schedule.steps.iter().any(|(_, rate)| *rate == DataRate::MAX) {
        return 0.0;
    }
    let period = schedule.period.filter(|period| !period.is_zero());
    let upto = |at: Time| {
        let whole = |span: Time| {
            let mut bits = 0.0;
            for (i, (start, rate)) in schedule.steps.iter().enumerate() {
                let end = schedule.steps.get(i + 1).map_or(Time::MAX, |next| next.0).min(span);
                bits += rate.as_bps() as f64 * end.since(*start).as_secs_f64();
            }
            bits
        };
        match period {
            None => whole(at),
            Some(period) => {
                let (n, rest) =
                    (at.as_nanos() / period.as_nanos(), at.as_nanos() % period.as_nanos());
                whole(Time::ZERO + period) * n as f64 + whole(Time::from_nanos(rest))
            }
        }
    };
    upto(to) - upto(from)
}

/// In order of time, then link.
fn waits(net: &Network) -> Vec<crate::outcome::Wait> {
    let mut waits = net.waits.clone();
    waits.sort_by_key(|wait| (wait.at, wait.link));
    waits
}

/// Combines the samples of senders and receivers at the same instants.
fn samples(ends: &Ends) -> Vec<Sample> {
    let mut curves = ends.curves.clone();
    let mut delivered = ends.delivered.clone();
    // Nodes run ahead of each other: sort both by time, then flow.
    curves.sort_by_key(|(at, flow, _)| (*at, *flow));
    delivered.sort_by_key(|(at, flow, _)| (*at, *flow));
    let flows = ends.all.len() / 2;
    let mut before = vec![(Time::ZERO, 0u64); flows];
    let joined = curves.iter().zip(&delivered).map(|((at, flow, curve), (_, _, counts))| {
        let bytes = counts.delivered;
        let (last, had) = std::mem::replace(&mut before[*flow], (*at, bytes));
        Sample {
            at: *at,
            flow: *flow,
            cwnd: curve.cwnd,
            in_flight: curve.in_flight,
            acked: curve.acked,
            pacing_rate: curve.pacing_rate,
            goodput: rate(bytes - had, at.since(last)),
            rtt: curve.rtt,
            trend: counts.trend,
        }
    });
    joined.collect()
}

/// Whether a controller of this name can be built.
pub(crate) fn known_controller(name: &str) -> Result<(), cc::BuildError> {
    let config = cc::ControllerConfig {
        mtu: ByteCount(1_448),
        seed: 1,
        now: Time::ZERO,
        ceiling: None,
        rtt: None,
    };
    cc::build(name, &config).map(|_| ())
}

impl Counts {
    fn since(&self, earlier: &Self) -> Self {
        Self {
            sent_packets: self.sent_packets - earlier.sent_packets,
            retransmitted: self.retransmitted - earlier.retransmitted,
            delivered: self.delivered - earlier.delivered,
            received: self.received - earlier.received,
            trend: [self.trend[0] - earlier.trend[0], self.trend[1] - earlier.trend[1]],
            host_dropped: self.host_dropped - earlier.host_dropped,
            loss_events: self.loss_events - earlier.loss_events,
            timeouts: self.timeouts - earlier.timeouts,
            rtt_sum: self.rtt_sum - earlier.rtt_sum,
            rtt_count: self.rtt_count - earlier.rtt_count,
        }
    }

    /// The sum of both.
    pub(crate) fn and(&self, other: &Self) -> Self {
        Self {
            sent_packets: self.sent_packets + other.sent_packets,
            retransmitted: self.retransmitted + other.retransmitted,
            delivered: self.delivered + other.delivered,
            received: self.received + other.received,
            trend: [self.trend[0] + other.trend[0], self.trend[1] + other.trend[1]],
            host_dropped: self.host_dropped + other.host_dropped,
            loss_events: self.loss_events + other.loss_events,
            timeouts: self.timeouts + other.timeouts,
            rtt_sum: self.rtt_sum + other.rtt_sum,
            rtt_count: self.rtt_count + other.rtt_count,
        }
    }

    fn rtt_mean(&self) -> Duration {
        let mean = self.rtt_sum.checked_div(u128::from(self.rtt_count)).unwrap_or(0);
        Duration::from_nanos(mean as u64)
    }
}

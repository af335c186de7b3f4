//! Builds the two ends of a flow from the scenario.

use packtrain_link::HostConfig;
use packtrain_units::Time;

use super::engine::{EngineReceiver, EngineSender};
use super::short::{ShortReceiver, ShortSender};
use super::{Endpoint, cross, depot, tcp};
use crate::error::SimError;
use crate::spec::{DepotSpec, FlowKind, Scenario};

/// Location and times of a flow.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Its index.
    pub(crate) flow: u32,
    /// Node of its sender.
    pub(crate) from: u32,
    /// Node of its receiver.
    pub(crate) to: u32,
    /// Start of the flow.
    pub(crate) start: Time,
    /// When its sender stops: at the latest at the end of the simulation.
    pub(crate) stop: Time,
    /// When measurement begins.
    pub(crate) warm_up: Time,
    /// Seed of all its randomness.
    pub(crate) seed: u64,
    /// The host model of the receiving node for datagrams of engines. A host's socket and process
    /// belong to one flow, so the receiving end owns the model.
    pub(crate) host: Option<HostConfig>,
}

impl Place {
    fn of(scenario: &Scenario, index: usize) -> Self {
        let flow = &scenario.flows[index];
        let end = Time::ZERO + scenario.duration;
        Self {
            flow: index as u32,
            from: flow.from as u32,
            to: flow.to as u32,
            start: flow.start,
            stop: flow.stop.map_or(end, |stop| stop.min(end)),
            warm_up: Time::ZERO + scenario.warm_up,
            seed: crate::trace::mix(scenario.seed ^ crate::trace::mix(index as u64 + 1)),
            host: scenario.nodes[flow.to].host.clone(),
        }
    }
}

/// Both ends of all flows: the sender of flow `i` at index `2 i`, its receiver after it. A depot
/// that joins two connections is at the index of the first one's receiver.
///
/// # Errors
/// An unknown controller or an invalid value, with its field.
pub(crate) fn all(scenario: &Scenario) -> Result<Vec<Endpoint>, SimError> {
    let mut all = Vec::with_capacity(2 * scenario.flows.len());
    for flow in 0..scenario.flows.len() {
        let (sender, receiver) = ends(scenario, flow)?;
        all.extend([sender, receiver]);
    }
    for (flow, spec) in scenario.flows.iter().enumerate() {
        let (Some(depot), FlowKind::Tcp(tcp)) = (&spec.from_depot, &spec.kind) else { continue };
        join(&mut all, depot, flow, tcp.mss.get().max(1));
    }
    Ok(all)
}

/// Puts a depot between a connection's end and the start of `flow`. The depots of a session are
/// joined from the source on, so the sender before this one is a plain one or in the previous
/// depot.
fn join(all: &mut [Endpoint], spec: &DepotSpec, flow: usize, mss: u64) {
    let [receive, user, send] = [spec.receive, spec.user, spec.send].map(|bytes| bytes.get() / mss);
    let (receive, send) = (receive.max(1), send.max(1));
    let (before, home) = (2 * spec.of, 2 * spec.of + 1);
    let output = std::mem::replace(&mut all[2 * flow], Endpoint::Within(home));
    let input = std::mem::replace(&mut all[home], Endpoint::Within(home));
    let (Endpoint::TcpSender(output), Endpoint::TcpReceiver(input)) = (output, input) else {
        unreachable!("checked with the scenario");
    };
    let input = input.bounded(tcp::Space::new(receive, user + send));
    all[home] = Endpoint::Depot(Box::new(depot::Depot::new(input, *output, send, user)));
    let holder = match all[before] {
        Endpoint::Within(depot) => depot,
        _ => before,
    };
    match &mut all[holder] {
        Endpoint::TcpSender(sender) => sender.limit_to(receive),
        Endpoint::Depot(depot) => depot.output_mut().limit_to(receive),
        _ => unreachable!("checked with the scenario"),
    }
}

/// Sender and receiver of flow `index`.
///
/// # Errors
/// An unknown controller or an invalid value, with its field.
fn ends(scenario: &Scenario, index: usize) -> Result<(Endpoint, Endpoint), SimError> {
    let place = Place::of(scenario, index);
    Ok(match &scenario.flows[index].kind {
        FlowKind::Cross(config) => (
            Endpoint::CrossSource(Box::new(cross::Source::new(config, &place))),
            Endpoint::CrossSink(cross::Sink::default()),
        ),
        FlowKind::Tcp(spec) => (
            Endpoint::TcpSender(Box::new(tcp::Sender::new(spec, &place)?)),
            Endpoint::TcpReceiver(Box::new(tcp::Receiver::new(spec, &place))),
        ),
        FlowKind::Short(spec) => (
            Endpoint::ShortSender(Box::new(ShortSender::new(spec, &place)?)),
            Endpoint::ShortReceiver(Box::new(ShortReceiver::new(spec, &place))),
        ),
        FlowKind::Engine(spec) => (
            Endpoint::EngineSender(Box::new(EngineSender::new(spec, &place)?)),
            Endpoint::EngineReceiver(Box::new(EngineReceiver::new(spec, &place)?)),
        ),
    })
}

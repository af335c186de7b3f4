//! From what a scenario says of a flow to its two ends.

use packtrain_link::HostConfig;
use packtrain_units::Time;

use super::engine::{EngineReceiver, EngineSender};
use super::short::{ShortReceiver, ShortSender};
use super::{Endpoint, cross, tcp};
use crate::error::SimError;
use crate::spec::{FlowKind, Scenario};

/// Where and when a flow is.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Its index.
    pub(crate) flow: u32,
    /// Node of its sender.
    pub(crate) from: u32,
    /// Node of its receiver.
    pub(crate) to: u32,
    /// When it starts.
    pub(crate) start: Time,
    /// When its sender stops: never later than the end of the simulation.
    pub(crate) stop: Time,
    /// When counting begins.
    pub(crate) warm_up: Time,
    /// Seed of everything random in it.
    pub(crate) seed: u64,
    /// How the receiving node treats datagrams of engines. A host's socket and process belong to
    /// one flow, so the receiving end holds the host model itself.
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

/// Sender and receiver of flow `index`.
///
/// # Errors
/// An unknown controller or an impossible value, with its field.
pub(crate) fn ends(scenario: &Scenario, index: usize) -> Result<(Endpoint, Endpoint), SimError> {
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

//! The native datagram flow between the two ends.

use std::net::SocketAddr;

use packtrain_cc::ControllerConfig;
use packtrain_io::flow::{self, FlowEvent, FlowHandle};
use packtrain_io::udp::UdpSocket;
use packtrain_io::{clock, entropy};
use packtrain_proto::{Flow, FlowConfig, FlowKeys, Payload, Placement, Role, Suite};
use packtrain_units::{ByteCount, DataRate};

use packtrain_transfer::FailureKind;

use super::Plan;
use super::offer::{FlowOffer, Offer};
use crate::api::NodeError;

/// Sockets of one flow: with default buffers eight hold 3 ms at 8 Gbit/s, which is what a busy
/// host may let a thread wait.
const LANES: usize = 8;
/// Datagrams of an Ethernet frame over IPv4 and over IPv6, and of a jumbo frame.
const MTU_V4: ByteCount = ByteCount(1_472);
const MTU_V6: ByteCount = ByteCount(1_452);
const JUMBO: ByteCount = ByteCount(8_972);

/// Whether there is a congestion controller of this name.
pub(crate) fn check_controller(name: Option<&String>) -> Result<(), NodeError> {
    let Some(name) = name else { return Ok(()) };
    let config =
        ControllerConfig { mtu: MTU_V4, seed: 0, now: clock::now(), ceiling: None, rtt: None };
    match packtrain_cc::build(name, &config) {
        Ok(_) => Ok(()),
        Err(e) => Err(NodeError::new(FailureKind::Usage, format!("--cc: {e}"))),
    }
}

/// Binds the sockets of a flow, or says why not.
pub(crate) fn bind(plan: &Plan) -> Result<Vec<UdpSocket>, String> {
    let mut sockets = UdpSocket::bind_lanes(None, plan.port_range(), LANES, entropy::seed())
        .map_err(|e| e.to_string())?;
    if plan.background {
        sockets.iter_mut().for_each(UdpSocket::set_lower_effort);
    }
    Ok(sockets)
}

pub(crate) fn ports(sockets: &[UdpSocket]) -> Vec<u16> {
    sockets.iter().map(|s| s.local_addr().port()).collect()
}

/// A fresh number and secret.
pub(crate) fn offer() -> FlowOffer {
    FlowOffer { id: entropy::seed() as u32, aes: has_aes(), secret: entropy::bytes() }
}

#[cfg(target_arch = "x86_64")]
fn has_aes() -> bool {
    std::arch::is_x86_feature_detected!("aes")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_aes() -> bool {
    cfg!(target_arch = "aarch64")
}

fn config(role: Role, plan: &Plan, flow: &FlowOffer, peer: &Offer, lanes: usize) -> FlowConfig {
    let suite = if flow.aes { Suite::Aes128Gcm } else { Suite::ChaCha20Poly1305 };
    let keys = FlowKeys { suite, secret: flow.secret };
    let peers: Vec<Vec<SocketAddr>> =
        peer.udp[..lanes].iter().map(|port| peer.candidates(&plan.hints, *port)).collect();
    let six = peers.iter().flatten().any(|a| match a.ip() {
        std::net::IpAddr::V6(ip) => ip.to_ipv4_mapped().is_none(),
        std::net::IpAddr::V4(_) => false,
    });
    let mut config = FlowConfig::new(role, keys, flow.id, peers);
    config.mtu = if six { MTU_V6 } else { MTU_V4 };
    config.max_mtu = JUMBO;
    config.rate_ceiling = plan.rate_bps.map(DataRate::from_bps);
    config.seed = entropy::seed();
    config
}

/// Starts the sending end.
pub(crate) fn start_sender<P: Payload + Send + 'static>(
    plan: &Plan,
    mut sockets: Vec<UdpSocket>,
    flow: &FlowOffer,
    peer: &Offer,
    payload: P,
    events: impl FnMut(FlowEvent) + Send + 'static,
) -> Result<FlowHandle, String> {
    let lanes = sockets.len().min(peer.udp.len());
    sockets.truncate(lanes);
    let config = config(Role::Sender, plan, flow, peer, lanes);
    let now = clock::now();
    let controller = ControllerConfig {
        seed: config.seed,
        ceiling: config.rate_ceiling,
        mtu: config.mtu,
        now,
        rtt: None,
    };
    let name =
        plan.cc.as_deref().unwrap_or(if plan.background { "native:background" } else { "native" });
    let controller = packtrain_cc::build(name, &controller).map_err(|e| e.to_string())?;
    let flow = Flow::new(config, Some(controller), now).map_err(|e| e.to_string())?;
    flow::spawn_sender(sockets, flow, payload, events).map_err(|e| e.to_string())
}

/// Starts the receiving end.
pub(crate) fn start_receiver<Q: Placement + Send + 'static>(
    plan: &Plan,
    mut sockets: Vec<UdpSocket>,
    flow: &FlowOffer,
    peer: &Offer,
    placement: Q,
    events: impl FnMut(FlowEvent) + Send + 'static,
) -> Result<FlowHandle, String> {
    let lanes = sockets.len().min(peer.udp.len());
    sockets.truncate(lanes);
    let config = config(Role::Receiver, plan, flow, peer, lanes);
    let flow = Flow::new(config, None, clock::now()).map_err(|e| e.to_string())?;
    flow::spawn_receiver(sockets, flow, placement, events).map_err(|e| e.to_string())
}

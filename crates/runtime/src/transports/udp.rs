//! The native datagram flow between the two ends.

use std::net::SocketAddr;

use packtrain_cc::{ControllerConfig, SavedPath};
use packtrain_net::flow::{self, FlowEvent, FlowHandle};
use packtrain_net::limit::RateLimiter;
use packtrain_net::udp::UdpSocket;
use packtrain_os::{clock, entropy};
use packtrain_proto::{
    FeedbackKind, Flow, FlowConfig, FlowKeys, Payload, Placed, Placement, Role, Suite, TrainTarget,
    Variant,
};
use packtrain_units::{ByteCount, DataRate, Offset};

use packtrain_transfer::FailureKind;

use super::TransportConfig;
use super::offer::{FlowOffer, Offer};
use super::qlog::QlogFile;
use packtrain_service::history::EarlierPath;
use packtrain_service::{RequestError, TransportChoice, cipher};

/// Sockets per flow. With default buffers eight sockets hold 3 ms at 8 Gbit/s, the time for which a
/// busy host may delay a thread.
const LANES: usize = 8;
/// Datagram sizes in bytes for an Ethernet frame over IPv4 and over IPv6, and for a jumbo frame.
const MTU_V4: ByteCount = ByteCount(1_472);
pub(super) const MTU_V6: ByteCount = ByteCount(1_452);
const JUMBO: ByteCount = ByteCount(8_972);

/// Default controller of `udt`.
const UDT_CC: &str = "udt:grid";
/// Default controller of `fobs`.
const FOBS_CC: &str = "fobs:window";
/// Default controller of `sabul`.
const SABUL_CC: &str = "sabul";

/// The feedback of a receiver with this transport and controller.
pub(crate) fn feedback(transport: TransportChoice, cc: Option<&str>) -> FeedbackKind {
    match transport {
        TransportChoice::Udt => FeedbackKind::Udt(Variant::of_controller(cc.unwrap_or(UDT_CC))),
        TransportChoice::Fobs => FeedbackKind::Fobs,
        TransportChoice::Sabul => FeedbackKind::Sabul,
        _ => FeedbackKind::Native,
    }
}

/// Checks that a congestion controller of this name exists and works with this transport.
pub fn check_controller(
    transport: TransportChoice,
    name: Option<&str>,
) -> Result<(), RequestError> {
    let Some(name) = name else { return Ok(()) };
    let config =
        ControllerConfig { mtu: MTU_V4, seed: 0, now: clock::now(), ceiling: None, rtt: None };
    let usage = |text: String| RequestError::new(FailureKind::Usage, format!("--cc: {text}"));
    let controller = packtrain_cc::build(name, &config).map_err(|e| usage(e.to_string()))?;
    let feedback = feedback(transport, Some(name));
    let lacks = feedback.provides().lacks(controller.needs());
    if lacks.is_empty() {
        return Ok(());
    }
    let signals: Vec<&str> = lacks.iter().map(|signal| signal.name()).collect();
    let (signals, of) = (signals.join(", "), feedback.name());
    let hint = if name.starts_with("udt") { ": use it with --transport udt" } else { "" };
    Err(usage(format!(
        "the controller `{name}` needs what the transport {of} does not measure ({signals}){hint}"
    )))
}

/// Binds the sockets of a flow.
pub fn bind(plan: &TransportConfig) -> Result<Vec<UdpSocket>, String> {
    let mut sockets = UdpSocket::bind_lanes(None, plan.port_range(), LANES, entropy::seed())
        .map_err(|e| e.to_string())?;
    if plan.background {
        sockets.iter_mut().for_each(UdpSocket::set_lower_effort);
    }
    Ok(sockets)
}

/// The local ports of these sockets.
pub fn ports(sockets: &[UdpSocket]) -> Vec<u16> {
    sockets.iter().map(|s| s.local_addr().port()).collect()
}

/// A new flow id and secret.
pub fn offer() -> FlowOffer {
    FlowOffer { id: entropy::seed() as u32, aes: cipher::has_aes(), secret: entropy::bytes() }
}

fn config(
    role: Role,
    plan: &TransportConfig,
    flow: &FlowOffer,
    peer: &Offer,
    lanes: usize,
) -> FlowConfig {
    let suite = if flow.aes { Suite::Aes128Gcm } else { Suite::ChaCha20Poly1305 };
    let keys = FlowKeys { suite, secret: flow.secret };
    let peers: Vec<Vec<SocketAddr>> =
        peer.udp[..lanes].iter().map(|port| peer.candidates(&plan.hints, *port)).collect();
    let six = peers.iter().flatten().any(|a| match a.ip() {
        std::net::IpAddr::V6(ip) => ip.to_ipv4_mapped().is_none(),
        std::net::IpAddr::V4(_) => false,
    });
    // The control connection or this end's own user says that the peer is there. What else an offer
    // or a caller names has to answer first: data must not go where nobody asked for it.
    let known = peers.iter().flatten().all(|place| plan.hints.peer.contains(&place.ip()));
    let mut config = FlowConfig::new(role, keys, flow.id, peers);
    config.known_rtt = plan.rtt.filter(|_| known && plan.feedback() == FeedbackKind::Native);
    // A caller that asked for the data may be sent more than a small ping before it has answered.
    config.train_to = plan.hints.caller.filter(|_| !plan.relayed).and_then(|caller| {
        let (host, rtt) = (caller.host, caller.rtt?);
        Some(TrainTarget { host, rtt })
    });
    config.feedback = plan.feedback();
    // UDT's arithmetic depends on the size of a unit, which therefore must not grow beyond
    // Ethernet's.
    config.max_mtu = match config.feedback {
        FeedbackKind::Native => JUMBO,
        _ if six => MTU_V6,
        _ => MTU_V4,
    };
    config.rate_ceiling = plan.rate_bps.map(DataRate::from_bps);
    config.seed = entropy::seed();
    config.ecn = true;
    config
}

/// Starts the sending end. `log` receives what the flow logs; `events` the rest.
pub fn start_sender<P: Payload + Send + 'static>(
    plan: &TransportConfig,
    mut sockets: Vec<UdpSocket>,
    (flow, limiter): (&FlowOffer, Option<RateLimiter>),
    peer: &Offer,
    payload: P,
    mut log: Option<QlogFile>,
    mut events: impl FnMut(FlowEvent) + Send + 'static,
) -> Result<FlowHandle, String> {
    let lanes = sockets.len().min(peer.udp.len());
    sockets.truncate(lanes);
    let config = config(Role::Sender, plan, flow, peer, lanes);
    let now = clock::now();
    let controller = ControllerConfig {
        seed: config.seed,
        ceiling: config.rate_ceiling,
        mtu: config.first_mtu(),
        now,
        rtt: None,
    };
    let name = plan.cc.as_deref().unwrap_or(match config.feedback {
        FeedbackKind::Udt(_) => UDT_CC,
        FeedbackKind::Fobs => FOBS_CC,
        FeedbackKind::Sabul => SABUL_CC,
        FeedbackKind::Native if plan.background => "native:background",
        FeedbackKind::Native => "native",
    });
    let mut controller = packtrain_cc::build(name, &controller).map_err(|e| e.to_string())?;
    if let Some(EarlierPath { rate, rtt }) = plan.earlier.path {
        controller.on_saved_path(SavedPath { rate, rtt });
    }
    let flow = Flow::new(config, Some(controller), now).map_err(|e| e.to_string())?;
    let is_logged = log.is_some();
    let events = move |event| match (&event, &mut log) {
        (FlowEvent::Log(line), Some(log)) => log.write(line),
        _ => events(event),
    };
    let handle = match limiter {
        Some(limiter) => flow::spawn_limited_sender(sockets, flow, limiter, payload, events),
        None => flow::spawn_sender(sockets, flow, payload, events),
    }
    .map_err(|e| e.to_string())?;
    if is_logged {
        handle.enable_log();
    }
    Ok(handle)
}

/// Starts the receiving end.
pub fn start_receiver<Q: Placement + Send + 'static>(
    plan: &TransportConfig,
    mut sockets: Vec<UdpSocket>,
    (flow, limiter): (&FlowOffer, Option<RateLimiter>),
    peer: &Offer,
    placement: Q,
    events: impl FnMut(FlowEvent) + Send + 'static,
) -> Result<FlowHandle, String> {
    let lanes = sockets.len().min(peer.udp.len());
    sockets.truncate(lanes);
    let config = config(Role::Receiver, plan, flow, peer, lanes);
    let flow = Flow::new(config, None, clock::now()).map_err(|e| e.to_string())?;
    match limiter {
        Some(limiter) => {
            flow::spawn_receiver(sockets, flow, Limited { placement, limiter }, events)
        }
        None => flow::spawn_receiver(sockets, flow, placement, events),
    }
    .map_err(|e| e.to_string())
}

/// Refuses data above the rate limit. Refused data is not acknowledged, so the sender repeats it.
struct Limited<Q> {
    placement: Q,
    limiter: RateLimiter,
}

impl<Q: Placement> Placement for Limited<Q> {
    fn place(&mut self, at: Offset, bytes: &[u8]) -> Placed {
        if self.limiter.try_take(ByteCount(bytes.len() as u64)) {
            self.placement.place(at, bytes)
        } else {
            Placed::NoRoom
        }
    }

    fn room(&self) -> ByteCount {
        self.placement.room()
    }
}

//! The flow of datagrams of one direction of a hop.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;

use packtrain_cc::ControllerConfig;
use packtrain_net::flow::{self, FlowEvent, FlowHandle};
use packtrain_net::udp::UdpSocket;
use packtrain_os::thread::Waker;
use packtrain_os::{clock, entropy};
use packtrain_proto::{
    CloseReason, Event, FeedbackKind, Fill, Flow, FlowConfig, Payload, Placed, Placement, Role,
    Variant, limits,
};
use packtrain_session::HopTransport;
use packtrain_session::hop::HopFlow;
use packtrain_units::{ByteCount, Duration, Offset};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::Instant;

use super::{Hops, Ring};

/// Maximum datagram in an Ethernet frame over IPv4 and IPv6. Rings rely on it: two of their blocks
/// can hold a datagram at any offset.
const MTU_V4: ByteCount = ByteCount(1_472);
const MTU_V6: ByteCount = ByteCount(1_452);
/// How long a stalled flow may stay silent. TCP is available as a replacement.
const STALL_TIMEOUT: Duration = Duration::from_secs(3);
/// The buffer size that is announced before the ring was asked.
const FIRST_ROOM: ByteCount = ByteCount(64 << 10);

/// The state of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FlowState {
    /// No packet has passed in both directions yet.
    Begun,
    /// Packets have passed in both directions.
    Up,
    /// Stalled since this time: an expected packet has not arrived.
    Stalled(Instant),
    /// The flow has ended.
    Over(CloseReason),
}

/// A socket for a flow, and the permit for its thread.
pub(super) struct FlowSlot {
    socket: UdpSocket,
    leave: OwnedSemaphorePermit,
}

impl FlowSlot {
    /// `None` if there are too many flows, or no free port.
    pub(super) fn take(hops: &Hops, local: IpAddr) -> Option<Self> {
        let leave = Arc::clone(&hops.flows).try_acquire_owned().ok()?;
        let socket = UdpSocket::bind_in(Some(local), hops.ports, entropy::seed()).ok()?;
        Some(Self { socket, leave })
    }

    pub(super) fn port(&self) -> u16 {
        self.socket.local_addr().port()
    }
}

/// A running flow; it is closed as abandoned when it is dropped.
pub(super) struct ActiveFlow {
    handle: FlowHandle,
    pub(super) state: watch::Receiver<FlowState>,
    _leave: OwnedSemaphorePermit,
}

impl ActiveFlow {
    /// Sender: these bytes of the flow are available.
    pub(super) fn assign(&self, range: Range<u64>) {
        self.handle.assign(Offset(range.start)..Offset(range.end));
    }

    /// Sender: everything has arrived.
    pub(super) fn done(&self) {
        self.handle.close(CloseReason::Done);
    }

    /// Its waker, for the task that frees memory.
    pub(super) fn waker(&self) -> Waker {
        self.handle.waker()
    }

    /// Waits until packets have passed in both directions; returns the reason if the flow ends
    /// first.
    pub(super) async fn up(state: &mut watch::Receiver<FlowState>) -> Result<(), CloseReason> {
        match state.wait_for(|state| *state != FlowState::Begun).await.as_deref() {
            Ok(FlowState::Up | FlowState::Stalled(_)) => Ok(()),
            Ok(FlowState::Over(reason)) => Err(reason.clone()),
            _ => Err(CloseReason::Abandoned),
        }
    }

    /// Waits until the flow ends or is stalled for too long.
    pub(super) async fn lost(state: &mut watch::Receiver<FlowState>) -> CloseReason {
        loop {
            let now = state.borrow_and_update().clone();
            match now {
                FlowState::Over(reason) => return reason,
                FlowState::Stalled(since) => {
                    let changed =
                        tokio::time::timeout_at(since + STALL_TIMEOUT.to_std(), state.changed());
                    match changed.await {
                        Ok(Ok(())) => {}
                        Ok(Err(_)) => return CloseReason::Abandoned,
                        Err(_) => return CloseReason::Silent(limits::STALL + STALL_TIMEOUT),
                    }
                }
                FlowState::Begun | FlowState::Up => {
                    if state.changed().await.is_err() {
                        return CloseReason::Abandoned;
                    }
                }
            }
        }
    }

    /// Waits for the end of the flow.
    pub(super) async fn over(state: &mut watch::Receiver<FlowState>) -> CloseReason {
        match state.wait_for(|state| matches!(state, FlowState::Over(_))).await.as_deref() {
            Ok(FlowState::Over(reason)) => reason.clone(),
            _ => CloseReason::Abandoned,
        }
    }
}

fn events() -> (impl FnMut(FlowEvent) + Send + 'static, watch::Receiver<FlowState>) {
    let (tell, state) = watch::channel(FlowState::Begun);
    let told = move |event| {
        let new = match event {
            FlowEvent::Flow(Event::Established { .. } | Event::Recovered) => FlowState::Up,
            FlowEvent::Flow(Event::Stalled) => FlowState::Stalled(Instant::now()),
            FlowEvent::Flow(Event::Closed(reason)) => FlowState::Over(reason),
            FlowEvent::Ended(_) | FlowEvent::Panicked => FlowState::Over(CloseReason::Abandoned),
            _ => return,
        };
        tell.send_if_modified(|state| {
            let changed = !matches!(state, FlowState::Over(_)) && *state != new;
            if changed {
                *state = new;
            }
            changed
        });
    };
    (told, state)
}

fn config(role: Role, kind: HopTransport, flow: &HopFlow, peer: SocketAddr) -> FlowConfig {
    let v4 = peer.ip().to_canonical().is_ipv4();
    let mtu = if v4 { MTU_V4 } else { MTU_V6 };
    FlowConfig {
        max_mtu: mtu,
        room: FIRST_ROOM,
        seed: entropy::seed(),
        ecn: true,
        feedback: match kind {
            HopTransport::Udt => FeedbackKind::Udt(Variant::of_controller(controller(kind))),
            _ => FeedbackKind::Native,
        },
        ..FlowConfig::new(role, flow.keys.clone(), flow.id, vec![vec![peer]])
    }
}

fn controller(kind: HopTransport) -> &'static str {
    if kind == HopTransport::Udt { "udt:grid" } else { "native" }
}

/// Starts the sending end. A byte has the same offset in the flow and in the ring.
pub(super) fn send(
    berth: FlowSlot,
    kind: HopTransport,
    flow: &HopFlow,
    peer: SocketAddr,
    source: Source,
) -> Result<ActiveFlow, String> {
    let config = config(Role::Sender, kind, flow, peer);
    let now = clock::now();
    let control = ControllerConfig {
        mtu: config.first_mtu(),
        seed: config.seed,
        now,
        ceiling: None,
        rtt: None,
    };
    let control = packtrain_cc::build(controller(kind), &control).map_err(|e| e.to_string())?;
    let flow = Flow::new(config, Some(control), now).map_err(|e| e.to_string())?;
    let (told, state) = events();
    let handle = flow::spawn_sender(vec![berth.socket], flow, source, told);
    let handle = handle.map_err(|e| e.to_string())?;
    Ok(ActiveFlow { handle, state, _leave: berth.leave })
}

/// Starts the receiving end.
pub(super) fn receive(
    berth: FlowSlot,
    kind: HopTransport,
    flow: &HopFlow,
    peer: SocketAddr,
    sink: Sink,
) -> Result<ActiveFlow, String> {
    let config = config(Role::Receiver, kind, flow, peer);
    let flow = Flow::new(config, None, clock::now()).map_err(|e| e.to_string())?;
    let (told, state) = events();
    let handle = flow::spawn_receiver(vec![berth.socket], flow, sink, told);
    let handle = handle.map_err(|e| e.to_string())?;
    Ok(ActiveFlow { handle, state, _leave: berth.leave })
}

/// The ring as the payload of the network thread.
pub(super) struct Source(pub(super) Arc<Ring>);

impl Payload for Source {
    fn fill(&mut self, at: Offset, out: &mut [u8]) -> Fill {
        self.0.fill(at.get(), out)
    }

    fn release(&mut self, range: Range<Offset>) {
        self.0.release(range.start.get()..range.end.get());
    }
}

/// The ring as the placement of the network thread. Bytes that arrive before the switch message was
/// read lie beyond the edge until the bytes from TCP reach them.
pub(super) struct Sink(pub(super) Arc<Ring>);

impl Placement for Sink {
    fn place(&mut self, at: Offset, bytes: &[u8]) -> Placed {
        self.0.place(at.get(), bytes)
    }

    fn room(&self) -> ByteCount {
        self.0.room()
    }
}

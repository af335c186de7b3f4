//! The network thread of one end of a UDP flow.
//!
//! One thread owns the sockets (one a lane), the engine with its keys, and the source or the sink
//! of bytes: there is no lock and no allocation on the way of a packet. It sleeps in `ppoll` with
//! a precise timeout, and it never touches a disk: a [`Payload`] that has no bytes says
//! `Pending`, the thread sleeps, and whoever brings the bytes calls
//! [`Waker::wake`](thread::Waker::wake).
//!
//! A feedback that has a channel beside its datagrams gets it from whoever owns the flow:
//! [`FlowHandle::beside`].
//!
//! Commands come in through [`FlowHandle`]; what happens is told to a closure that runs on the
//! thread and must not block, for example one that sends into a channel.

mod beside;
mod driver;
mod handle;
mod judge;
mod nothing;
mod stats;
mod watch;

use std::sync::Arc;

use packtrain_os::{clock, thread};
use packtrain_proto::limits::LANES;
use packtrain_proto::{Event, Flow, Payload, Placement};
use parking_lot::Mutex;

use crate::limit::RateLimiter;
use crate::udp::{BufferWarning, UdpSocket};
use driver::Driver;
use nothing::{NoPayload, NoPlacement};

pub use beside::{Beside, Inward, Outward};
pub use handle::FlowHandle;
pub use stats::{FlowSnapshot, IoStats};

/// What the owner of a flow is told.
#[derive(Clone, Debug)]
pub enum FlowEvent {
    /// Word of the engine.
    Flow(Event),
    /// Datagrams were dropped because a system limit on buffers is too low for this rate.
    Buffers(BufferWarning),
    /// One line of the engine's event log, when it was asked for.
    Log(String),
    /// The thread is done; nothing more will be told.
    Ended(Box<FlowSnapshot>),
    /// The thread died of a bug, its own or that of the payload or placement.
    Panicked,
}

const _: () = assert!(LANES <= thread::SOCKETS, "a flow has a socket a lane");

/// Why a flow's thread could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// There is no socket, or there are more than a flow has lanes.
    #[error("a flow has 1 to 16 sockets, not {0}")]
    Sockets(usize),
    /// The system refused.
    #[error("cannot start the network thread: {0}")]
    System(#[from] std::io::Error),
}

/// Starts the sending end: bytes come from `payload`, socket `i` is lane `i` of the flow.
///
/// # Errors
/// [`SpawnError`] when there is no socket or too many, or no thread to be had.
pub fn spawn_sender<P>(
    sockets: Vec<UdpSocket>,
    flow: Flow,
    payload: P,
    events: impl FnMut(FlowEvent) + Send + 'static,
) -> Result<FlowHandle, SpawnError>
where
    P: Payload + Send + 'static,
{
    spawn("pt-send", sockets, (flow, None), payload, NoPlacement, events)
}

/// The same under a rate limit that other senders may share: a batch leaves when the limit lets
/// it, and delays theirs.
///
/// # Errors
/// As [`spawn_sender`].
pub fn spawn_limited_sender<P>(
    sockets: Vec<UdpSocket>,
    flow: Flow,
    limiter: RateLimiter,
    payload: P,
    events: impl FnMut(FlowEvent) + Send + 'static,
) -> Result<FlowHandle, SpawnError>
where
    P: Payload + Send + 'static,
{
    spawn("pt-send", sockets, (flow, Some(limiter)), payload, NoPlacement, events)
}

/// Starts the receiving end: bytes go to `placement`, socket `i` is lane `i` of the flow.
///
/// # Errors
/// [`SpawnError`] when there is no socket or too many, or no thread to be had.
pub fn spawn_receiver<Q>(
    sockets: Vec<UdpSocket>,
    flow: Flow,
    placement: Q,
    events: impl FnMut(FlowEvent) + Send + 'static,
) -> Result<FlowHandle, SpawnError>
where
    Q: Placement + Send + 'static,
{
    spawn("pt-recv", sockets, (flow, None), NoPayload, placement, events)
}

fn spawn<P, Q, E>(
    name: &str,
    sockets: Vec<UdpSocket>,
    (flow, limiter): (Flow, Option<RateLimiter>),
    payload: P,
    placement: Q,
    mut events: E,
) -> Result<FlowHandle, SpawnError>
where
    P: Payload + Send + 'static,
    Q: Placement + Send + 'static,
    E: FnMut(FlowEvent) + Send + 'static,
{
    if sockets.is_empty() || sockets.len() > LANES {
        return Err(SpawnError::Sockets(sockets.len()));
    }
    let (waker, sleeper) = thread::pair()?;
    let (commands, inbox) = crossbeam_channel::unbounded();
    let shared = Arc::new(Mutex::new(FlowSnapshot::empty(clock::now())));
    let board = Arc::clone(&shared);
    let judge = judge::Judge::new(waker.clone());
    let (line, beside) = if flow.wants_reliable() {
        let (line, beside) = beside::pair(waker.clone());
        (Some(line), Some(beside))
    } else {
        (None, None)
    };
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        // A panic in foreign code must not leave the owner waiting for an event.
        let run = std::panic::AssertUnwindSafe(|| {
            let parts = (sleeper, judge, line);
            let flow = (flow, limiter);
            Driver::new(sockets, flow, payload, placement, inbox, parts, board).run(&mut events)
        });
        match std::panic::catch_unwind(run) {
            Ok(last) => events(FlowEvent::Ended(Box::new(last))),
            Err(_) => events(FlowEvent::Panicked),
        }
    })?;
    Ok(FlowHandle::new(commands, waker, shared, thread, beside))
}

//! The network thread of one end of a UDP flow.
//!
//! One thread owns the sockets (one per lane), the engine with its keys, and the source or sink of
//! bytes, so a packet needs no lock and no allocation. The thread sleeps in `ppoll` with a precise
//! timeout. It never accesses a disk: a [`Payload`] without bytes returns `Pending`, the thread
//! sleeps, and the owner of the bytes calls [`Waker::wake`](thread::Waker::wake) when they are
//! available.
//!
//! A feedback that needs a separate reliable channel gets it from the flow's owner:
//! [`FlowHandle::channel`].
//!
//! Commands come through [`FlowHandle`]. Events go to a closure that runs on the thread and must
//! not block, for example one that sends to a channel.

mod buffer_watch;
mod driver;
mod empty;
mod feedback_channel;
mod handle;
mod loss_classifier;
mod stats;

use std::sync::Arc;

use packtrain_os::{clock, thread};
use packtrain_proto::limits::LANES;
use packtrain_proto::{Event, Flow, Payload, Placement};
use parking_lot::Mutex;

use crate::limit::RateLimiter;
use crate::udp::{BufferWarning, UdpSocket};
use driver::Driver;
use empty::{NoPayload, NoPlacement};

pub use feedback_channel::{ChannelInput, ChannelOutput, FeedbackChannel};
pub use handle::FlowHandle;
pub use stats::{FlowSnapshot, IoStats};

/// An event for the owner of a flow.
#[derive(Clone, Debug)]
pub enum FlowEvent {
    /// An event of the engine.
    Flow(Event),
    /// Datagrams were dropped because a system limit on socket buffers is too low for this rate.
    Buffers(BufferWarning),
    /// A line of the engine's event log, if it is enabled.
    Log(String),
    /// The thread has ended; this is the last event.
    Ended(Box<FlowSnapshot>),
    /// The thread panicked, in its own code or in that of the payload or placement.
    Panicked,
}

const _: () = assert!(LANES <= thread::SOCKETS, "a flow has a socket a lane");

/// Why the thread of a flow could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// There is no socket, or more than a flow has lanes.
    #[error("a flow has 1 to 16 sockets, not {0}")]
    Sockets(usize),
    /// The system refused a thread or a descriptor.
    #[error("cannot start the network thread: {0}")]
    System(#[from] std::io::Error),
}

/// Starts the sending end: bytes come from `payload`, socket `i` is lane `i` of the flow.
///
/// # Errors
/// [`SpawnError`] for no socket or too many, or if no thread can be started.
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

/// The same with a rate limit, which other senders may share: a batch leaves when the limit allows
/// it, and delays those of the others.
///
/// # Errors
/// As [`spawn_sender`].
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
/// [`SpawnError`] for no socket or too many, or if no thread can be started.
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
    let classifier = loss_classifier::LossClassifier::new(waker.clone());
    let (line, feedback_channel) = if flow.wants_reliable() {
        let (line, feedback_channel) = feedback_channel::pair(waker.clone());
        (Some(line), Some(feedback_channel))
    } else {
        (None, None)
    };
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        // A panic in foreign code must not leave the owner waiting for an event.
        let run = std::panic::AssertUnwindSafe(|| {
            let parts = (sleeper, classifier, line);
            let flow = (flow, limiter);
            Driver::new(sockets, flow, payload, placement, inbox, parts, board).run(&mut events)
        });
        match std::panic::catch_unwind(run) {
            Ok(last) => events(FlowEvent::Ended(Box::new(last))),
            Err(_) => events(FlowEvent::Panicked),
        }
    })?;
    Ok(FlowHandle::new(commands, waker, shared, thread, feedback_channel))
}

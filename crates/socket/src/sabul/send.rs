//! The sending end.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use packtrain_cc::sabul::Variant;
use packtrain_cc::{ControllerConfig, Sabul};
use packtrain_net::flow::{FlowEvent, FlowHandle, spawn_sender};
use packtrain_os::clock;
use packtrain_proto::{CloseReason, Event, Fill, Flow, Payload};
use packtrain_units::Offset;

use super::open::{self, Opened};
use super::span::Span;
use super::{Agreed, Error, Options};

#[derive(Default)]
struct State {
    /// The ranges of the stream that the receiver has.
    done: Span,
    /// The bytes after them that `send` has accepted.
    bytes: VecDeque<u8>,
    /// Datagrams have passed in both directions.
    established: bool,
    closed: Option<CloseReason>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// The sending end of a connection.
pub struct Sender {
    shared: Arc<Shared>,
    flow: FlowHandle,
    agreed: Agreed,
    /// The end of the accepted bytes.
    end: u64,
}

impl Sender {
    /// Open: connects to the receiver that listens at `to`.
    ///
    /// # Errors
    /// The two ends cannot connect, do not trust each other, or cannot agree on values.
    pub fn open(to: SocketAddr, options: &Options) -> Result<Self, Error> {
        let Opened { agreed, config, socket, channel } = open::call(to, options)?;
        let now = clock::now();
        let variant = Variant { first: Some(agreed.rate), ..options.variant };
        let (mtu, seed) = (config.first_mtu(), config.seed);
        let controller = ControllerConfig { mtu, seed, now, ceiling: None, rtt: None };
        let controller = Box::new(Sabul::new(&controller, variant));
        let flow = Flow::new(config, Some(controller), now)?;
        let shared = Arc::<Shared>::default();
        let (source, told) = (Source(Arc::clone(&shared)), Arc::clone(&shared));
        let mut flow = spawn_sender(vec![socket], flow, source, move |event| {
            let mut state = told.state();
            match event {
                FlowEvent::Flow(Event::Established { .. }) => state.established = true,
                FlowEvent::Flow(Event::Closed(reason)) => {
                    state.closed.get_or_insert(reason);
                }
                FlowEvent::Ended(_) | FlowEvent::Panicked => {
                    state.closed.get_or_insert(CloseReason::Abandoned);
                }
                _ => return,
            }
            drop(state);
            told.changed.notify_all();
        })?;
        channel.carry(flow.channel())?;
        let sender = Self { shared, flow, agreed, end: 0 };
        sender.wait_established(options)?;
        Ok(sender)
    }

    /// Waits until datagrams pass in both directions.
    fn wait_established(&self, options: &Options) -> Result<(), Error> {
        let waits = |state: &mut State| !state.established && state.closed.is_none();
        let mut state = self.shared.state();
        self.shared.changed.wait_while_for(&mut state, waits, options.open_timeout.to_std());
        match &state.closed {
            Some(reason) => Err(Error::Broken(reason.clone())),
            None if !state.established => Err(Error::Datagrams),
            None => Ok(()),
        }
    }

    /// The values that both ends use.
    pub fn agreed(&self) -> Agreed {
        self.agreed
    }

    /// Send: accepts all bytes, and waits while the buffer is full of unacknowledged data. The
    /// bytes may still be in flight when it returns; `close` waits for their arrival.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn send(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        let buffer = self.agreed.buffer.get() as usize;
        while !bytes.is_empty() {
            let mut state = self.shared.state();
            while state.bytes.len() >= buffer && state.closed.is_none() {
                self.shared.changed.wait(&mut state);
            }
            if let Some(reason) = &state.closed {
                return Err(Error::Broken(reason.clone()));
            }
            let (now, later) = bytes.split_at(bytes.len().min(buffer - state.bytes.len()));
            state.bytes.extend(now);
            drop(state);
            let start = self.end;
            self.end += now.len() as u64;
            self.flow.assign(Offset(start)..Offset(self.end));
            bytes = later;
        }
        Ok(())
    }

    /// Close: waits until the receiver has everything, then closes the flow.
    ///
    /// # Errors
    /// The connection ended before that.
    pub fn close(self) -> Result<(), Error> {
        let mut state = self.shared.state();
        while state.done.edge() < self.end && state.closed.is_none() {
            self.shared.changed.wait(&mut state);
        }
        let missing = state.done.edge() < self.end;
        let why = state.closed.clone().filter(|_| missing);
        drop(state);
        self.flow.close(CloseReason::Done);
        self.flow.join();
        why.map_or(Ok(()), |reason| Err(Error::Broken(reason)))
    }
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender").field("agreed", &self.agreed).field("sent", &self.end).finish()
    }
}

/// The buffer as the payload of the network thread.
struct Source(Arc<Shared>);

impl Payload for Source {
    fn fill(&mut self, at: Offset, out: &mut [u8]) -> Fill {
        let state = self.0.state();
        let Some(from) = at.get().checked_sub(state.done.edge()).map(|from| from as usize) else {
            return Fill::Failed;
        };
        let Some(end) = from.checked_add(out.len()).filter(|end| *end <= state.bytes.len()) else {
            return Fill::Failed;
        };
        let (front, back) = state.bytes.as_slices();
        let split = front.len().clamp(from, end) - from;
        let (first, second) = out.split_at_mut(split);
        if !first.is_empty() {
            first.copy_from_slice(&front[from..from + split]);
        }
        if !second.is_empty() {
            let from = from + split - front.len();
            second.copy_from_slice(&back[from..from + second.len()]);
        }
        Fill::Ready
    }

    fn release(&mut self, range: Range<Offset>) {
        let mut state = self.0.state();
        let before = state.done.edge();
        state.done.insert(range.start.get()..range.end.get());
        let gone = (state.done.edge() - before) as usize;
        let gone = gone.min(state.bytes.len());
        state.bytes.drain(..gone);
        drop(state);
        self.0.changed.notify_all();
    }
}

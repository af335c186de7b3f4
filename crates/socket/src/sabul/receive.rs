//! The receiving end.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;

use packtrain_net::flow::{FlowEvent, FlowHandle, spawn_receiver};
use packtrain_os::clock;
use packtrain_proto::{CloseReason, Event, Flow, Placed, Placement};
use packtrain_units::{ByteCount, Offset};

use super::open::{Listener, Opened};
use super::span::Span;
use super::{Agreed, Error};

struct State {
    /// The bytes from `taken` on, at their offset modulo the length of the buffer.
    ring: Vec<u8>,
    taken: u64,
    came: Span,
    closed: Option<CloseReason>,
}

impl State {
    /// The position of `len` bytes at this offset in the ring: two parts, of which the second may
    /// be empty.
    fn pieces(&self, at: u64, len: usize) -> (std::ops::Range<usize>, std::ops::Range<usize>) {
        let from = (at % self.ring.len() as u64) as usize;
        let first = len.min(self.ring.len() - from);
        (from..from + first, 0..len - first)
    }
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// The receiving end of a connection.
pub struct Receiver {
    shared: Arc<Shared>,
    flow: FlowHandle,
    agreed: Agreed,
}

impl Receiver {
    /// Open: waits for a sender.
    ///
    /// # Errors
    /// The sender is not trusted, sent a malformed Open, or closed. Call it again for the next
    /// sender.
    pub fn open(at: &Listener) -> Result<Self, Error> {
        let Opened { agreed, config, socket, channel } = at.answer()?;
        let flow = Flow::new(config, None, clock::now())?;
        // At most the offered size, whatever the other end offered.
        let ring = vec![0; agreed.buffer.get() as usize];
        let state = State { ring, taken: 0, came: Span::default(), closed: None };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let (sink, told) = (Sink(Arc::clone(&shared)), Arc::clone(&shared));
        let mut flow = spawn_receiver(vec![socket], flow, sink, move |event| {
            let reason = match event {
                FlowEvent::Flow(Event::Closed(reason)) => reason,
                FlowEvent::Ended(_) | FlowEvent::Panicked => CloseReason::Abandoned,
                _ => return,
            };
            told.state().closed.get_or_insert(reason);
            told.changed.notify_all();
        })?;
        channel.carry(flow.channel())?;
        Ok(Self { shared, flow, agreed })
    }

    /// The values that both ends use.
    pub fn agreed(&self) -> Agreed {
        self.agreed
    }

    /// Recv: waits for bytes, and returns as many as are available and fit. 0: the sender has
    /// closed and everything was read.
    ///
    /// # Errors
    /// The connection ended otherwise. Data that arrived before is returned first.
    pub fn recv(&mut self, out: &mut [u8]) -> Result<usize, Error> {
        let mut state = self.shared.state();
        loop {
            let here = state.came.edge() - state.taken;
            if here > 0 || out.is_empty() {
                let count = out.len().min(here as usize);
                let (first, second) = state.pieces(state.taken, count);
                let (front, back) = out[..count].split_at_mut(first.len());
                front.copy_from_slice(&state.ring[first]);
                back.copy_from_slice(&state.ring[second]);
                state.taken += count as u64;
                drop(state);
                // The buffer has free space again.
                self.flow.wake();
                return Ok(count);
            }
            match &state.closed {
                Some(CloseReason::Done) => return Ok(0),
                Some(reason) => return Err(Error::Broken(reason.clone())),
                None => self.shared.changed.wait(&mut state),
            }
        }
    }

    /// Close: receives no more. An unfinished sender is informed.
    pub fn close(self) {
        self.flow.close(CloseReason::Done);
        self.flow.join();
    }
}

impl std::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiver").field("agreed", &self.agreed).finish_non_exhaustive()
    }
}

/// The buffer as the placement of the network thread.
struct Sink(Arc<Shared>);

impl Placement for Sink {
    fn place(&mut self, at: Offset, bytes: &[u8]) -> Placed {
        let mut state = self.0.state();
        let (start, end) = (at.get(), at.get().saturating_add(bytes.len() as u64));
        if end > state.taken + state.ring.len() as u64 {
            return Placed::NoRoom;
        }
        let before = state.came.edge();
        if !state.came.insert(start..end) {
            return Placed::Duplicate;
        }
        // Bytes that were read already are skipped.
        let bytes = &bytes[(state.taken.saturating_sub(start) as usize).min(bytes.len())..];
        let (first, second) = state.pieces(start.max(state.taken), bytes.len());
        let (front, back) = bytes.split_at(first.len());
        state.ring[first].copy_from_slice(front);
        state.ring[second].copy_from_slice(back);
        let more = state.came.edge() > before;
        drop(state);
        if more {
            self.0.changed.notify_all();
        }
        Placed::New
    }

    fn room(&self) -> ByteCount {
        let state = self.0.state();
        let held = state.came.edge() - state.taken + state.came.beyond();
        ByteCount(state.ring.len() as u64 - held)
    }
}

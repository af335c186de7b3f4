//! The loop of a port's network thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use packtrain_net::udp::{Lane, Unsent};
use packtrain_net::udp::{RecvSlab, SendError};
use packtrain_os::clock;
use packtrain_os::thread::{BATCH_PAUSE, ThreadSleep, WakeReceiver};
use packtrain_proto::{BATCH_BYTES, Datagrams, Transmit};
use packtrain_units::{ByteCount, Duration, Time};

use crate::shared::{Calls, Shared};

/// Batches sent before the socket is read again, so that acknowledgements do not wait behind data.
const SEND_TURN: usize = 4;
/// Receive calls before the engine may send again.
const RECEIVE_TURN: usize = 4;
/// Turns in a row in which the engine asks for another one at once although nothing was sent or
/// received. After them the thread pauses, so that an error of the engine does not make it spin.
const EMPTY_TURNS: u32 = 8;
/// The pause after [`EMPTY_TURNS`].
const EMPTY_TURNS_PAUSE: Duration = Duration::from_micros(50);
/// Pause of a network thread that receives a stream of full batches into a [`DEEP_BUFFER`], and of
/// one that sent full batches and waits for the pace. A wake-up for each batch costs both ends
/// more than the batch. The engine then sends the batches that became due meanwhile; full batches
/// become due within this time above 2.6 Gbit/s.
const STREAM_PAUSE: Duration = Duration::from_micros(200);
/// A receive buffer that holds at least a pause at any rate that one socket reaches: 2.4 ms at 25
/// Gbit/s.
const DEEP_BUFFER: ByteCount = ByteCount(8 << 20);
/// A batch of at least this size is full, whatever the size of its packets.
const FULL_BATCH: usize = BATCH_BYTES * 7 / 8;
/// Received bytes per turn up to which a sender may pause: acknowledgements.
const FEW_BYTES: usize = 16 << 10;
/// Maximum sleep; no function depends on it.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// Runs until the port has no handle left, and closed connections have lingered.
pub(crate) fn run(lane: Lane, shared: Arc<Shared>, sleeper: WakeReceiver) {
    let board = Arc::clone(&shared);
    let driver = Driver {
        lanes: [lane],
        shared,
        sleeper,
        slab: RecvSlab::new(),
        out: vec![0; BATCH_BYTES],
        unsent: None,
        worked: false,
        sent_full: false,
        received: 0,
        unread: false,
        empty_turns: 0,
    };
    // Waiting callers are informed of the thread's end, also after a panic.
    if catch_unwind(AssertUnwindSafe(|| driver.run())).is_err() {
        let mut calls = Calls::default();
        board.lock().fail(&mut calls);
        calls.make();
    }
}

struct Driver {
    lanes: [Lane; 1],
    shared: Arc<Shared>,
    sleeper: WakeReceiver,
    slab: RecvSlab,
    out: Vec<u8>,
    /// A batch that found the send buffer full.
    unsent: Option<Unsent>,
    /// Something was sent or received in this turn.
    worked: bool,
    /// The last batch of this turn was a full one.
    sent_full: bool,
    /// Bytes received in the last turn, and whether more are pending.
    received: usize,
    unread: bool,
    /// Turns in a row without anything sent or received.
    empty_turns: u32,
}

impl Driver {
    fn run(mut self) {
        let mut bed = ThreadSleep::new();
        let buffers = self.lanes[0].socket.buffer_sizes();
        let is_deep = buffers.is_ok_and(|sizes| sizes.receive >= DEEP_BUFFER);
        let mut calls = Calls::default();
        loop {
            self.sleeper.take_wakes();
            (self.worked, self.sent_full) = (false, false);
            // The last messages of the last handle are sent in the turn that begins now.
            let over = self.shared.lock().is_over();
            let more = self.transmit();
            let mut state = self.shared.lock();
            state.forward_events(clock::now(), &mut calls);
            let flush_waiters = !more && self.unsent.is_none();
            let again = flush_waiters && std::mem::take(&mut state.flushing);
            if flush_waiters {
                state.idle += 1;
                state.flush_waiters.call(&mut calls);
            }
            let over = over && flush_waiters;
            let engine = state.endpoint.poll_timeout();
            drop(state);
            calls.make();
            if over {
                return;
            }
            let until =
                if more || again || self.unread { Time::ZERO } else { self.deadline(engine) };
            let blocked = self.unsent.as_ref().map(|_| 0);
            let now = clock::now();
            let pause = now + STREAM_PAUSE;
            let paced = self.sent_full && blocked.is_none() && until > now && until < pause;
            if paced && self.received <= FEW_BYTES {
                bed.pause(&self.lanes, &self.sleeper, pause);
            } else {
                // Small messages that answer each other do not wait that long.
                let stream = is_deep && self.received >= FULL_BATCH;
                bed.set_batch_pause(if stream { STREAM_PAUSE } else { BATCH_PAUSE });
                bed.sleep(&self.lanes, blocked, &self.sleeper, until);
            }
            (self.received, self.unread) = (0, false);
            if !bed.readable().is_empty() {
                self.receive();
            }
            self.empty_turns = if self.worked { 0 } else { self.empty_turns.saturating_add(1) };
        }
    }

    /// When to stop sleeping.
    fn deadline(&self, engine: Option<Time>) -> Time {
        let now = clock::now();
        let breath =
            if self.empty_turns < EMPTY_TURNS { Time::ZERO } else { now + EMPTY_TURNS_PAUSE };
        engine.unwrap_or(Time::MAX).max(breath).min(now + MAX_SLEEP)
    }

    /// Sends what may leave now; true if there may be more.
    fn transmit(&mut self) -> bool {
        if let Some(unsent) = self.unsent.take() {
            self.send(unsent.transmit, unsent.sent);
        }
        for _ in 0..SEND_TURN {
            if self.unsent.is_some() {
                return false;
            }
            let mut state = self.shared.lock();
            let now = clock::now();
            if state.endpoint.poll_timeout().is_some_and(|t| t <= now) {
                state.endpoint.handle_timeout(now);
            }
            let transmit = state.endpoint.poll_transmit(now, &mut self.out);
            drop(state);
            match transmit {
                Some(transmit) => self.send(transmit, 0),
                None => return false,
            }
        }
        self.unsent.is_none()
    }

    /// Sends a batch from byte `from` on. Datagrams that the system refuses count as lost.
    fn send(&mut self, transmit: Transmit, from: usize) {
        let bytes = &self.out[from..transmit.len];
        let sent = match self.lanes[0].socket.send(transmit.to, bytes, transmit.segment, None) {
            Ok(sent) => sent,
            Err(SendError::Blocked) => 0,
            Err(SendError::TooBig | SendError::Refused(_)) => return,
        };
        self.worked |= sent > 0;
        self.sent_full = bytes.len() >= FULL_BATCH;
        if sent < bytes.len() {
            self.unsent = Some(Unsent { transmit, sent: from + sent });
        }
    }

    /// Receives pending datagrams. If more are pending, the next turn follows without a pause, which
    /// would limit the flow to one turn per pause.
    fn receive(&mut self) {
        self.unread = (0..RECEIVE_TURN).all(|_| self.receive_once());
    }

    /// Makes one receive call; true if more datagrams may be pending.
    fn receive_once(&mut self) -> bool {
        let Self { lanes: [lane], shared, slab, .. } = self;
        match lane.socket.recv(slab) {
            Ok(0) => return false,
            // Probably a delayed error of a send, whose datagram is lost.
            Err(_) => return false,
            Ok(_) => self.worked = true,
        }
        let mut state = shared.lock();
        let now = clock::now();
        for message in slab.messages() {
            self.received += message.bytes.len();
            lane.note_message(message.bytes.len().div_ceil(message.stride));
            let input = Datagrams {
                lane: 0,
                from: message.from,
                bytes: message.bytes,
                stride: message.stride,
                ecn: None,
                received_at: message.received_at,
            };
            state.endpoint.handle(now, input);
        }
        if let Some(total) = lane.note_drops(lane.socket.seen_drops()) {
            state.host_drops = total;
        }
        slab.was_full()
    }
}

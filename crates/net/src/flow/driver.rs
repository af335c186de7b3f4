//! The loop of the network thread.

use parking_lot::Mutex;
use std::sync::Arc;

use crossbeam_channel::{Receiver, TryRecvError};
use packtrain_os::clock;
use packtrain_os::thread::{self, ThreadSleep, WakeReceiver};
use packtrain_proto::{
    BATCH_BYTES, CloseReason, Datagrams, Event, Flow, Payload, Placement, Transmit,
};
use packtrain_units::{ByteCount, Duration, Time};

use super::FlowEvent;
use super::buffer_watch::BufferWatch;
use super::feedback_channel::{ChannelEnd, ChannelRead};
use super::handle::Command;
use super::loss_classifier::LossClassifier;
use super::stats::{FlowSnapshot, IoStats};
use crate::limit::RateLimiter;
use crate::udp::{Ecn, Lane, RecvSlab, SendError, UdpSocket, Unsent};

/// Batches sent before the sockets are read again, so that reports do not wait behind data.
const SEND_TURN: usize = 4;
/// Receive calls per lane before the other lanes and the reports are served.
const RECEIVE_TURN: usize = 4;
/// Maximum age of the published counters.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(20);
/// How often the buffers are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum time for the close messages of a flow.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Turns in a row in which the engine asks for another one at once although nothing was sent or
/// received. After them the thread pauses, so that an error of the engine does not make it spin.
const EMPTY_TURNS: u32 = 8;
/// Pieces of the feedback channel that are read per turn.
const CHANNEL_TURN: usize = 16;
/// When a full queue of the feedback channel is tried again.
const CHANNEL_RETRY: Duration = Duration::from_millis(5);
/// The pause after [`EMPTY_TURNS`].
const EMPTY_TURNS_PAUSE: Duration = Duration::from_micros(50);
/// Maximum sleep; no function depends on it.
const MAX_SLEEP: Duration = Duration::from_secs(1);

pub(super) struct Driver<P, Q> {
    lanes: Vec<Lane>,
    flow: Flow,
    payload: P,
    placement: Q,
    inbox: Receiver<Command>,
    /// The rate limit, if there is one.
    limiter: Option<RateLimiter>,
    sleeper: WakeReceiver,
    classifier: LossClassifier,
    /// The feedback channel, and whether it has to wait.
    line: Option<ChannelEnd>,
    held_back: bool,
    board: Arc<Mutex<FlowSnapshot>>,
    slab: RecvSlab,
    out: Vec<u8>,
    unsent: Option<Unsent>,
    io: IoStats,
    published: Time,
    looked: Time,
    buffer_watch: BufferWatch,
    /// Something was sent or received since the counters were published.
    dirty: bool,
    /// Turns in a row without anything sent or received.
    empty_turns: u32,
    /// When the thread of a closing flow ends at the latest.
    closing: Option<Time>,
}

impl<P: Payload, Q: Placement> Driver<P, Q> {
    pub(super) fn new(
        sockets: Vec<UdpSocket>,
        (flow, limiter): (Flow, Option<RateLimiter>),
        payload: P,
        placement: Q,
        inbox: Receiver<Command>,
        (sleeper, classifier, line): (WakeReceiver, LossClassifier, Option<ChannelEnd>),
        board: Arc<Mutex<FlowSnapshot>>,
    ) -> Self {
        let now = clock::now();
        Self {
            lanes: sockets.into_iter().map(Lane::new).collect(),
            flow,
            payload,
            placement,
            inbox,
            limiter,
            sleeper,
            classifier,
            line,
            held_back: false,
            board,
            slab: RecvSlab::new(),
            out: vec![0; BATCH_BYTES],
            unsent: None,
            io: IoStats::default(),
            published: now,
            looked: now,
            buffer_watch: BufferWatch::new(now),
            dirty: false,
            empty_turns: 0,
            closing: None,
        }
    }

    /// Runs until the end of the flow; returns the final counters.
    pub(super) fn run(mut self, events: &mut impl FnMut(FlowEvent)) -> FlowSnapshot {
        let mut bed = ThreadSleep::new();
        loop {
            self.apply_commands();
            let heard = self.read_channel();
            let now = clock::now();
            if self.flow.poll_timeout().is_some_and(|t| t <= now) {
                self.flow.handle_timeout(now);
            }
            self.deliver_verdicts();
            let done = self.io.sends + self.io.receives;
            let more = self.transmit() || heard;
            self.write_channel();
            self.emit_events(events);
            let now = clock::now();
            if self.is_over(now) {
                break;
            }
            self.check_periodically(now, events);
            let until = if more { Time::ZERO } else { self.deadline(now) };
            let blocked = self.unsent.as_ref().map(|u| u.transmit.lane);
            bed.sleep(&self.lanes, blocked, &self.sleeper, until);
            self.io.sleeps += u64::from(!more);
            for &lane in bed.readable() {
                self.receive(lane);
            }
            let worked = self.io.sends + self.io.receives > done;
            self.empty_turns = if worked { 0 } else { self.empty_turns.saturating_add(1) };
            self.dirty |= worked;
        }
        self.emit_events(events);
        self.publish(clock::now())
    }

    /// Carries out the owner's commands.
    fn apply_commands(&mut self) {
        if self.sleeper.take_wakes() {
            // The caller may have freed memory.
            self.flow.set_room(clock::now(), self.placement.room());
        }
        loop {
            match self.inbox.try_recv() {
                Ok(Command::Assign(range)) => self.flow.assign(range),
                Ok(Command::Revoke(range)) => self.flow.revoke(range),
                Ok(Command::AddPeer(lane, address)) => self.flow.add_peer(lane, address),
                Ok(Command::Log) => self.flow.enable_log(),
                Ok(Command::Close(reason)) => self.close(reason),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => return self.close(CloseReason::Abandoned),
            }
        }
    }

    /// Reads the feedback channel; true if there may be more.
    fn read_channel(&mut self) -> bool {
        let Some(line) = &mut self.line else { return false };
        for _ in 0..CHANNEL_TURN {
            match line.read() {
                ChannelRead::Bytes(bytes) => self.flow.handle_reliable(clock::now(), &bytes),
                ChannelRead::Nothing => return false,
                ChannelRead::Broken => {
                    self.close(CloseReason::Channel);
                    return false;
                }
            }
        }
        true
    }

    /// Writes pending messages to the feedback channel.
    fn write_channel(&mut self) {
        let Self { line: Some(line), flow, .. } = self else { return };
        self.held_back = line.write(|| flow.poll_reliable());
    }

    fn close(&mut self, reason: CloseReason) {
        if self.closing.is_none() {
            let now = clock::now();
            self.flow.close(now, reason);
            self.closing = Some(now + CLOSE_TIMEOUT);
        }
    }

    fn is_over(&self, now: Time) -> bool {
        self.flow.is_closed() && self.unsent.is_none() || self.closing.is_some_and(|t| t <= now)
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
            if let Some(limiter) = &self.limiter {
                self.flow.hold_until(limiter.due());
            }
            let now = clock::now();
            match self.flow.poll_transmit(now, &mut self.payload, &mut self.out) {
                Some(transmit) => {
                    if let Some(limiter) = &self.limiter {
                        limiter.charge(ByteCount(transmit.len as u64));
                    }
                    self.send(transmit, 0);
                }
                None => return false,
            }
        }
        self.unsent.is_none()
    }

    /// Sends a batch from byte `from` on. Datagrams that the system refuses count as lost.
    fn send(&mut self, transmit: Transmit, from: usize) {
        let Some(lane) = self.lanes.get_mut(usize::from(transmit.lane)) else { return };
        let ecn = (transmit.ecn & 3 != 0).then(|| Ecn::from_tos(&transmit.ecn));
        let bytes = &self.out[from..transmit.len];
        match lane.socket.send(transmit.to, bytes, transmit.segment, ecn) {
            Ok(sent) => {
                self.io.sends += 1;
                self.io.datagrams_out += sent.div_ceil(transmit.segment.max(1)) as u64;
                if sent < bytes.len() {
                    self.io.blocked += 1;
                    self.unsent = Some(Unsent { transmit, sent: from + sent });
                }
            }
            Err(SendError::Blocked) => {
                self.io.blocked += 1;
                self.unsent = Some(Unsent { transmit, sent: from });
            }
            Err(SendError::TooBig) => {
                self.io.too_big += 1;
                let size = ByteCount(transmit.segment.min(transmit.len) as u64);
                let smallest = self.io.smallest_refused.unwrap_or(size);
                self.io.smallest_refused = Some(smallest.min(size));
                self.flow.too_large(clock::now(), size);
            }
            Err(SendError::Refused(_)) => self.io.refused += 1,
        }
    }

    /// Receives the pending datagrams of a lane.
    fn receive(&mut self, index: usize) {
        let Self { lanes, flow, placement, slab, io, buffer_watch, .. } = self;
        let lane = &mut lanes[index];
        let mut dropped = false;
        for _ in 0..RECEIVE_TURN {
            match lane.socket.recv(slab) {
                Ok(0) => break,
                Ok(_) => io.receives += 1,
                Err(_) => {
                    io.receive_errors += 1;
                    break;
                }
            }
            for message in slab.messages() {
                let count = message.bytes.len().div_ceil(message.stride);
                lane.note_message(count);
                if let Some(batches) = lane.note_count(message.drops) {
                    flow.host_dropped(index as u8, batches);
                    buffer_watch.note_drops();
                    dropped = true;
                }
                io.batches_in += 1;
                io.datagrams_in += count as u64;
                buffer_watch.note_bytes(message.bytes.len());
                let input = Datagrams {
                    lane: index as u8,
                    from: message.from,
                    bytes: message.bytes,
                    stride: message.stride,
                    ecn: message.ecn.map(Ecn::bits),
                    received_at: message.received_at,
                };
                flow.handle(clock::now(), input, placement);
            }
            if !slab.was_full() {
                break;
            }
        }
        if dropped {
            self.io.drops = self.lanes.iter().map(|l| u64::from(l.dropped())).sum();
        }
    }

    /// Passes loss windows to the classifier, and its verdicts to the engine.
    fn deliver_verdicts(&mut self) {
        while let Some(window) = self.flow.poll_signature() {
            self.classifier.ask(window);
        }
        while let Some((window, verdict)) = self.classifier.verdict() {
            self.flow.on_verdict(clock::now(), &window, &verdict);
        }
    }

    /// Forwards the events of the engine.
    fn emit_events(&mut self, events: &mut impl FnMut(FlowEvent)) {
        while let Some(event) = self.flow.poll_event() {
            if matches!(event, Event::Closed(_)) && self.closing.is_none() {
                self.closing = Some(clock::now() + CLOSE_TIMEOUT);
            }
            events(FlowEvent::Flow(event));
        }
        while let Some(line) = self.flow.poll_log() {
            events(FlowEvent::Log(line));
        }
    }

    /// Periodic work: publishes counters, checks the buffers. The kernel's drop counts are read
    /// from the messages that were queued after the drops, because then the gap in the packet
    /// numbers is visible.
    fn check_periodically(&mut self, now: Time, events: &mut impl FnMut(FlowEvent)) {
        if now >= self.published + PUBLISH_INTERVAL {
            self.publish(now);
        }
        if now < self.looked + CHECK_INTERVAL {
            return;
        }
        self.looked = now;
        let sockets = self.lanes.iter().map(|l| &l.socket);
        if let Some(warning) = self.buffer_watch.check(now, sockets) {
            events(FlowEvent::Buffers(warning));
        }
    }

    fn publish(&mut self, now: Time) -> FlowSnapshot {
        (self.published, self.dirty) = (now, false);
        let offloads = || self.lanes.iter().map(|l| l.socket.offloads());
        self.io.segmentation = offloads().all(|o| o.segmentation);
        self.io.coalescing = offloads().all(|o| o.coalescing);
        (self.io.judged, self.io.judge_cpu) = self.classifier.spent();
        let (flow, io) = (self.flow.stats(), self.io.clone());
        let snapshot = FlowSnapshot { at: now, flow, io, cpu: thread::cpu() };
        *self.board.lock() = snapshot.clone();
        snapshot
    }

    /// When to stop sleeping.
    fn deadline(&self, now: Time) -> Time {
        let breath =
            if self.empty_turns < EMPTY_TURNS { Time::ZERO } else { now + EMPTY_TURNS_PAUSE };
        let engine = self.flow.poll_timeout().unwrap_or(Time::MAX).max(breath);
        let goodbye = self.closing.unwrap_or(Time::MAX);
        let publish = if self.dirty { self.published + PUBLISH_INTERVAL } else { Time::MAX };
        let again = if self.held_back { now + CHANNEL_RETRY } else { Time::MAX };
        engine.min(again).min(goodbye).min(publish).min(now + MAX_SLEEP)
    }
}

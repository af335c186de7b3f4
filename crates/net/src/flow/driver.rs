//! The loop of the network thread.

use parking_lot::Mutex;
use std::sync::Arc;

use crossbeam_channel::{Receiver, TryRecvError};
use packtrain_os::clock;
use packtrain_os::thread::{self, Bed, Sleeper};
use packtrain_proto::{
    BATCH_BYTES, CloseReason, Datagrams, Event, Flow, Payload, Placement, Transmit,
};
use packtrain_units::{ByteCount, Duration, Time};

use super::FlowEvent;
use super::beside::{Heard, Line};
use super::handle::Command;
use super::judge::Judge;
use super::stats::{FlowSnapshot, IoStats};
use super::watch::Watch;
use crate::limit::RateLimiter;
use crate::udp::{Ecn, Lane, RecvSlab, SendError, UdpSocket, Unsent};

/// Batches sent before the sockets are looked at again: reports must not wait behind data.
const SEND_TURN: usize = 4;
/// Receive calls per lane before the other lanes and the reports get their turn.
const RECEIVE_TURN: usize = 4;
/// How old the published counters may be.
const PUBLISH: Duration = Duration::from_millis(20);
/// How often the buffers are looked at.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// How long a closing flow may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(1);
/// Turns in a row in which the engine asked for another at once and nothing came of it, after
/// which it has to wait a little: a mistake there must not become a spinning thread.
const EMPTY_TURNS: u32 = 8;
/// Bytes of the channel beside the datagrams taken in a turn, in pieces of whoever reads it.
const HEAR_TURN: usize = 16;
/// When a full queue of that channel is looked at again.
const SAY_AGAIN: Duration = Duration::from_millis(5);
/// How little.
const BREATH: Duration = Duration::from_micros(50);
/// The longest sleep: nothing depends on it.
const MAX_SLEEP: Duration = Duration::from_secs(1);

pub(super) struct Driver<P, Q> {
    lanes: Vec<Lane>,
    flow: Flow,
    payload: P,
    placement: Q,
    inbox: Receiver<Command>,
    /// What it shares with other senders, if it does.
    limiter: Option<RateLimiter>,
    sleeper: Sleeper,
    judge: Judge,
    /// The channel beside the datagrams, and whether it has to wait.
    line: Option<Line>,
    held_back: bool,
    board: Arc<Mutex<FlowSnapshot>>,
    slab: RecvSlab,
    out: Vec<u8>,
    unsent: Option<Unsent>,
    io: IoStats,
    published: Time,
    looked: Time,
    watch: Watch,
    /// Something was sent or received since the counters were published.
    dirty: bool,
    /// Turns in a row without anything sent or received.
    empty_turns: u32,
    /// When a closing flow's thread ends come what may.
    closing: Option<Time>,
}

impl<P: Payload, Q: Placement> Driver<P, Q> {
    pub(super) fn new(
        sockets: Vec<UdpSocket>,
        (flow, limiter): (Flow, Option<RateLimiter>),
        payload: P,
        placement: Q,
        inbox: Receiver<Command>,
        (sleeper, judge, line): (Sleeper, Judge, Option<Line>),
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
            judge,
            line,
            held_back: false,
            board,
            slab: RecvSlab::new(),
            out: vec![0; BATCH_BYTES],
            unsent: None,
            io: IoStats::default(),
            published: now,
            looked: now,
            watch: Watch::new(now),
            dirty: false,
            empty_turns: 0,
            closing: None,
        }
    }

    /// Runs until the flow is over; gives the last counters.
    pub(super) fn run(mut self, events: &mut impl FnMut(FlowEvent)) -> FlowSnapshot {
        let mut bed = Bed::new();
        loop {
            self.obey();
            let heard = self.hear();
            let now = clock::now();
            if self.flow.poll_timeout().is_some_and(|t| t <= now) {
                self.flow.handle_timeout(now);
            }
            self.pass_judgement();
            let done = self.io.sends + self.io.receives;
            let more = self.transmit() || heard;
            self.say();
            self.tell(events);
            let now = clock::now();
            if self.is_over(now) {
                break;
            }
            self.look_around(now, events);
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
        self.tell(events);
        self.publish(clock::now())
    }

    /// Does what the owner asked.
    fn obey(&mut self) {
        if self.sleeper.take_calls() {
            // Whoever called may have freed room.
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

    /// Takes what came by the channel beside the datagrams; true when there may be more.
    fn hear(&mut self) -> bool {
        let Some(line) = &mut self.line else { return false };
        for _ in 0..HEAR_TURN {
            match line.hear() {
                Heard::Bytes(bytes) => self.flow.handle_reliable(clock::now(), &bytes),
                Heard::Nothing => return false,
                Heard::Broken => {
                    self.close(CloseReason::Channel);
                    return false;
                }
            }
        }
        true
    }

    /// Passes on what is to go by that channel.
    fn say(&mut self) {
        let Self { line: Some(line), flow, .. } = self else { return };
        self.held_back = line.say(|| flow.poll_reliable());
    }

    fn close(&mut self, reason: CloseReason) {
        if self.closing.is_none() {
            let now = clock::now();
            self.flow.close(now, reason);
            self.closing = Some(now + GOODBYE);
        }
    }

    fn is_over(&self, now: Time) -> bool {
        self.flow.is_closed() && self.unsent.is_none() || self.closing.is_some_and(|t| t <= now)
    }

    /// Sends what may leave now; true when there may be more.
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

    /// Sends a batch from byte `from` on. What the system refuses is lost, as if on the way.
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

    /// Takes what waits at a lane's socket.
    fn receive(&mut self, index: usize) {
        let Self { lanes, flow, placement, slab, io, watch, .. } = self;
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
                    watch.note_drops();
                    dropped = true;
                }
                io.batches_in += 1;
                io.datagrams_in += count as u64;
                watch.note_bytes(message.bytes.len());
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

    /// Has losses judged, and tells the engine what came of it.
    fn pass_judgement(&mut self) {
        while let Some(window) = self.flow.poll_signature() {
            self.judge.ask(window);
        }
        while let Some((window, verdict)) = self.judge.verdict() {
            self.flow.on_verdict(clock::now(), &window, &verdict);
        }
    }

    /// Passes on what the engine has to tell.
    fn tell(&mut self, events: &mut impl FnMut(FlowEvent)) {
        while let Some(event) = self.flow.poll_event() {
            if matches!(event, Event::Closed(_)) && self.closing.is_none() {
                self.closing = Some(clock::now() + GOODBYE);
            }
            events(FlowEvent::Flow(event));
        }
        while let Some(line) = self.flow.poll_log() {
            events(FlowEvent::Log(line));
        }
    }

    /// Work by the clock: publishing counters, looking at the buffers. The kernel's counts of
    /// drops come with what was queued behind them, which is when the gap shows their size.
    fn look_around(&mut self, now: Time, events: &mut impl FnMut(FlowEvent)) {
        if now >= self.published + PUBLISH {
            self.publish(now);
        }
        if now < self.looked + CHECK_INTERVAL {
            return;
        }
        self.looked = now;
        let sockets = self.lanes.iter().map(|l| &l.socket);
        if let Some(warning) = self.watch.look(now, sockets) {
            events(FlowEvent::Buffers(warning));
        }
    }

    fn publish(&mut self, now: Time) -> FlowSnapshot {
        (self.published, self.dirty) = (now, false);
        let offloads = || self.lanes.iter().map(|l| l.socket.offloads());
        self.io.segmentation = offloads().all(|o| o.segmentation);
        self.io.coalescing = offloads().all(|o| o.coalescing);
        (self.io.judged, self.io.judge_cpu) = self.judge.spent();
        let (flow, io) = (self.flow.stats(), self.io.clone());
        let snapshot = FlowSnapshot { at: now, flow, io, cpu: thread::cpu() };
        *self.board.lock() = snapshot.clone();
        snapshot
    }

    /// When to stop sleeping.
    fn deadline(&self, now: Time) -> Time {
        let breath = if self.empty_turns < EMPTY_TURNS { Time::ZERO } else { now + BREATH };
        let engine = self.flow.poll_timeout().unwrap_or(Time::MAX).max(breath);
        let goodbye = self.closing.unwrap_or(Time::MAX);
        let publish = if self.dirty { self.published + PUBLISH } else { Time::MAX };
        let again = if self.held_back { now + SAY_AGAIN } else { Time::MAX };
        engine.min(again).min(goodbye).min(publish).min(now + MAX_SLEEP)
    }
}

//! One UDP socket and the connections on it.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use packtrain_cc::{ControllerConfig, Signal, Signals, build};
use packtrain_proto::{Datagrams, Transmit};
use packtrain_units::{ByteCount, SeqNo, Time};

use super::connection::{Connection, header};
use super::cookie::TokenGenerator;
use super::ended::EndedConnections;
use super::error::OpenError;
use super::event::Event;
use super::handshake::{Caller, Terms, VERSION, matches};
use super::options::{Options, limits};
use super::wire::{Control, Handshake, Packet, REJECT_MISMATCH, Request};

/// The secret from which cookies, ids and first sequence numbers are derived.
#[derive(Clone)]
pub struct Secret(pub [u8; 32]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The local id of a connection, which its peer puts into every packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SocketId(u32);

impl SocketId {
    /// The number on the wire.
    pub fn get(self) -> u32 {
        self.0
    }
}

#[derive(Debug)]
struct Listener {
    options: Options,
    backlog: usize,
    waiting: VecDeque<u32>,
}

/// An answer to an unauthenticated caller.
#[derive(Debug)]
struct Answer {
    to: SocketAddr,
    bytes: [u8; 64],
    len: usize,
}

/// The connections on one UDP socket.
#[derive(Debug)]
pub struct Endpoint {
    tokens: TokenGenerator,
    connections: BTreeMap<u32, Box<Connection>>,
    /// Accepted connections by caller.
    callers: BTreeMap<(SocketAddr, u32), u32>,
    /// Ends of a rendezvous, so that calls of unknown peers do not require a search of all
    /// connections.
    rendezvous_ids: Vec<u32>,
    listener: Option<Listener>,
    ended: EndedConnections,
    answers: VecDeque<Answer>,
    /// Connections with events.
    noted: VecDeque<u32>,
    /// The last one that sent, for round-robin scheduling.
    turn: u32,
    bad_datagrams: u64,
    refused_calls: u64,
    /// The last known time.
    now: Time,
}

impl Endpoint {
    /// An endpoint without connections.
    pub fn new(secret: &Secret) -> Self {
        Self {
            tokens: TokenGenerator::new(&secret.0),
            connections: BTreeMap::new(),
            callers: BTreeMap::new(),
            rendezvous_ids: Vec::new(),
            listener: None,
            ended: EndedConnections::default(),
            answers: VecDeque::new(),
            noted: VecDeque::new(),
            turn: 0,
            bad_datagrams: 0,
            refused_calls: 0,
            now: Time::ZERO,
        }
    }

    /// Calls `to`.
    ///
    /// # Errors
    /// Invalid options, or too many connections.
    pub fn connect(
        &mut self,
        now: Time,
        to: SocketAddr,
        options: &Options,
    ) -> Result<SocketId, OpenError> {
        check(now, options)?;
        if self.connections.len() >= limits::CONNECTIONS {
            return Err(OpenError::TooMany);
        }
        let (id, isn) = (self.free_id(), self.tokens.isn());
        Ok(self.call(now, to, options, (id, isn)))
    }

    /// Calls from socket `id`, with first sequence number `isn`.
    pub(super) fn call(
        &mut self,
        now: Time,
        to: SocketAddr,
        options: &Options,
        (id, isn): (u32, SeqNo),
    ) -> SocketId {
        let seed = self.tokens.seed();
        let caller = Caller::new(now, to, options, isn, id);
        let connection = Connection::calling(seed, to, options.clone(), caller);
        self.connections.insert(id, Box::new(connection));
        if options.rendezvous {
            self.rendezvous_ids.push(id);
        }
        SocketId(id)
    }

    /// Accepts calls, of which at most `backlog` wait for [`Endpoint::accept`].
    ///
    /// # Errors
    /// Invalid options, or a second listener.
    pub fn listen(&mut self, options: Options, backlog: usize) -> Result<(), OpenError> {
        check(Time::ZERO, &options)?;
        if self.listener.is_some() {
            return Err(OpenError::Listening);
        }
        let backlog = backlog.clamp(1, limits::BACKLOG);
        self.listener = Some(Listener { options, backlog, waiting: VecDeque::new() });
        Ok(())
    }

    /// Stops accepting calls. Waiting connections stay until they are closed.
    pub fn stop_listening(&mut self) {
        self.listener = None;
    }

    /// The next incoming connection.
    pub fn accept(&mut self) -> Option<SocketId> {
        self.listener.as_mut()?.waiting.pop_front().map(SocketId)
    }

    /// A connection.
    pub fn get(&self, id: SocketId) -> Option<&Connection> {
        self.connections.get(&id.0).map(|connection| &**connection)
    }

    /// A connection, mutable. Poll the endpoint afterwards.
    pub fn get_mut(&mut self, id: SocketId) -> Option<&mut Connection> {
        self.connections.get_mut(&id.0).map(|connection| &mut **connection)
    }

    /// The ids of all connections.
    pub fn ids(&self) -> impl Iterator<Item = SocketId> + '_ {
        self.connections.keys().copied().map(SocketId)
    }

    /// Datagrams that belong to no connection, or were invalid before their connection was known.
    pub fn bad_datagrams(&self) -> u64 {
        self.bad_datagrams
    }

    /// Calls refused because there was no room.
    pub fn refused_calls(&self) -> u64 {
        self.refused_calls
    }

    /// Closes a connection: it takes no more data, and ends when all is acknowledged or its linger
    /// time has passed. One that has already ended is removed at once.
    pub fn close(&mut self, now: Time, id: SocketId) {
        self.finish(now, id, Connection::close);
    }

    /// Closes a connection without waiting for acknowledgements.
    pub fn abort(&mut self, now: Time, id: SocketId) {
        self.finish(now, id, Connection::abort);
    }

    fn finish(&mut self, now: Time, id: SocketId, close: fn(&mut Connection, Time)) {
        self.now = now;
        let Some(connection) = self.connections.get_mut(&id.0) else { return };
        let over = connection.is_over();
        close(connection, now);
        if over {
            self.remove(id.0);
        } else {
            self.note(id.0);
        }
    }

    /// Handles a received batch. Invalid datagrams are counted and dropped. Poll afterwards.
    pub fn handle(&mut self, now: Time, input: Datagrams<'_>) {
        self.now = now;
        let Datagrams { from, bytes, stride, received_at, .. } = input;
        let mut current = 0;
        for datagram in bytes.chunks(stride.max(1)) {
            let Some(packet) = header(datagram) else {
                self.bad_datagrams += 1;
                continue;
            };
            let id = packet.destination();
            if id != current {
                self.finish_batch(now, received_at, current);
                current = id;
            }
            match self.connections.get_mut(&id).filter(|connection| connection.is_peer(from)) {
                Some(connection) if packet.is_control() && packet.kind().0 == 0 => {
                    match Handshake::parse(packet.body()) {
                        Ok(handshake) => connection.on_handshake(now, &handshake),
                        Err(_) => self.bad_datagrams += 1,
                    }
                }
                Some(connection) => connection.on_packet(now, &packet),
                None => self.on_stranger(now, from, &packet),
            }
        }
        self.finish_batch(now, received_at, current);
    }

    fn finish_batch(&mut self, now: Time, at: Time, id: u32) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.finish_batch(now, at);
            self.note(id);
        }
    }

    /// Lists a connection that may have events.
    fn note(&mut self, id: u32) {
        if self.connections.get_mut(&id).is_some_and(|connection| connection.note()) {
            self.noted.push_back(id);
        }
    }

    /// Handles a packet for socket 0, or for an unknown one.
    fn on_stranger(&mut self, now: Time, from: SocketAddr, packet: &Packet<&[u8]>) {
        let id = packet.destination();
        let control = Control::parse(packet);
        // A shutdown is not answered: two ends that have both ended would answer each other for
        // ever.
        if control == Ok(Control::Shutdown) && self.ended.is_peer(id, from) {
            return;
        }
        if control != Ok(Control::Shutdown)
            && let Some(peer_id) = self.ended.on_datagram(now, id, from)
        {
            self.answer(from, Control::Shutdown, peer_id);
            return;
        }
        let handshake = match control {
            Ok(Control::Handshake(handshake)) if id == 0 => handshake,
            _ => {
                self.bad_datagrams += 1;
                return;
            }
        };
        if let Some(id) = self.rendezvous_with(from) {
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.on_handshake(now, &handshake);
                self.note(id);
            }
            return;
        }
        self.on_call(now, from, &handshake);
    }

    /// Our end of a rendezvous with this address, if one waits.
    fn rendezvous_with(&self, from: SocketAddr) -> Option<u32> {
        let awaits = |id: &&u32| self.connections.get(id).is_some_and(|c| c.awaits(from));
        self.rendezvous_ids.iter().find(awaits).copied()
    }

    /// Handles a caller's handshake. No state is kept before the caller has returned its cookie,
    /// and no answer is longer than its request.
    fn on_call(&mut self, now: Time, from: SocketAddr, call: &Handshake) {
        let known = self.callers.get(&(from, call.socket)).copied();
        if let Some(id) = known {
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.on_handshake(now, call);
            }
            return;
        }
        let Some(listener) = &self.listener else {
            self.bad_datagrams += 1;
            return;
        };
        let peer = from.ip().to_canonical();
        match call.request {
            Request::Induction => {
                let cookie = self.tokens.cookie(now, from, call.socket);
                let answer = Handshake { version: VERSION, cookie, peer, ..*call };
                self.answer(from, Control::Handshake(answer), call.socket);
            }
            Request::Conclusion => {
                if !self.tokens.is_valid(now, from, call.socket, call.cookie) {
                    self.bad_datagrams += 1;
                } else if !matches(listener.options.kind, call) {
                    self.reject(from, call);
                } else {
                    self.take_call(now, from, call);
                }
            }
            _ => self.bad_datagrams += 1,
        }
    }

    fn reject(&mut self, from: SocketAddr, call: &Handshake) {
        let request = Request::Reject(REJECT_MISMATCH);
        let answer = Handshake { request, peer: from.ip().to_canonical(), ..*call };
        self.answer(from, Control::Handshake(answer), call.socket);
    }

    fn take_call(&mut self, now: Time, from: SocketAddr, call: &Handshake) {
        let full = self.connections.len() >= limits::CONNECTIONS;
        let Some(listener) = &self.listener else { return };
        if full || listener.waiting.len() >= listener.backlog {
            // The client calls again; there may be room then.
            self.refused_calls += 1;
            return;
        }
        let options = listener.options.clone();
        // A stock client accepts only its own first number for the server's.
        let Ok(terms) = Terms::of(&options, call.isn, call) else {
            self.reject(from, call);
            return;
        };
        let (id, seed) = (self.free_id(), self.tokens.seed());
        let answer = Handshake {
            mss: call.mss.min(options.mss.get() as u32),
            flow_window: terms.recv_window,
            socket: id,
            peer: from.ip().to_canonical(),
            ..*call
        };
        let accepted = Connection::accepted(now, (id, seed), from, options, terms, answer);
        let Some(connection) = accepted else { return };
        self.connections.insert(id, Box::new(connection));
        self.callers.insert((from, call.socket), id);
        if let Some(listener) = &mut self.listener {
            listener.waiting.push_back(id);
        }
        self.note(id);
    }

    fn answer(&mut self, to: SocketAddr, control: Control<'_>, destination: u32) {
        if self.answers.len() >= limits::ANSWERS {
            return;
        }
        let mut bytes = [0; 64];
        if let Some(len) = control.write(destination, &mut bytes) {
            self.answers.push_back(Answer { to, bytes, len });
        }
    }

    /// The next batch to send, written into `out`, which has at least
    /// [`BATCH_BYTES`](packtrain_proto::BATCH_BYTES). `None` means: nothing before `poll_timeout`,
    /// or before a connection is used or a packet arrives.
    pub fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit> {
        if out.len() < packtrain_proto::BATCH_BYTES {
            return None;
        }
        if let Some(answer) = self.answers.pop_front() {
            out[..answer.len].copy_from_slice(&answer.bytes[..answer.len]);
            let (to, len) = (answer.to, answer.len);
            return Some(Transmit { lane: 0, to, len, segment: len, ecn: 0 });
        }
        // Those after the last that sent, then those before it.
        let (behind, before) = (self.turn.saturating_add(1).., ..=self.turn);
        let mut found = None;
        for (id, connection) in self.connections.range_mut(behind) {
            if let Some(written) = connection.poll_transmit(now, out) {
                found = Some((*id, connection.peer(), written));
                break;
            }
        }
        if found.is_none() {
            for (id, connection) in self.connections.range_mut(before) {
                if let Some(written) = connection.poll_transmit(now, out) {
                    found = Some((*id, connection.peer(), written));
                    break;
                }
            }
        }
        let (id, to, written) = found?;
        self.turn = id;
        Some(Transmit { lane: 0, to, len: written.len, segment: written.segment, ecn: 0 })
    }

    /// Runs the timers that are due; call it at the time that `poll_timeout` gave.
    pub fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        for (id, connection) in &mut self.connections {
            connection.handle_timeout(now);
            if connection.note() {
                self.noted.push_back(*id);
            }
        }
    }

    /// When to call `handle_timeout` and then `poll_transmit`. Valid after `poll_transmit` returned
    /// `None`.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.connections.values().filter_map(|connection| connection.poll_timeout()).min()
    }

    /// The next event for the owner. A connection that was closed here is removed with its
    /// [`Event::Ended`].
    pub fn poll_event(&mut self) -> Option<(SocketId, Event)> {
        loop {
            let id = *self.noted.front()?;
            let connection = self.connections.get_mut(&id);
            if let Some(event) = connection.and_then(|connection| connection.take_event()) {
                if matches!(event, Event::Ended(_)) && self.is_discarded(id) {
                    self.remove(id);
                }
                return Some((SocketId(id), event));
            }
            self.noted.pop_front();
        }
    }

    fn is_discarded(&self, id: u32) -> bool {
        self.connections.get(&id).is_some_and(|connection| connection.is_discarded())
    }

    fn remove(&mut self, id: u32) {
        let Some(connection) = self.connections.remove(&id) else { return };
        self.callers.retain(|_, known| *known != id);
        self.rendezvous_ids.retain(|known| *known != id);
        if let Some(peer_id) = connection.peer_id() {
            if connection.owes_shutdown() {
                self.answer(connection.peer(), Control::Shutdown, peer_id);
            }
            self.ended.insert(self.now, id, connection.peer(), peer_id);
        }
    }

    pub(super) fn free_id(&mut self) -> u32 {
        loop {
            let id = self.tokens.id();
            if id != 0 && !self.connections.contains_key(&id) && !self.ended.contains(id) {
                return id;
            }
        }
    }
}

/// Refuses invalid options before anything is created.
fn check(now: Time, options: &Options) -> Result<(), OpenError> {
    options.check()?;
    let config = ControllerConfig {
        mtu: ByteCount(Options::payload(options.mss) as u64 + 16),
        seed: 0,
        now,
        ceiling: options.max_rate,
        rtt: None,
    };
    let controller = build(&options.cc, &config)?;
    // The signals that UDT's messages carry.
    let signals = [Signal::Rtt, Signal::ArrivalRate, Signal::Capacity, Signal::Losses];
    let provided =
        Signals::of(&[&signals[..], &[Signal::DeliveryRate, Signal::DelayTrend]].concat());
    if provided.covers(controller.needs()) {
        Ok(())
    } else {
        Err(OpenError::Signals(options.cc.clone()))
    }
}

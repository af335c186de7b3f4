//! One UDP socket and the connections on it.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use packtrain_cc::{ControllerConfig, Signal, Signals, build};
use packtrain_proto::{Datagrams, Transmit};
use packtrain_units::{ByteCount, SeqNo, Time};

use super::connection::{Connection, header};
use super::cookie::Mint;
use super::error::OpenError;
use super::event::Event;
use super::handshake::{Caller, Terms, VERSION, matches};
use super::options::{Options, limits};
use super::tombs::Tombs;
use super::wire::{Control, Handshake, Packet, REJECT_MISMATCH, Request};

/// What strangers must not know: cookies, ids and first sequence numbers are made from it.
#[derive(Clone)]
pub struct Secret(pub [u8; 32]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Our number of a connection, which its peer puts into every packet.
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

/// An answer to a stranger.
#[derive(Debug)]
struct Answer {
    to: SocketAddr,
    bytes: [u8; 64],
    len: usize,
}

/// The connections on one UDP socket.
#[derive(Debug)]
pub struct Endpoint {
    mint: Mint,
    connections: BTreeMap<u32, Box<Connection>>,
    /// Accepted ones by who called.
    callers: BTreeMap<(SocketAddr, u32), u32>,
    /// Ends of a rendezvous, so that strangers' calls cost no look at all connections.
    meetings: Vec<u32>,
    listener: Option<Listener>,
    tombs: Tombs,
    answers: VecDeque<Answer>,
    /// Connections with news.
    noted: VecDeque<u32>,
    /// The last one that sent, so that all get their turn.
    turn: u32,
    bad_datagrams: u64,
    refused_calls: u64,
    /// The last time anybody said.
    now: Time,
}

impl Endpoint {
    /// An endpoint without connections.
    pub fn new(secret: &Secret) -> Self {
        Self {
            mint: Mint::new(&secret.0),
            connections: BTreeMap::new(),
            callers: BTreeMap::new(),
            meetings: Vec::new(),
            listener: None,
            tombs: Tombs::default(),
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
    /// Options that cannot work, or too many connections.
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
        let (id, isn) = (self.free_id(), self.mint.isn());
        Ok(self.call(now, to, options, (id, isn)))
    }

    /// Calls from socket `id`, its data to be numbered from `isn` on.
    pub(super) fn call(
        &mut self,
        now: Time,
        to: SocketAddr,
        options: &Options,
        (id, isn): (u32, SeqNo),
    ) -> SocketId {
        let seed = self.mint.seed();
        let caller = Caller::new(now, to, options, isn, id);
        let connection = Connection::calling(seed, to, options.clone(), caller);
        self.connections.insert(id, Box::new(connection));
        if options.rendezvous {
            self.meetings.push(id);
        }
        SocketId(id)
    }

    /// Accepts calls, at most `backlog` of them unseen by [`Endpoint::accept`].
    ///
    /// # Errors
    /// Options that cannot work, or a second listener.
    pub fn listen(&mut self, options: Options, backlog: usize) -> Result<(), OpenError> {
        check(Time::ZERO, &options)?;
        if self.listener.is_some() {
            return Err(OpenError::Listening);
        }
        let backlog = backlog.clamp(1, limits::BACKLOG);
        self.listener = Some(Listener { options, backlog, waiting: VecDeque::new() });
        Ok(())
    }

    /// Accepts no more calls. Those that wait stay until they are closed.
    pub fn stop_listening(&mut self) {
        self.listener = None;
    }

    /// The next connection that came in.
    pub fn accept(&mut self) -> Option<SocketId> {
        self.listener.as_mut()?.waiting.pop_front().map(SocketId)
    }

    /// A connection.
    pub fn get(&self, id: SocketId) -> Option<&Connection> {
        self.connections.get(&id.0).map(|connection| &**connection)
    }

    /// A connection, to be used. Poll the endpoint afterwards.
    pub fn get_mut(&mut self, id: SocketId) -> Option<&mut Connection> {
        self.connections.get_mut(&id.0).map(|connection| &mut **connection)
    }

    /// The connections there are.
    pub fn ids(&self) -> impl Iterator<Item = SocketId> + '_ {
        self.connections.keys().copied().map(SocketId)
    }

    /// Datagrams that were for nobody here, or made no sense before it was known for whom.
    pub fn bad_datagrams(&self) -> u64 {
        self.bad_datagrams
    }

    /// Calls that were not taken for want of room.
    pub fn refused_calls(&self) -> u64 {
        self.refused_calls
    }

    /// Closes a connection: it takes no more and ends when all is acknowledged or its linger
    /// time is over. One that has ended is gone at once.
    pub fn close(&mut self, now: Time, id: SocketId) {
        self.finish(now, id, Connection::close);
    }

    /// Closes a connection without waiting for what is not acknowledged.
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

    /// A batch came in. Anything that is not understood is counted and dropped. Poll afterwards.
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

    /// Notes that a connection may have news.
    fn note(&mut self, id: u32) {
        if self.connections.get_mut(&id).is_some_and(|connection| connection.note()) {
            self.noted.push_back(id);
        }
    }

    /// A packet for socket 0, or for none of ours.
    fn on_stranger(&mut self, now: Time, from: SocketAddr, packet: &Packet<&[u8]>) {
        let id = packet.destination();
        let control = Control::parse(packet);
        // A farewell needs no answer: two ends that are both gone would call for ever.
        if control == Ok(Control::Shutdown) && self.tombs.knows(id, from) {
            return;
        }
        if control != Ok(Control::Shutdown)
            && let Some(peer_id) = self.tombs.knock(now, id, from)
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
        if let Some(id) = self.meeting(from) {
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.on_handshake(now, &handshake);
                self.note(id);
            }
            return;
        }
        self.on_call(now, from, &handshake);
    }

    /// Our end of a rendezvous with this address, if one is waited for.
    fn meeting(&self, from: SocketAddr) -> Option<u32> {
        let meets = |id: &&u32| self.connections.get(id).is_some_and(|c| c.meets(from));
        self.meetings.iter().find(meets).copied()
    }

    /// A caller's handshake. Nothing is kept of one before it has shown its cookie, and no
    /// answer is longer than its question.
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
                let cookie = self.mint.cookie(now, from, call.socket);
                let answer = Handshake { version: VERSION, cookie, peer, ..*call };
                self.answer(from, Control::Handshake(answer), call.socket);
            }
            Request::Conclusion => {
                if !self.mint.knows(now, from, call.socket, call.cookie) {
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
            // It calls again; there may be room then.
            self.refused_calls += 1;
            return;
        }
        let options = listener.options.clone();
        // A stock client takes only its own first number for the server's.
        let Ok(terms) = Terms::of(&options, call.isn, call) else {
            self.reject(from, call);
            return;
        };
        let (id, seed) = (self.free_id(), self.mint.seed());
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
    /// [`BATCH_BYTES`](packtrain_proto::BATCH_BYTES). None: nothing before `poll_timeout`, or before a
    /// connection is used or something arrives.
    pub fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit> {
        if out.len() < packtrain_proto::BATCH_BYTES {
            return None;
        }
        if let Some(answer) = self.answers.pop_front() {
            out[..answer.len].copy_from_slice(&answer.bytes[..answer.len]);
            let (to, len) = (answer.to, answer.len);
            return Some(Transmit { lane: 0, to, len, segment: len, ecn: 0 });
        }
        // Those behind the last that sent, then those before it.
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

    /// The instant of `poll_timeout` came.
    pub fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        for (id, connection) in &mut self.connections {
            connection.handle_timeout(now);
            if connection.note() {
                self.noted.push_back(*id);
            }
        }
    }

    /// When `handle_timeout` and then `poll_transmit` are to be called. Valid after
    /// `poll_transmit` gave none.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.connections.values().filter_map(|connection| connection.poll_timeout()).min()
    }

    /// The next thing the owner should know. A connection that was closed here is gone with its
    /// [`Event::Ended`].
    pub fn poll_event(&mut self) -> Option<(SocketId, Event)> {
        loop {
            let id = *self.noted.front()?;
            let connection = self.connections.get_mut(&id);
            if let Some(event) = connection.and_then(|connection| connection.take_news()) {
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
        self.meetings.retain(|known| *known != id);
        if let Some(peer_id) = connection.peer_id() {
            if connection.owes_farewell() {
                self.answer(connection.peer(), Control::Shutdown, peer_id);
            }
            self.tombs.bury(self.now, id, connection.peer(), peer_id);
        }
    }

    pub(super) fn free_id(&mut self) -> u32 {
        loop {
            let id = self.mint.id();
            if id != 0 && !self.connections.contains_key(&id) && !self.tombs.holds(id) {
                return id;
            }
        }
    }
}

/// Refuses options that cannot work before anything is made of them.
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
    // What UDT's messages carry.
    let signals = [Signal::Rtt, Signal::ArrivalRate, Signal::Capacity, Signal::Losses];
    let provided =
        Signals::of(&[&signals[..], &[Signal::DeliveryRate, Signal::DelayTrend]].concat());
    if provided.covers(controller.needs()) {
        Ok(())
    } else {
        Err(OpenError::Signals(options.cc.clone()))
    }
}

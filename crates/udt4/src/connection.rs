//! One connection: calling, open, or ended.

mod arrive;
mod leave;
mod life;
mod link;
mod stall_repair;

use std::net::SocketAddr;

use packtrain_units::{ByteCount, Duration, Time};

use self::link::Link;
use super::error::{ConnectError, EndReason, SocketError};
use super::event::Event;
use super::handshake::{Caller, Outcome, Terms};
use super::options::{Kind, Options};
use super::perf::Perf;
use super::wire::{Control, Handshake, Packet, Request};

/// How often the answer to a call is repeated while data is held back. A stock client that receives
/// another packet before this answer considers itself connected although it is not.
const ANSWERS: u8 = 2;
/// Interval of these repetitions.
const ANSWER_GAP: Duration = Duration::from_millis(3);

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The handshake is in progress.
    Connecting,
    /// Data may pass.
    Open,
    /// Closed here; buffered data is still being delivered.
    Closing,
    /// Ended; data that has arrived may still be read.
    Ended,
}

/// Events not yet reported to the owner.
#[derive(Clone, Copy, Debug, Default)]
struct PendingEvents {
    connected: bool,
    incoming: bool,
    readable: bool,
    writable: bool,
    ended: bool,
}

#[derive(Debug)]
enum Stage {
    Calling(Box<Caller>),
    Open,
    /// All data below `received_to` must still be acknowledged: otherwise the peer would not know that
    /// its data has arrived.
    Closing {
        until: Time,
        received_to: u64,
    },
    /// Shutdown packets are being sent: `shutdowns_sent` so far, the next at `next`.
    Parting {
        reason: EndReason,
        shutdowns_sent: usize,
        next: Time,
    },
    Ended,
}

/// One end of a connection.
#[derive(Debug)]
pub struct Connection {
    peer: SocketAddr,
    options: Options,
    seed: u64,
    stage: Stage,
    link: Option<Box<Link>>,
    /// A handshake to send (again) after the connection is open, and the one to repeat.
    answer: Option<Handshake>,
    last_answer: Option<Handshake>,
    /// Unrequested repetitions of the answer that remain, and the time of the next.
    answers: (u8, Time),
    reason: Option<EndReason>,
    /// Whether one more shutdown must be sent: in answer to the peer's, or to a peer that missed
    /// ours.
    shutdown_due: bool,
    pending_events: PendingEvents,
    /// Whether the owner was notified that there is data to read.
    reported_readable: bool,
    wants_room: bool,
    /// Closed by the owner, who will not use it again.
    discarded: bool,
    /// Whether it is in the endpoint's list of connections with events.
    noted: bool,
}

impl Connection {
    /// Creates a calling connection.
    pub(super) fn calling(seed: u64, peer: SocketAddr, options: Options, caller: Caller) -> Self {
        Self {
            peer,
            options,
            seed,
            stage: Stage::Calling(Box::new(caller)),
            link: None,
            answer: None,
            last_answer: None,
            answers: (0, Time::ZERO),
            reason: None,
            shutdown_due: false,
            pending_events: PendingEvents::default(),
            reported_readable: false,
            wants_room: false,
            discarded: false,
            noted: false,
        }
    }

    /// Creates a connection that a listener accepted, and that sends `answer`.
    pub(super) fn accepted(
        now: Time,
        (id, seed): (u32, u64),
        peer: SocketAddr,
        options: Options,
        terms: Terms,
        answer: Handshake,
    ) -> Option<Self> {
        let caller = Caller::new(now, peer, &options, terms.isn, id);
        let mut connection = Self::calling(seed, peer, options, caller);
        connection.open(now, terms)?;
        if let Some(link) = &mut connection.link {
            link.wait_for_peer(now);
        }
        connection.pending_events = PendingEvents { incoming: true, ..PendingEvents::default() };
        connection.answer = Some(answer);
        connection.last_answer = Some(answer);
        connection.answers = (ANSWERS, now + ANSWER_GAP);
        Some(connection)
    }

    fn open(&mut self, now: Time, terms: Terms) -> Option<()> {
        let mut link = Link::new(now, self.seed, &self.options, terms)?;
        if let Stage::Calling(caller) = &self.stage
            && caller.is_rendezvous()
        {
            link.wait_for_peer(now);
        }
        self.link = Some(Box::new(link));
        self.stage = Stage::Open;
        self.pending_events.connected = true;
        Some(())
    }

    /// The state.
    pub fn status(&self) -> Status {
        match self.stage {
            Stage::Calling(_) => Status::Connecting,
            Stage::Open => Status::Open,
            Stage::Closing { .. } | Stage::Parting { .. } => Status::Closing,
            Stage::Ended => Status::Ended,
        }
    }

    /// Why it ended, once it has.
    pub fn end_reason(&self) -> Option<&EndReason> {
        self.reason.as_ref()
    }

    /// The peer's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The peer's socket id, once known.
    pub(crate) fn peer_id(&self) -> Option<u32> {
        self.link.as_ref().map(|link| link.peer_id)
    }

    /// The requested options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Stream or messages.
    pub fn kind(&self) -> Kind {
        self.options.kind
    }

    /// Payload bytes of a full packet, as negotiated.
    pub fn payload(&self) -> ByteCount {
        let asked = Options::payload(self.options.mss);
        ByteCount(self.link.as_ref().map_or(asked, |link| link.payload) as u64)
    }

    /// Bytes to send that the peer has not acknowledged.
    pub fn unacknowledged(&self) -> ByteCount {
        self.link.as_ref().map_or(ByteCount(0), |link| link.outgoing.bytes())
    }

    /// Bytes that arrived and were not read; of a stream, including those behind a gap.
    pub fn received(&self) -> ByteCount {
        self.link.as_ref().map_or(ByteCount(0), |link| link.incoming.bytes())
    }

    /// Whether bytes wait for their first transmission. The owner need not poll the endpoint because
    /// of more bytes then: the timers of the connection, or packets of the peer, cause that.
    pub fn has_unsent(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.outgoing.fresh(link.sender.next()) > 0)
    }

    /// Whether a read would return data.
    pub fn is_readable(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.readable())
    }

    /// Takes bytes of a stream to send; returns how many. 0 means that the buffer is full;
    /// [`Event::Writable`] follows when there is room.
    ///
    /// # Errors
    /// The connection is not open, or carries messages.
    pub fn send(&mut self, bytes: &[u8]) -> Result<usize, SocketError> {
        let link = self.sending(Kind::Stream)?;
        let taken = link.outgoing.write(link.sender.next(), bytes);
        // Another writer may already wait, or one may wait for room that this call has used up.
        let full = link.outgoing.room() == ByteCount::ZERO;
        self.wants_room |= taken < bytes.len() || full;
        Ok(taken)
    }

    /// Takes a whole message to send, or nothing if there is no room now. A message that is not
    /// acknowledged within `ttl` is dropped. One sent `in_order` is not delivered before earlier
    /// ones.
    ///
    /// # Errors
    /// The connection is not open or carries a stream, or the message is larger than the buffer.
    pub fn send_message(
        &mut self,
        now: Time,
        bytes: &[u8],
        ttl: Option<Duration>,
        in_order: bool,
    ) -> Result<bool, SocketError> {
        let link = self.sending(Kind::Datagram)?;
        if bytes.is_empty() {
            return Ok(true);
        }
        if !link.outgoing.can_hold(bytes.len()) {
            return Err(SocketError::TooLarge);
        }
        let taken = link.outgoing.write_message(bytes, ttl.map(|ttl| now + ttl), in_order);
        let full = link.outgoing.room() == ByteCount::ZERO;
        self.wants_room |= !taken || full;
        Ok(taken)
    }

    /// Copies received bytes of a stream into `out`; returns how many. 0 means that there is no
    /// data; [`Event::Readable`] follows when there is.
    ///
    /// # Errors
    /// The connection has ended and everything was read, or it carries messages.
    pub fn recv(&mut self, now: Time, out: &mut [u8]) -> Result<usize, SocketError> {
        let link = self.receiving(Kind::Stream)?;
        let got = link.read(now, |buffer, next| buffer.read(next, out));
        self.after_read(got, out.len())
    }

    /// Discards received bytes of a stream, at most `most`; returns how many. 0 as for
    /// [`Self::recv`].
    ///
    /// # Errors
    /// As for [`Self::recv`].
    pub fn skip(&mut self, now: Time, most: usize) -> Result<usize, SocketError> {
        let link = self.receiving(Kind::Stream)?;
        let got = link.read(now, |buffer, next| buffer.skip(next, most));
        self.after_read(got, most)
    }

    /// Copies the next complete message into `out` and returns its length; `None` if no message is
    /// complete. Bytes that do not fit are lost.
    ///
    /// # Errors
    /// The connection has ended and everything was read, it carries a stream, or the message was
    /// longer than `out`.
    pub fn recv_message(
        &mut self,
        now: Time,
        out: &mut [u8],
    ) -> Result<Option<usize>, SocketError> {
        let link = self.receiving(Kind::Datagram)?;
        let got = link.read(now, |buffer, next| buffer.read_message(next, out));
        let Some(len) = got else { return self.after_read(0, 1).map(|_| None) };
        self.after_read(len, out.len())?;
        if len > out.len() { Err(SocketError::Short(len)) } else { Ok(Some(len)) }
    }

    fn after_read(&mut self, got: usize, asked: usize) -> Result<usize, SocketError> {
        self.reported_readable = self.is_readable();
        if got > 0 || asked == 0 {
            return Ok(got);
        }
        match (&self.stage, &self.reason) {
            (Stage::Ended, Some(reason)) => Err(SocketError::Ended(reason.clone())),
            _ => Ok(0),
        }
    }

    fn sending(&mut self, kind: Kind) -> Result<&mut Link, SocketError> {
        if self.options.kind != kind {
            return Err(SocketError::Kind);
        }
        match (&self.stage, &self.reason, &mut self.link) {
            (Stage::Calling(_), ..) => Err(SocketError::NotYet),
            (Stage::Open, _, Some(link)) => Ok(link),
            (Stage::Ended, Some(reason), _) => Err(SocketError::Ended(reason.clone())),
            _ => Err(SocketError::Closing),
        }
    }

    fn receiving(&mut self, kind: Kind) -> Result<&mut Link, SocketError> {
        if self.options.kind != kind {
            return Err(SocketError::Kind);
        }
        match (&self.stage, &self.reason, &mut self.link) {
            (Stage::Calling(_), ..) => Err(SocketError::NotYet),
            (.., Some(link)) => Ok(link),
            (_, Some(reason), None) => Err(SocketError::Ended(reason.clone())),
            (_, None, None) => Err(SocketError::NotYet),
        }
    }

    /// Statistics.
    pub fn perf(&self, now: Time) -> Perf {
        self.link.as_ref().map_or_else(Perf::default, |link| link.perf(now))
    }

    /// Its first sequence number.
    #[cfg(test)]
    pub(super) fn first_number(&self) -> packtrain_units::SeqNo {
        Link::wire_number(self.link.as_ref().map_or(0, |link| link.first))
    }

    /// Whether it has events and is not in the list yet; marks it as listed.
    pub(super) fn note(&mut self) -> bool {
        let PendingEvents { connected, incoming, readable, writable, ended } = self.pending_events;
        let pending_events = connected || incoming || readable || writable || ended;
        pending_events && !std::mem::replace(&mut self.noted, true)
    }

    /// The next event; without one, it is no longer marked as listed.
    pub(super) fn take_event(&mut self) -> Option<Event> {
        let pending_events = &mut self.pending_events;
        if std::mem::take(&mut pending_events.incoming) {
            Some(Event::Incoming)
        } else if std::mem::take(&mut pending_events.connected) {
            Some(Event::Connected)
        } else if std::mem::take(&mut pending_events.readable) {
            Some(Event::Readable)
        } else if std::mem::take(&mut pending_events.writable) {
            Some(Event::Writable)
        } else if std::mem::take(&mut pending_events.ended) {
            self.reason.clone().map(Event::Ended)
        } else {
            self.noted = false;
            None
        }
    }

    /// Whether it has ended and its owner was notified.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Ended) && !self.pending_events.ended
    }

    /// Whether its owner has closed it.
    pub(super) fn is_discarded(&self) -> bool {
        self.discarded
    }

    /// Whether a shutdown must still be sent.
    pub(super) fn owes_shutdown(&self) -> bool {
        self.shutdown_due
    }

    /// Whether a datagram from `from` may belong to this connection.
    pub(super) fn is_peer(&self, from: SocketAddr) -> bool {
        self.peer == from
    }

    /// Whether it is one end of a rendezvous that waits for this address.
    pub(super) fn awaits(&self, from: SocketAddr) -> bool {
        matches!(&self.stage, Stage::Calling(caller) if caller.awaits(from))
    }

    /// Handles a handshake.
    pub(super) fn on_handshake(&mut self, now: Time, peer: &Handshake) {
        let outcome = match &mut self.stage {
            Stage::Calling(caller) => caller.handle(now, &self.options, peer),
            Stage::Parting { .. } | Stage::Ended => return,
            // Its request was answered; the answer was lost, or is in flight.
            _ => {
                let repeat = matches!(peer.request, Request::Conclusion | Request::Rendezvous);
                self.answer = self.last_answer.filter(|_| repeat);
                return;
            }
        };
        match outcome {
            Outcome::Wait => {}
            Outcome::Done { terms, reply } => {
                let Stage::Calling(caller) = &self.stage else { return };
                self.answer = reply.map(|request| caller.with_request(request));
                // A rendezvous end that missed our last handshake asks again.
                self.last_answer =
                    caller.is_rendezvous().then(|| caller.with_request(Request::Agreement));
                if self.open(now, terms).is_none() {
                    self.end(EndReason::NotMade(ConnectError::Terms("no controller")));
                }
            }
            Outcome::Failed(error) => self.end(EndReason::NotMade(error)),
        }
    }

    /// Ends the connection, and notifies the peer if the peer knows it.
    fn part(&mut self, now: Time, reason: EndReason) {
        match self.stage {
            Stage::Parting { .. } | Stage::Ended => {}
            _ if self.link.is_none() => self.end(reason),
            _ => self.stage = Stage::Parting { reason, shutdowns_sent: 0, next: now },
        }
    }

    /// Marks the connection ended.
    fn end(&mut self, reason: EndReason) {
        if matches!(self.stage, Stage::Ended) {
            return;
        }
        self.stage = Stage::Ended;
        self.reason = Some(reason);
        self.pending_events.ended = true;
        if !std::mem::replace(&mut self.reported_readable, true) {
            self.pending_events.readable = self.link.is_some();
        }
    }

    /// Whether a repetition of the answer is due; if so, it counts as sent.
    fn repeats_answer(&mut self, now: Time) -> bool {
        let (left, next) = self.answers;
        let stands = matches!(self.stage, Stage::Open | Stage::Closing { .. });
        let due = left > 0 && now >= next && stands;
        if due {
            self.answers = (left - 1, now + ANSWER_GAP);
        }
        due
    }

    /// Writes a packet that does not belong to the link: a handshake or a shutdown.
    fn write_own(&mut self, now: Time, out: &mut [u8]) -> Option<usize> {
        if let Stage::Calling(caller) = &mut self.stage {
            let (to, handshake) = caller.poll(now)?;
            return Control::Handshake(handshake).write(to, out);
        }
        let peer_id = self.link.as_ref()?.peer_id;
        if self.repeats_answer(now) {
            self.answer = self.last_answer;
        }
        if let Some(handshake) = self.answer.take() {
            return Control::Handshake(handshake).write(peer_id, out);
        }
        let owed = std::mem::take(&mut self.shutdown_due) || self.repeats_shutdown(now);
        if owed { Control::Shutdown.write(peer_id, out) } else { None }
    }
}

/// The header of a datagram, if it is long enough.
pub(super) fn header(datagram: &[u8]) -> Option<Packet<&[u8]>> {
    Packet::new_checked(datagram).ok()
}

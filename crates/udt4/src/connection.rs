//! One connection: calling, open, ended.

mod arrive;
mod leave;
mod life;
mod link;
mod stuck;

use std::net::SocketAddr;

use packtrain_units::{ByteCount, Duration, Time};

use self::link::Link;
use super::error::{ConnectError, EndReason, SocketError};
use super::event::Event;
use super::handshake::{Caller, Outcome, Terms};
use super::options::{Kind, Options};
use super::perf::Perf;
use super::wire::{Control, Handshake, Packet, Request};

/// A stock client that hears anything else before the answer to its call believes itself connected
/// and is not: so the answer is repeated while data is held back.
const ANSWERS: u8 = 2;
/// And after such pauses.
const ANSWER_GAP: Duration = Duration::from_millis(3);

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The handshake is under way.
    Connecting,
    /// Data may pass.
    Open,
    /// Closed here; what was given to it is still being delivered.
    Closing,
    /// Over; what had arrived may still be read.
    Ended,
}

/// What the owner has not been told yet.
#[derive(Clone, Copy, Debug, Default)]
struct News {
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
    /// And all below `heard` is still to be acknowledged to the peer: else it would not know
    /// that what it sent has arrived.
    Closing {
        until: Time,
        heard: u64,
    },
    /// The peer is being told of the end, so many times already; again at `next`.
    Parting {
        reason: EndReason,
        told: usize,
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
    /// A handshake to be sent (again) after the connection stands, and the one to repeat.
    answer: Option<Handshake>,
    last_answer: Option<Handshake>,
    /// How often the answer is still repeated unasked, and when next.
    answers: (u8, Time),
    reason: Option<EndReason>,
    /// One more shutdown is to be told: an answer to the peer's, or to who did not hear ours.
    farewell: bool,
    news: News,
    /// The owner knows that there is something to read.
    told_readable: bool,
    wants_room: bool,
    /// Closed by the owner: nobody will ask for it again.
    discarded: bool,
    /// The endpoint has it in its list of those with news.
    noted: bool,
}

impl Connection {
    /// One that calls.
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
            farewell: false,
            news: News::default(),
            told_readable: false,
            wants_room: false,
            discarded: false,
            noted: false,
        }
    }

    /// One that a listener accepted, which says `answer`.
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
        connection.news = News { incoming: true, ..News::default() };
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
        self.news.connected = true;
        Some(())
    }

    /// How far it is.
    pub fn status(&self) -> Status {
        match self.stage {
            Stage::Calling(_) => Status::Connecting,
            Stage::Open => Status::Open,
            Stage::Closing { .. } | Stage::Parting { .. } => Status::Closing,
            Stage::Ended => Status::Ended,
        }
    }

    /// Why it is over, once it is.
    pub fn end_reason(&self) -> Option<&EndReason> {
        self.reason.as_ref()
    }

    /// The peer's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The peer's socket id, once known.
    pub fn peer_id(&self) -> Option<u32> {
        self.link.as_ref().map(|link| link.peer_id)
    }

    /// Its options, as they were asked for.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Stream or messages.
    pub fn kind(&self) -> Kind {
        self.options.kind
    }

    /// Payload bytes of a full packet, as agreed.
    pub fn payload(&self) -> ByteCount {
        let asked = Options::payload(self.options.mss);
        ByteCount(self.link.as_ref().map_or(asked, |link| link.payload) as u64)
    }

    /// Bytes given to be sent that the peer has not acknowledged.
    pub fn unacknowledged(&self) -> ByteCount {
        self.link.as_ref().map_or(ByteCount(0), |link| link.outgoing.bytes())
    }

    /// Bytes that arrived and were not read; of a stream, those behind a gap included.
    pub fn received(&self) -> ByteCount {
        self.link.as_ref().map_or(ByteCount(0), |link| link.incoming.bytes())
    }

    /// Whether a read would give something.
    pub fn is_readable(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.readable())
    }

    /// Takes bytes of a stream to be sent; returns how many. 0: the buffer is full;
    /// [`Event::Writable`] tells when it no longer is.
    ///
    /// # Errors
    /// A connection that is not open, or carries messages.
    pub fn send(&mut self, bytes: &[u8]) -> Result<usize, SocketError> {
        let link = self.sending(Kind::Stream)?;
        let taken = link.outgoing.write(link.sender.next(), bytes);
        // Another writer may wait already, or somebody for a buffer that this has filled.
        let full = link.outgoing.room() == ByteCount::ZERO;
        self.wants_room |= taken < bytes.len() || full;
        Ok(taken)
    }

    /// Takes a message to be sent, whole, or not at all if there is no room now. One that is not
    /// acknowledged after `ttl` is given up. One `in_order` is not delivered before earlier ones.
    ///
    /// # Errors
    /// A connection that is not open or carries a stream, or a message larger than the buffer.
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

    /// Copies bytes of a stream that arrived into `out`; returns how many. 0: nothing is there;
    /// [`Event::Readable`] tells when something is.
    ///
    /// # Errors
    /// The connection is over and everything was read, or it carries messages.
    pub fn recv(&mut self, now: Time, out: &mut [u8]) -> Result<usize, SocketError> {
        let link = self.receiving(Kind::Stream)?;
        let got = link.read(now, |buffer, next| buffer.read(next, out));
        self.after_read(got, out.len())
    }

    /// Copies the next whole message into `out` and returns its length; none: no message is
    /// whole. What does not fit is lost.
    ///
    /// # Errors
    /// The connection is over and everything was read, it carries a stream, or the message was
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
        self.told_readable = self.is_readable();
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

    /// What it has done.
    pub fn perf(&self, now: Time) -> Perf {
        self.link.as_ref().map_or_else(Perf::default, |link| link.perf(now))
    }

    /// Its first sequence number.
    #[cfg(test)]
    pub(super) fn first_number(&self) -> packtrain_units::SeqNo {
        Link::wire_number(self.link.as_ref().map_or(0, |link| link.first))
    }

    /// Whether it has news and was not noted before; it is now.
    pub(super) fn note(&mut self) -> bool {
        let News { connected, incoming, readable, writable, ended } = self.news;
        let news = connected || incoming || readable || writable || ended;
        news && !std::mem::replace(&mut self.noted, true)
    }

    /// The next of its news; when there are none, it is no longer noted.
    pub(super) fn take_news(&mut self) -> Option<Event> {
        let news = &mut self.news;
        if std::mem::take(&mut news.incoming) {
            Some(Event::Incoming)
        } else if std::mem::take(&mut news.connected) {
            Some(Event::Connected)
        } else if std::mem::take(&mut news.readable) {
            Some(Event::Readable)
        } else if std::mem::take(&mut news.writable) {
            Some(Event::Writable)
        } else if std::mem::take(&mut news.ended) {
            self.reason.clone().map(Event::Ended)
        } else {
            self.noted = false;
            None
        }
    }

    /// Whether it has ended and its owner was told.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Ended) && !self.news.ended
    }

    /// Whether its owner has closed it.
    pub(super) fn is_discarded(&self) -> bool {
        self.discarded
    }

    /// Whether the peer is still to be told of the end.
    pub(super) fn owes_farewell(&self) -> bool {
        self.farewell
    }

    /// Whether a datagram from `from` may be this connection's.
    pub(super) fn is_peer(&self, from: SocketAddr) -> bool {
        self.peer == from
    }

    /// Whether it is one end of a rendezvous that waits for this address.
    pub(super) fn meets(&self, from: SocketAddr) -> bool {
        matches!(&self.stage, Stage::Calling(caller) if caller.meets(from))
    }

    /// A handshake for it.
    pub(super) fn on_handshake(&mut self, now: Time, peer: &Handshake) {
        let outcome = match &mut self.stage {
            Stage::Calling(caller) => caller.handle(now, &self.options, peer),
            Stage::Parting { .. } | Stage::Ended => return,
            // What it asks was answered; the answer was lost, or is under way.
            _ => {
                let repeat = matches!(peer.request, Request::Conclusion | Request::Rendezvous);
                self.answer = self.last_answer.filter(|_| repeat);
                return;
            }
        };
        match outcome {
            Outcome::Wait => {}
            Outcome::Done { terms, tell } => {
                let Stage::Calling(caller) = &self.stage else { return };
                self.answer = tell.map(|request| caller.saying(request));
                // A rendezvous that did not hear our last word asks again.
                self.last_answer =
                    caller.is_rendezvous().then(|| caller.saying(Request::Agreement));
                if self.open(now, terms).is_none() {
                    self.end(EndReason::NotMade(ConnectError::Terms("no controller")));
                }
            }
            Outcome::Failed(error) => self.end(EndReason::NotMade(error)),
        }
    }

    /// It ends here, and the peer is told if it knows of the connection.
    fn part(&mut self, now: Time, reason: EndReason) {
        match self.stage {
            Stage::Parting { .. } | Stage::Ended => {}
            _ if self.link.is_none() => self.end(reason),
            _ => self.stage = Stage::Parting { reason, told: 0, next: now },
        }
    }

    /// It is over.
    fn end(&mut self, reason: EndReason) {
        if matches!(self.stage, Stage::Ended) {
            return;
        }
        self.stage = Stage::Ended;
        self.reason = Some(reason);
        self.news.ended = true;
        if !std::mem::replace(&mut self.told_readable, true) {
            self.news.readable = self.link.is_some();
        }
    }

    /// Whether a repeat of the answer is due; it counts as said.
    fn answers_again(&mut self, now: Time) -> bool {
        let (left, next) = self.answers;
        let stands = matches!(self.stage, Stage::Open | Stage::Closing { .. });
        let due = left > 0 && now >= next && stands;
        if due {
            self.answers = (left - 1, now + ANSWER_GAP);
        }
        due
    }

    /// Writes a packet that is not of the link: handshakes and farewells.
    fn write_own(&mut self, now: Time, out: &mut [u8]) -> Option<usize> {
        if let Stage::Calling(caller) = &mut self.stage {
            let (to, handshake) = caller.poll(now)?;
            return Control::Handshake(handshake).write(to, out);
        }
        let peer_id = self.link.as_ref()?.peer_id;
        if self.answers_again(now) {
            self.answer = self.last_answer;
        }
        if let Some(handshake) = self.answer.take() {
            return Control::Handshake(handshake).write(peer_id, out);
        }
        let owed = std::mem::take(&mut self.farewell) || self.repeats_farewell(now);
        if owed { Control::Shutdown.write(peer_id, out) } else { None }
    }
}

/// The header of a datagram that is long enough.
pub(super) fn header(datagram: &[u8]) -> Option<Packet<&[u8]>> {
    Packet::new_checked(datagram).ok()
}

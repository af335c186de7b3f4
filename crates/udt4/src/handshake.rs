//! The caller's side of a handshake: a client, or one end of a rendezvous.
//!
//! Client: 1, answered with a cookie; -1 with the cookie, answered by -1. Rendezvous: both ends
//! send 0 until they receive one, then -1, and -2 to confirm the -1. An unanswered handshake is
//! repeated every 250 ms.

use std::net::SocketAddr;

use packtrain_units::{ByteCount, Duration, SeqNo, Time};

use super::error::ConnectError;
use super::options::{Kind, Options, limits};
use super::wire::{Handshake, Request};

/// The protocol version of this module.
pub(super) use super::wire::VERSION;

/// The negotiated parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    /// The peer's socket id.
    pub(super) peer_id: u32,
    /// Our first sequence number.
    pub(super) isn: SeqNo,
    /// The peer's.
    pub(super) peer_isn: SeqNo,
    /// Payload bytes of a full packet.
    pub(super) payload: usize,
    /// Initial maximum of unacknowledged packets, from the peer's handshake and our option.
    pub(super) send_window: u32,
    /// Maximum packets that we accept.
    pub(super) recv_window: u32,
    /// The round trip, if the handshake measured it.
    pub(super) rtt: Option<Duration>,
}

impl Terms {
    /// The parameters that result from our options and the peer's handshake.
    pub(super) fn of(
        options: &Options,
        isn: SeqNo,
        peer: &Handshake,
    ) -> Result<Self, ConnectError> {
        let mss = u64::from(peer.mss).min(options.mss.get());
        if mss < limits::MIN_MSS.get() {
            return Err(ConnectError::Terms("its packets are too small"));
        }
        // The stock library's own check: a window below one packet would never open.
        if peer.flow_window == 0 || peer.flow_window > i32::MAX as u32 {
            return Err(ConnectError::Terms("its window is none"));
        }
        let payload = Options::payload(ByteCount(mss));
        Ok(Self {
            peer_id: peer.socket,
            isn,
            peer_isn: peer.isn,
            payload,
            send_window: peer.flow_window.min(options.flow_window),
            recv_window: options.recv_window(payload),
            rtt: None,
        })
    }
}

/// The result of a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Not connected yet; there may be something to send: see [`Caller::poll`].
    Wait,
    /// Connected. A rendezvous notifies the peer.
    Done { terms: Terms, reply: Option<Request> },
    /// Failed.
    Failed(ConnectError),
}

/// One calling end.
#[derive(Debug)]
pub(super) struct Caller {
    to: SocketAddr,
    own: Handshake,
    /// The peer's socket, once known, to which handshakes are sent.
    peer_id: u32,
    rendezvous: bool,
    next: Time,
    give_up: Time,
    timeout: Duration,
    /// When the last handshake was sent, and how often.
    asked: (Time, u32),
}

impl Caller {
    pub(super) fn new(
        now: Time,
        to: SocketAddr,
        options: &Options,
        isn: SeqNo,
        socket: u32,
    ) -> Self {
        let window = options.recv_window(Options::payload(options.mss));
        let request = if options.rendezvous { Request::Rendezvous } else { Request::Induction };
        let own = Handshake {
            version: VERSION,
            kind_code: Handshake::code_of(options.kind),
            isn,
            mss: options.mss.get() as u32,
            flow_window: window,
            request,
            socket,
            cookie: 0,
            peer: to.ip(),
        };
        let timeout = options.connect_timeout;
        Self {
            to,
            own,
            peer_id: 0,
            rendezvous: options.rendezvous,
            next: now,
            give_up: now + timeout,
            timeout,
            asked: (now, 0),
        }
    }

    /// Whether it waits for a call from this address.
    pub(super) fn awaits(&self, from: SocketAddr) -> bool {
        self.rendezvous && self.to == from
    }

    /// The handshake to send now, with the destination socket.
    pub(super) fn poll(&mut self, now: Time) -> Option<(u32, Handshake)> {
        if now < self.next {
            return None;
        }
        self.next = now + limits::HANDSHAKE_RETRY;
        self.asked = (now, self.asked.1 + 1);
        Some((self.peer_id, self.own))
    }

    pub(super) fn poll_timeout(&self) -> Time {
        self.next.min(self.give_up)
    }

    /// Whether the connect timeout has passed.
    pub(super) fn expired(&self, now: Time) -> Option<ConnectError> {
        (now >= self.give_up).then_some(ConnectError::Timeout(self.timeout))
    }

    /// Handles a handshake from the peer's address.
    pub(super) fn handle(&mut self, now: Time, options: &Options, peer: &Handshake) -> Outcome {
        if let Request::Reject(code) = peer.request {
            return Outcome::Failed(ConnectError::Rejected(code));
        }
        if self.rendezvous {
            self.handle_rendezvous(now, options, peer)
        } else {
            self.call(now, options, peer)
        }
    }

    fn call(&mut self, now: Time, options: &Options, peer: &Handshake) -> Outcome {
        match peer.request {
            // Only the first answer counts: it contains our socket, which proves that the server
            // saw our request, and a second one changes nothing.
            Request::Induction if self.own.request == Request::Induction => {
                if peer.socket != self.own.socket {
                    return Outcome::Wait;
                }
                self.own.cookie = peer.cookie;
                self.own.request = Request::Conclusion;
                self.next = now;
                self.asked.1 = 0;
                Outcome::Wait
            }
            Request::Conclusion if self.own.request == Request::Conclusion => {
                // If it was sent twice, it is unknown which one was answered.
                let (at, times) = self.asked;
                let rtt = (times == 1).then(|| now.since(at)).filter(|rtt| !rtt.is_zero());
                match self.done(options, peer, None) {
                    Outcome::Done { terms, reply } => {
                        Outcome::Done { terms: Terms { rtt, ..terms }, reply }
                    }
                    other => other,
                }
            }
            _ => Outcome::Wait,
        }
    }

    fn handle_rendezvous(&mut self, now: Time, options: &Options, peer: &Handshake) -> Outcome {
        // A stock end that is already connected answers without version and kind.
        let repeated =
            peer.request == Request::Agreement && (peer.version, peer.kind_code) == (0, 0);
        if !repeated && !matches(options.kind, peer) {
            return Outcome::Failed(ConnectError::Terms("it speaks another kind of UDT"));
        }
        if (peer.socket, peer.isn) == (self.own.socket, self.own.isn) {
            return Outcome::Failed(ConnectError::Terms("it is this very socket"));
        }
        self.peer_id = peer.socket;
        match peer.request {
            Request::Rendezvous => {
                self.own.request = Request::Conclusion;
                self.next = now;
                Outcome::Wait
            }
            // The peer knows us. A peer that has received only our 0 needs our -1 first.
            Request::Conclusion if self.own.request == Request::Rendezvous => {
                self.done(options, peer, Some(Request::Conclusion))
            }
            Request::Conclusion => self.done(options, peer, Some(Request::Agreement)),
            Request::Agreement => self.done(options, peer, None),
            _ => Outcome::Wait,
        }
    }

    fn done(&self, options: &Options, peer: &Handshake, reply: Option<Request>) -> Outcome {
        match Terms::of(options, self.own.isn, peer) {
            Ok(terms) => Outcome::Done { terms, reply },
            Err(error) => Outcome::Failed(error),
        }
    }

    /// Its handshake with another request, for use after the connection is open.
    pub(super) fn with_request(&self, request: Request) -> Handshake {
        Handshake { request, ..self.own }
    }

    /// Whether it is a rendezvous.
    pub(super) fn is_rendezvous(&self) -> bool {
        self.rendezvous
    }
}

/// Whether a server may accept the sender of this handshake; repeated handshakes have zeros.
pub(super) fn matches(kind: Kind, peer: &Handshake) -> bool {
    peer.version == VERSION && peer.kind() == Some(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(rendezvous: bool) -> (Options, Caller, Caller) {
        let options = Options { rendezvous, ..Options::default() };
        let caller = |port: u16, isn, id| {
            let to = SocketAddr::from(([192, 0, 2, 1], port));
            Caller::new(Time::ZERO, to, &options, SeqNo::new(isn), id)
        };
        (options.clone(), caller(2, 100, 7), caller(1, 200, 8))
    }

    #[test]
    fn a_rendezvous_is_made_whoever_is_first() {
        let (options, mut a, mut b) = pair(true);
        let now = Time::ZERO;
        // A's first call is lost; B's arrives.
        assert_eq!(a.poll(now).unwrap().0, 0);
        let (_, zero) = b.poll(now).unwrap();
        assert_eq!(a.handle(now, &options, &zero), Outcome::Wait);
        let (to, one) = a.poll(now).expect("at once");
        assert_eq!((to, one.request), (8, Request::Conclusion));
        let Outcome::Done { terms, reply } = b.handle(now, &options, &one) else { panic!() };
        assert_eq!((terms.isn.get(), terms.peer_isn.get(), terms.peer_id), (200, 100, 7));
        let Outcome::Done { terms, reply } =
            a.handle(now, &options, &b.with_request(reply.unwrap()))
        else {
            panic!("{terms:?}")
        };
        assert_eq!((terms.isn.get(), terms.peer_isn.get()), (100, 200));
        assert_eq!(reply, Some(Request::Agreement));
    }

    #[test]
    fn a_stock_ends_repeated_answer_is_taken_and_ones_own_voice_is_not() {
        let (options, mut a, mut b) = pair(true);
        let now = Time::ZERO;
        let (_, zero) = b.poll(now).unwrap();
        assert_eq!(a.handle(now, &options, &zero), Outcome::Wait);
        let answer = Handshake { version: 0, kind_code: 0, cookie: 0, ..zero };
        let answer = Handshake { request: Request::Agreement, ..answer };
        let Outcome::Done { terms, reply: None } = a.handle(now, &options, &answer) else {
            panic!()
        };
        assert_eq!((terms.peer_isn.get(), terms.peer_id), (200, 8));
        let own = b.handle(now, &options, &zero);
        assert!(matches!(own, Outcome::Failed(ConnectError::Terms(_))), "{own:?}");
    }

    #[test]
    fn a_client_calls_again_and_gives_up() {
        let (options, mut client, _) = pair(false);
        let (to, ask) = client.poll(Time::ZERO).unwrap();
        assert_eq!((to, ask.request, ask.cookie), (0, Request::Induction, 0));
        assert!(client.poll(Time::ZERO).is_none());
        let later = client.poll_timeout();
        assert_eq!(later, Time::ZERO + limits::HANDSHAKE_RETRY);
        assert!(client.poll(later).is_some());
        let end = Time::ZERO + options.connect_timeout;
        assert!(client.expired(later).is_none());
        assert_eq!(client.expired(end), Some(ConnectError::Timeout(options.connect_timeout)));
    }

    #[test]
    fn an_answer_to_another_socket_or_before_the_question_is_ignored() {
        let (options, mut client, _) = pair(false);
        let (_, ask) = client.poll(Time::ZERO).unwrap();
        let stranger = Handshake { socket: 9, cookie: 5, ..ask };
        assert_eq!(client.handle(Time::ZERO, &options, &stranger), Outcome::Wait);
        let early = Handshake { request: Request::Conclusion, ..ask };
        assert_eq!(client.handle(Time::ZERO, &options, &early), Outcome::Wait);
        assert!(client.poll(Time::ZERO).is_none(), "nothing changed");
        let answer = Handshake { cookie: 5, ..ask };
        client.handle(Time::ZERO, &options, &answer);
        let (_, call) = client.poll(Time::ZERO).unwrap();
        assert_eq!((call.request, call.cookie), (Request::Conclusion, 5));
        let reject = Handshake { request: Request::Reject(1002), ..ask };
        let failed = Outcome::Failed(ConnectError::Rejected(1002));
        assert_eq!(client.handle(Time::ZERO, &options, &reject), failed);
    }

    #[test]
    fn terms_are_the_smaller_ones_and_not_none() {
        let (options, mut client, _) = pair(false);
        let (_, ask) = client.poll(Time::ZERO).unwrap();
        let terms = Terms::of(&options, ask.isn, &Handshake { mss: 1000, ..ask }).unwrap();
        assert_eq!(terms.payload, 956);
        let terms = Terms::of(&options, ask.isn, &Handshake { flow_window: 32, ..ask }).unwrap();
        assert_eq!((terms.send_window, terms.recv_window), (32, 8192));
        for bad in [Handshake { mss: 44, ..ask }, Handshake { flow_window: 0, ..ask }] {
            assert!(Terms::of(&options, ask.isn, &bad).is_err());
        }
    }
}

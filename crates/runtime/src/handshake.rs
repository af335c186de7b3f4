//! The handshake on a control connection: versions and the session request.

use packtrain_os::clock;
use packtrain_transfer::message::{ExtraOptions, Hello, Message, Open};
use packtrain_transfer::{Failure, FailureKind, Versions, lowest_version};
use packtrain_units::{ByteCount, Duration, Time};
use serde::{Deserialize, Serialize};

use crate::control::{Control, Incoming};
use crate::session::Stop;
use crate::transports::TcpSettings;
use packtrain_service::TransportChoice;
use packtrain_service::ceilings::Ceilings;

/// Limit for the whole handshake after the connection: `Hello`, the request and its answer.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);
const MAGIC: [u8; 4] = *b"PKTR";

/// The request of the initiator to the responder, in addition to the options of the transfer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionRequest {
    /// A perf test instead of a transfer.
    pub perf: Option<MeasureRequest>,
    /// Number of sources that the initiator named.
    pub sources: u32,
    /// Transport: 0 auto, 1 native, 2 TCP, 3 pipe, 4 udt, 5 fobs, 6 sabul. An end treats an unknown
    /// number as auto; its offer then shows this to the other end.
    pub choice: u8,
    /// The congestion controller.
    pub cc: Option<String>,
    /// Number of TCP streams.
    pub streams: u32,
    /// Yield to other traffic.
    pub background: bool,
    /// Ports for data, first and last.
    pub ports: Option<(u16, u16)>,
    /// The token of the ticket that admits the initiator.
    pub ticket: Option<[u8; 16]>,
    /// Addresses of the other end of the data, if it is not the initiator.
    pub peer: Vec<std::net::IpAddr>,
    /// The limits of the initiator, combined with those of the end that it contacted before.
    pub ceilings: Ceilings,
    /// Fields that older ends do not know.
    #[serde(skip)]
    pub more: More,
    /// Fields that ends older than `more` do not know.
    #[serde(skip)]
    pub path: PathRequest,
    /// Fields that ends older than `path` do not know.
    #[serde(skip)]
    pub run: RunRequest,
    /// Options of the transfer that ends of protocol version 1 do not know.
    #[serde(skip)]
    pub options: ExtraOptions,
    /// A query instead of a transfer. Ends of protocol version 2 do not know it.
    #[serde(skip)]
    pub query: Option<Query>,
}

/// Follows a [`SessionRequest`] on the wire. An older responder ignores it; for an older initiator
/// the defaults apply.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct More {
    /// The kernel's congestion control for TCP.
    pub tcp_cc: Option<String>,
    /// TCP's buffers, instead of the kernel's autotuning.
    pub tcp_buffer: Option<u64>,
}

/// Follows [`More`] on the wire, in the same way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathRequest {
    /// The initiator connects over depots, which may stall: shorter timeouts apply.
    pub relayed: bool,
}

/// Follows [`PathRequest`] on the wire, in the same way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunRequest {
    /// The number of the initiator's command, the same for all its attempts. The responder may end
    /// what an earlier attempt left behind.
    pub number: Option<[u8; 16]>,
}

impl More {
    /// The TCP settings in it.
    pub(crate) fn kernel(&self) -> TcpSettings {
        let congestion = self.tcp_cc.clone();
        TcpSettings { congestion, buffers: self.tcp_buffer.map(ByteCount) }
    }
}

/// A perf test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MeasureRequest {
    /// Number of parallel flows.
    pub parallel: u32,
    /// Duration in milliseconds.
    pub millis: u64,
    /// Number of bytes, instead of a duration.
    pub bytes: Option<u64>,
}

/// A query about the files of the responder, see [`query`](crate::query).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Query {
    /// The digest of each regular file below the directory of the request that its filters include.
    Digests(HashKind),
    /// The names in a directory that begin as the last name of the path of the request does.
    Names,
}

/// The hash function of a list of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum HashKind {
    /// BLAKE3 with 32 bytes, as `b3sum`.
    #[default]
    Blake3,
    /// SHA-256, as `sha256sum`.
    Sha256,
}

impl SessionRequest {
    /// The encoding for `Open`.
    pub fn encode(&self) -> Vec<u8> {
        // Serialising plain values into memory cannot fail.
        let words = (self, &self.more, &self.path, &self.run, &self.options, &self.query);
        postcard::to_stdvec(&words).unwrap_or_default()
    }

    /// Decodes the request in `Open`.
    pub fn decode(bytes: &[u8]) -> Result<Self, Failure> {
        let (mut ask, rest) = postcard::take_from_bytes::<Self>(bytes).map_err(|_| {
            Failure::new(FailureKind::Protocol, "the caller asks for something unintelligible")
        })?;
        ask.ceilings = ask.ceilings.checked();
        if let Ok((more, rest)) = postcard::take_from_bytes(rest) {
            ask.more = more;
            if let Ok((path, rest)) = postcard::take_from_bytes(rest) {
                ask.path = path;
                if let Ok((run, rest)) = postcard::take_from_bytes(rest) {
                    ask.run = run;
                    (ask.options, ask.query) = decode_options(rest)?;
                }
            }
        }
        Ok(ask)
    }
}

/// The options of version 2 and the query of version 3; an older end sends none. Options that cannot
/// be read would be left out of the transfer, so they end it.
fn decode_options(bytes: &[u8]) -> Result<(ExtraOptions, Option<Query>), Failure> {
    if bytes.is_empty() {
        return Ok((ExtraOptions::default(), None));
    }
    let refused = |why: &str| {
        Failure::new(FailureKind::Protocol, format!("the options of the transfer: {why}"))
    };
    let (options, rest): (ExtraOptions, _) =
        postcard::take_from_bytes(bytes).map_err(|_| refused("they are unintelligible"))?;
    options.check().map_err(refused)?;
    let query = match rest {
        [] => None,
        rest => postcard::from_bytes(rest).map_err(|_| refused("its query is unintelligible"))?,
    };
    Ok((options, query))
}

/// The number of a transport in a [`SessionRequest`].
pub fn number(choice: TransportChoice) -> u8 {
    match choice {
        TransportChoice::Auto => 0,
        TransportChoice::Native => 1,
        TransportChoice::Tcp => 2,
        // The stock UDT wire is a location and not a transport between two Packtrain ends; it was
        // refused before.
        TransportChoice::Pipe | TransportChoice::Udt4 => 3,
        TransportChoice::Udt => 4,
        TransportChoice::Fobs => 5,
        TransportChoice::Sabul => 6,
    }
}

/// The greeting of an end that speaks these versions.
fn hello(own: Versions) -> Message {
    Message::Hello(Hello {
        magic: MAGIC,
        lowest: own.lowest,
        highest: own.highest,
        agent: concat!("packtrain ", env!("CARGO_PKG_VERSION")).to_owned(),
    })
}

fn next(control: &Control, stop: &Stop, until: Time) -> Result<Message, Failure> {
    let step = std::time::Duration::from_millis(100);
    loop {
        if let Some(failure) = stop.asked() {
            return Err(failure);
        }
        match control.rx.recv_timeout(step) {
            Ok(Incoming::Message(message)) => return Ok(message),
            Ok(Incoming::Closed(failure)) => return Err(failure),
            Err(_) => {}
        }
        if clock::now() >= until {
            return Err(no_answer());
        }
    }
}

fn no_answer() -> Failure {
    Failure::new(FailureKind::Temporary, "the other end does not answer")
}

/// Why an end that lacks a version which an option needs cannot serve the request.
fn older(agent: &str) -> Failure {
    let text = format!(
        "the other end ({agent}) is older and does not know an option of this command: install the \
         same version at both ends, or leave the option out"
    );
    Failure::new(FailureKind::Protocol, text)
}

/// The versions that the sender of this `Hello` and this end, with the versions `own`, have in common.
fn check(own: Versions, message: Message) -> Result<Versions, Failure> {
    let Message::Hello(hello) = message else {
        return Err(Failure::new(FailureKind::Protocol, "the other end is not packtrain"));
    };
    if hello.magic != MAGIC {
        return Err(Failure::new(FailureKind::Protocol, "the other end is not packtrain"));
    }
    let agent: String = hello.agent.chars().filter(|c| !c.is_control()).take(60).collect();
    if hello.highest < own.lowest && hello.highest >= Versions::OWN.lowest {
        return Err(older(&agent));
    }
    own.common(hello.versions()).ok_or_else(|| {
        let text = format!(
            "the other end ({agent}) speaks protocol versions {}, this one {own}: install the same \
             version at both ends",
            hello.versions()
        );
        Failure::new(FailureKind::Protocol, text)
    })
}

/// The initiator's handshake. The greeting and the request are sent at once, and so is what the
/// initiator has to say as source or sink: an answer before it would cost a round trip.
pub struct Call {
    begun: Time,
    until: Time,
    own: Versions,
    /// The highest common version, once the responder has greeted.
    version: Option<u16>,
}

/// The answer of a responder that accepts the request.
pub struct Agreed {
    /// The limits of the responder.
    pub ceilings: Ceilings,
    /// From the request to the answer: the round trip of the control connection at most.
    pub rtt: Duration,
    /// The protocol version that both ends use from now on.
    pub version: u16,
}

/// The request of an initiator.
pub struct Asked {
    /// The request itself.
    pub open: Open,
    /// The protocol version that both ends use from now on.
    pub version: u16,
}

impl Call {
    /// Sends the greeting and the request.
    pub fn begin(control: &Control, open: Open) -> Self {
        Self::begin_with(control, open, Versions::OWN)
    }

    /// The same for a request with a query, which older ends do not know.
    pub(crate) fn begin_query(control: &Control, open: Open) -> Self {
        Self::begin_with(control, open, Versions { lowest: Versions::QUERIES, ..Versions::OWN })
    }

    fn begin_with(control: &Control, open: Open, own: Versions) -> Self {
        let begun = clock::now();
        // An older end would leave out options that it does not know.
        let lowest = own.lowest.max(lowest_version(&open.options));
        let own = Versions { lowest, ..own };
        control.tx.send(&hello(own));
        control.tx.send(&Message::Open(open));
        Self { begun, until: begun + HANDSHAKE_TIMEOUT, own, version: None }
    }

    /// Takes a message of the responder; gives its answer once that has come.
    ///
    /// # Errors
    /// The responder refuses, or is no Packtrain of this version.
    pub(crate) fn on_message(
        &mut self,
        now: Time,
        message: Message,
    ) -> Result<Option<Agreed>, Failure> {
        let Some(version) = self.version else {
            self.version = Some(check(self.own, message)?.highest);
            return Ok(None);
        };
        match message {
            Message::Opened(opened) => {
                let ceilings = Ceilings::decode(&opened.channel)?;
                Ok(Some(Agreed { ceilings, rtt: now.since(self.begun), version }))
            }
            Message::Refused(failure) | Message::Cancel(failure) => Err(failure),
            _ => Err(Failure::new(FailureKind::Protocol, "the other end answers out of turn")),
        }
    }

    /// Why the answer is no longer waited for, if so.
    pub(crate) fn overdue(&self, now: Time) -> Option<Failure> {
        (now >= self.until).then(no_answer)
    }

    /// Waits for the answer.
    ///
    /// # Errors
    /// The responder refuses or is no Packtrain of this version, it does not answer in time, or the
    /// user stops.
    pub fn wait(mut self, control: &Control, stop: &Stop) -> Result<Agreed, Failure> {
        loop {
            let message = next(control, stop, self.until)?;
            if let Some(agreed) = self.on_message(clock::now(), message)? {
                return Ok(agreed);
            }
        }
    }
}

/// The initiator's whole handshake, for one that is neither source nor sink. Returns the limits of
/// the responder.
pub fn call(control: &Control, open: Open, stop: &Stop) -> Result<Ceilings, Failure> {
    Call::begin(control, open).wait(control, stop).map(|agreed| agreed.ceilings)
}

/// A responder's greeting, which it sends unasked. An initiator that connects two responders hears
/// both before it greets either, because all three must use one version.
pub struct Greeted(Versions);

impl Greeted {
    /// Waits for the greeting.
    ///
    /// # Errors
    /// The responder is no Packtrain of these versions, it does not answer in time, or the user
    /// stops.
    pub fn hear(control: &Control, stop: &Stop) -> Result<Self, Failure> {
        let message = next(control, stop, clock::now() + HANDSHAKE_TIMEOUT)?;
        check(Versions::OWN, message).map(Self)
    }

    /// The versions that both responders and this end have in common.
    ///
    /// # Errors
    /// There is none.
    pub fn with(&self, other: &Self) -> Result<Self, Failure> {
        self.0.common(other.0).map(Self).ok_or_else(|| {
            let text = format!(
                "one end speaks protocol versions {}, the other {}: install the same version at \
                 both ends",
                self.0, other.0
            );
            Failure::new(FailureKind::Protocol, text)
        })
    }

    /// The rest of [`call`].
    ///
    /// # Errors
    /// Those of [`Call::wait`]; or an option needs a version that one of the three lacks.
    pub fn call(&self, control: &Control, open: Open, stop: &Stop) -> Result<Ceilings, Failure> {
        if lowest_version(&open.options) > self.0.highest {
            return Err(older("one of the two"));
        }
        let mut call = Call::begin_with(control, open, self.0);
        call.version = Some(self.0.highest);
        call.wait(control, stop).map(|agreed| agreed.ceilings)
    }
}

/// The responder's handshake up to the request. The caller of this function answers it.
pub fn answer(control: &Control, stop: &Stop) -> Result<Asked, Failure> {
    answer_until(control, stop, clock::now() + HANDSHAKE_TIMEOUT, Versions::OWN)
}

fn answer_until(
    control: &Control,
    stop: &Stop,
    until: Time,
    own: Versions,
) -> Result<Asked, Failure> {
    control.tx.send(&hello(own));
    let refused = |failure: Failure| {
        control.tx.send(&Message::Refused(failure.clone()));
        failure
    };
    let greeting = next(control, stop, until).map_err(refused)?;
    let version = check(own, greeting).map_err(refused)?.highest;
    match next(control, stop, until).map_err(refused)? {
        Message::Open(open) => Ok(Asked { open, version }),
        Message::Cancel(failure) => Err(failure),
        _ => Err(refused(Failure::new(FailureKind::Protocol, "a request was expected"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_that_greets_and_asks_for_nothing_is_refused_in_the_end() {
        let (near, far) = crate::control::pair().unwrap();
        let stop = Stop::new(packtrain_service::StopHandle::new());
        near.tx.send(&hello(Versions::OWN));
        let failure = answer_until(&far, &stop, clock::now(), Versions::OWN).err().unwrap();
        assert_eq!(failure.kind, FailureKind::Temporary);
        let told = std::iter::from_fn(|| near.rx.recv_timeout(HANDSHAKE_TIMEOUT.to_std()).ok());
        let mut messages = told.filter_map(|incoming| match incoming {
            Incoming::Message(message) => Some(message),
            Incoming::Closed(_) => None,
        });
        assert!(matches!(messages.next(), Some(Message::Hello(_))));
        assert!(matches!(messages.next(), Some(Message::Refused(told)) if told == failure));
    }

    fn open() -> Open {
        let options = packtrain_transfer::Options::default();
        let (role, paths) = (packtrain_transfer::Role::Sink, vec![b"x".to_vec()]);
        Open { role, paths, sources: None, options, channel: Vec::new() }
    }

    #[test]
    fn the_text_of_a_refusal_is_short() {
        let (near, far) = crate::control::pair().unwrap();
        let text = "a server may write much ".repeat(30_000);
        far.tx.send(&hello(Versions::OWN));
        far.tx.send(&Message::Refused(Failure::new(FailureKind::Fatal, &text[..])));
        let stop = Stop::new(packtrain_service::StopHandle::new());
        let failure = call(&near, open(), &stop).expect_err("it is refused");
        assert_eq!(failure.kind, FailureKind::Fatal);
        assert!(!failure.text.is_empty() && text.starts_with(&failure.text));
        assert!(failure.text.len() <= packtrain_transfer::limits::MAX_TEXT);
    }

    #[test]
    fn the_text_of_a_caller_that_cancels_is_short() {
        let (near, far) = crate::control::pair().unwrap();
        let text = "\u{1}".repeat(1_000_000);
        near.tx.send(&hello(Versions::OWN));
        near.tx.send(&Message::Cancel(Failure::new(FailureKind::Fatal, text)));
        let stop = Stop::new(packtrain_service::StopHandle::new());
        let failure = answer(&far, &stop).err().expect("it asks for nothing");
        assert_eq!(failure.kind, FailureKind::Fatal);
        let most = packtrain_transfer::limits::MAX_TEXT;
        assert!(!failure.text.is_empty() && failure.text.len() <= most);
        assert!(failure.text.capacity() <= most, "its memory is as long as the frame");
    }

    /// The version that each end uses, of an initiator and a responder with these versions.
    fn agreed(caller: Versions, called: Versions) -> (Result<u16, Failure>, Result<u16, Failure>) {
        let (near, far) = crate::control::pair().unwrap();
        let stop = || Stop::new(packtrain_service::StopHandle::new());
        let until = clock::now() + HANDSHAKE_TIMEOUT;
        let answers = std::thread::spawn(move || {
            let asked = answer_until(&far, &stop(), until, called)?;
            assert_eq!(asked.open, open());
            let channel = Ceilings::default().encode();
            far.tx.send(&Message::Opened(packtrain_transfer::Opened { channel }));
            Ok(asked.version)
        });
        let call = Call::begin_with(&near, open(), caller).wait(&near, &stop());
        (call.map(|agreed| agreed.version), answers.join().unwrap())
    }

    /// The first release knows version 1 only. A later build must go on speaking it.
    #[test]
    fn ends_of_different_age_use_the_highest_version_that_both_know() {
        let first = Versions { lowest: 1, highest: 1 };
        let next = Versions { lowest: 1, highest: Versions::OWN.highest + 1 };
        let far_future = Versions { lowest: Versions::OWN.highest + 1, ..next };
        for (one, other) in [(Versions::OWN, first), (Versions::OWN, next), (next, first)] {
            let expected = one.highest.min(other.highest);
            assert_eq!(agreed(one, other), (Ok(expected), Ok(expected)), "{one} calls {other}");
            assert_eq!(agreed(other, one), (Ok(expected), Ok(expected)), "{other} calls {one}");
        }
        for (one, other) in [(Versions::OWN, far_future), (far_future, Versions::OWN)] {
            let (near, far) = agreed(one, other);
            for failure in [near.unwrap_err(), far.unwrap_err()] {
                assert_eq!(failure.kind, FailureKind::Protocol, "{failure:?}");
                assert!(failure.text.contains("install the same version"), "{failure:?}");
            }
        }
    }

    #[test]
    fn an_end_between_two_others_greets_both_with_what_all_three_know() {
        let known = |lowest, highest| Greeted(Versions { lowest, highest });
        let both = known(1, 3).with(&known(1, 2)).unwrap();
        assert_eq!(both.0, Versions { lowest: 1, highest: 2 });
        let failure = known(1, 1).with(&known(2, 3)).err().unwrap();
        assert_eq!(failure.kind, FailureKind::Protocol);
        let (near, far) = crate::control::pair().unwrap();
        let stop = || Stop::new(packtrain_service::StopHandle::new());
        let until = clock::now() + HANDSHAKE_TIMEOUT;
        let answers = std::thread::spawn(move || {
            let asked = answer_until(&far, &stop(), until, Versions { lowest: 1, highest: 9 });
            let channel = Ceilings::default().encode();
            far.tx.send(&Message::Opened(packtrain_transfer::Opened { channel }));
            asked.map(|asked| asked.version)
        });
        let heard = Greeted::hear(&near, &stop()).unwrap();
        heard.with(&known(1, 1)).unwrap().call(&near, open(), &stop()).unwrap();
        assert_eq!(answers.join().unwrap().unwrap(), 1);
    }

    #[test]
    fn an_older_end_ends_a_request_whose_options_it_does_not_know() {
        let greeting = |lowest, highest| {
            let agent = "packtrain 0.0.1\u{7}".to_owned();
            Message::Hello(Hello { magic: MAGIC, lowest, highest, agent })
        };
        let options = ExtraOptions { size_only: true, ..ExtraOptions::default() };
        let needed = Versions { lowest: options.lowest_version(), ..Versions::OWN };
        let failure = check(needed, greeting(1, 1)).unwrap_err();
        assert!(failure.text.contains("packtrain 0.0.1) is older"), "{}", failure.text);
        let common = |own, lowest, highest| check(own, greeting(lowest, highest)).ok();
        assert_eq!(ExtraOptions::default().lowest_version(), 1);
        assert_eq!(common(Versions::OWN, 1, 1), Some(Versions { lowest: 1, highest: 1 }));
        assert_eq!(common(needed, 1, 2), Some(Versions { lowest: 2, highest: 2 }));
        assert_eq!(common(Versions::OWN, Versions::OWN.highest + 1, 9), None);
        // What a caller that needs version 2 says keeps an older called end from starting.
        let (near, far) = crate::control::pair().unwrap();
        let stop = Stop::new(packtrain_service::StopHandle::new());
        let request =
            packtrain_transfer::Options { extra: Box::new(options.clone()), ..Default::default() };
        let mut call = Call::begin(&near, Open { options: request, ..open() });
        let Message::Hello(said) = next(&far, &stop, call.until).unwrap() else {
            panic!("a greeting")
        };
        assert_eq!(said.versions(), Versions { lowest: 2, highest: Versions::OWN.highest });
        assert!(call.on_message(clock::now(), greeting(1, 1)).is_err());
        // Options that are cut off or out of range are refused instead of left out.
        let ask = SessionRequest { options, ..SessionRequest::default() };
        let bytes = ask.encode();
        assert_eq!(SessionRequest::decode(&bytes).unwrap(), ask);
        assert!(SessionRequest::decode(&bytes[..bytes.len() - 2]).is_err());
        // An end of version 2 sends no query.
        assert_eq!(SessionRequest::decode(&bytes[..bytes.len() - 1]).unwrap(), ask);
        let query = Some(Query::Digests(HashKind::Sha256));
        let asks = SessionRequest { query, ..ask.clone() };
        let bytes = asks.encode();
        assert_eq!(SessionRequest::decode(&bytes).unwrap(), asks);
        assert!(SessionRequest::decode(&bytes[..bytes.len() - 1]).is_err());
        let backup = packtrain_transfer::message::Backup { suffix: b"/".to_vec(), dir: None };
        let options = ExtraOptions { backup: Some(backup), ..ExtraOptions::default() };
        let ask = SessionRequest { options, ..SessionRequest::default() };
        assert!(SessionRequest::decode(&ask.encode()).is_err());
    }

    #[test]
    fn an_ask_is_understood_with_and_without_what_came_later() {
        let more = More { tcp_cc: Some("cubic".to_owned()), tcp_buffer: Some(1 << 20) };
        let (path, run) = (PathRequest { relayed: true }, RunRequest { number: Some([7; 16]) });
        let cc = Some("native".to_owned());
        let ask = SessionRequest { streams: 4, cc, more, path, run, ..SessionRequest::default() };
        assert_eq!(SessionRequest::decode(&ask.encode()).unwrap(), ask);
        let older = postcard::to_stdvec(&ask).unwrap();
        let read = SessionRequest::decode(&older).unwrap();
        let none = SessionRequest { run: RunRequest::default(), ..ask.clone() };
        assert_eq!(
            read,
            SessionRequest { more: More::default(), path: PathRequest::default(), ..none.clone() }
        );
        let between = postcard::to_stdvec(&(&ask, &ask.more)).unwrap();
        let read = SessionRequest::decode(&between).unwrap();
        assert_eq!(read, SessionRequest { path: PathRequest::default(), ..none.clone() });
        let last = postcard::to_stdvec(&(&ask, &ask.more, &ask.path)).unwrap();
        assert_eq!(SessionRequest::decode(&last).unwrap(), none);
        // An older end reads the first part only.
        let front: SessionRequest = postcard::from_bytes(&ask.encode()).unwrap();
        assert_eq!(front.streams, 4);
        assert!(SessionRequest::decode(&[0xff; 4]).is_err());
    }
}

//! The first words on a control connection: who speaks which versions, and what is to be done.

use packtrain_transfer::message::{Hello, Message, Open, VERSIONS};
use packtrain_transfer::{Failure, FailureKind, Opened};
use serde::{Deserialize, Serialize};

use crate::api::TransportChoice;
use crate::control::{Control, Incoming};
use crate::session::Stop;

/// How long the other end has to answer once it is connected.
const ANSWER: std::time::Duration = std::time::Duration::from_secs(30);
const MAGIC: [u8; 4] = *b"PKTR";

/// What the caller's node tells the called node beside the transfer's own options.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ask {
    /// A perf test instead of a transfer.
    pub(crate) perf: Option<PerfAsk>,
    /// How many sources the caller named.
    pub(crate) sources: u32,
    /// Transports: 0 auto, 1 native, 2 TCP, 3 pipe, 4 udt, 5 fobs, 6 sabul. An end that does not
    /// know a number takes it for auto, and what it then offers tells the other so.
    pub(crate) choice: u8,
    /// The congestion controller.
    pub(crate) cc: Option<String>,
    /// TCP streams.
    pub(crate) streams: u32,
    /// Give way to other traffic.
    pub(crate) background: bool,
    /// Ports for data, first and last.
    pub(crate) ports: Option<(u16, u16)>,
    /// The token of a ticket that lets the caller in.
    pub(crate) ticket: Option<[u8; 16]>,
    /// Where the other end of the data is, if it is not the caller.
    pub(crate) peer: Vec<std::net::IpAddr>,
}

/// A perf test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PerfAsk {
    /// Flows side by side.
    pub(crate) parallel: u32,
    /// How long, in milliseconds.
    pub(crate) millis: u64,
    /// Or how much.
    pub(crate) bytes: Option<u64>,
}

impl Ask {
    pub(crate) fn encode(&self) -> Vec<u8> {
        // Serialising plain values into memory cannot fail.
        postcard::to_stdvec(self).unwrap_or_default()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Failure> {
        postcard::from_bytes(bytes).map_err(|_| {
            Failure::new(FailureKind::Protocol, "the caller asks for something unintelligible")
        })
    }
}

/// The number of a transport in an [`Ask`].
pub(crate) fn number(choice: TransportChoice) -> u8 {
    match choice {
        TransportChoice::Auto => 0,
        TransportChoice::Native => 1,
        TransportChoice::Tcp => 2,
        // The stock wire is a place, not a way between two ends of ours; refused before.
        TransportChoice::Pipe | TransportChoice::Udt4 => 3,
        TransportChoice::Udt => 4,
        TransportChoice::Fobs => 5,
        TransportChoice::Sabul => 6,
    }
}

fn hello() -> Message {
    Message::Hello(Hello {
        magic: MAGIC,
        lowest: VERSIONS.0,
        highest: VERSIONS.1,
        agent: concat!("packtrain ", env!("CARGO_PKG_VERSION")).to_owned(),
    })
}

fn next(control: &Control, stop: &Stop) -> Result<Message, Failure> {
    let step = std::time::Duration::from_millis(100);
    let mut waited = std::time::Duration::ZERO;
    loop {
        if let Some(failure) = stop.asked() {
            return Err(failure);
        }
        match control.rx.recv_timeout(step) {
            Ok(Incoming::Message(message)) => return Ok(message),
            Ok(Incoming::Closed(failure)) => return Err(failure),
            Err(_) => waited += step,
        }
        if waited >= ANSWER {
            return Err(Failure::new(FailureKind::Temporary, "the other end does not answer"));
        }
    }
}

fn check(message: Message) -> Result<(), Failure> {
    let Message::Hello(hello) = message else {
        return Err(Failure::new(FailureKind::Protocol, "the other end is not packtrain"));
    };
    if hello.magic != MAGIC {
        return Err(Failure::new(FailureKind::Protocol, "the other end is not packtrain"));
    }
    if hello.lowest > VERSIONS.1 || hello.highest < VERSIONS.0 {
        let agent: String = hello.agent.chars().filter(|c| !c.is_control()).take(60).collect();
        let text = format!(
            "the other end ({agent}) speaks protocol versions {} to {}, this one {} to {}: \
             install the same version at both ends",
            hello.lowest, hello.highest, VERSIONS.0, VERSIONS.1
        );
        return Err(Failure::new(FailureKind::Protocol, text));
    }
    Ok(())
}

/// The caller's part: greets, asks, waits for agreement.
pub(crate) fn call(control: &Control, open: Open, stop: &Stop) -> Result<Opened, Failure> {
    control.tx.send(&hello());
    check(next(control, stop)?)?;
    control.tx.send(&Message::Open(open));
    match next(control, stop)? {
        Message::Opened(opened) => Ok(opened),
        Message::Refused(failure) | Message::Cancel(failure) => Err(failure),
        _ => Err(Failure::new(FailureKind::Protocol, "the other end answers out of turn")),
    }
}

/// The called end's part, up to knowing what is asked; the caller of this answers.
pub(crate) fn answer(control: &Control, stop: &Stop) -> Result<Open, Failure> {
    control.tx.send(&hello());
    let refused = |failure: Failure| {
        control.tx.send(&Message::Refused(failure.clone()));
        failure
    };
    check(next(control, stop)?).map_err(refused)?;
    match next(control, stop)? {
        Message::Open(open) => Ok(open),
        Message::Cancel(failure) => Err(failure),
        _ => Err(refused(Failure::new(FailureKind::Protocol, "a request was expected"))),
    }
}

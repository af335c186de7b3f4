//! The connection of a hostile peer: it speaks the control protocol by itself, over whatever carries
//! it, and says what it likes.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use packtrain_transfer::message::{Decoder, Hello, Message, Open, Opened, encode};

use super::script::{self, Choices};
use crate::rig::PATIENCE;

/// How long a peer waits for a word before it says the next.
const MOMENT: Duration = Duration::from_millis(1);

/// A connection that bytes go over.
pub(super) trait Stream: Read + Write + Send {
    /// How long a read or a write waits.
    fn set_patience(&self, limit: Duration) -> io::Result<()>;
}

impl Stream for UnixStream {
    fn set_patience(&self, limit: Duration) -> io::Result<()> {
        self.set_write_timeout(Some(PATIENCE))?;
        self.set_read_timeout(Some(limit))
    }
}

impl Stream for TcpStream {
    fn set_patience(&self, limit: Duration) -> io::Result<()> {
        self.set_write_timeout(Some(PATIENCE))?;
        self.set_read_timeout(Some(limit))
    }
}

impl Stream for rustls::StreamOwned<rustls::ServerConnection, TcpStream> {
    fn set_patience(&self, limit: Duration) -> io::Result<()> {
        self.sock.set_patience(limit)
    }
}

impl Stream for rustls::StreamOwned<rustls::ClientConnection, TcpStream> {
    fn set_patience(&self, limit: Duration) -> io::Result<()> {
        self.sock.set_patience(limit)
    }
}

/// What came, or why nothing did.
#[derive(Debug)]
pub(super) enum Heard {
    Message(Message),
    Nothing,
    Closed,
}

/// A peer that says what it likes.
pub(super) struct Peer {
    stream: Box<dyn Stream>,
    decoder: Decoder,
    /// Entries announced.
    pub(super) announced: u32,
}

impl Peer {
    pub(super) fn new(stream: impl Stream + 'static) -> Self {
        Self { stream: Box::new(stream), decoder: Decoder::new(), announced: 0 }
    }

    /// The next byte of what comes before any message.
    pub(super) fn read_byte(&mut self) -> Option<u8> {
        let mut byte = [0];
        self.stream.set_patience(PATIENCE).ok()?;
        self.stream.read_exact(&mut byte).ok()?;
        Some(byte[0])
    }

    /// Sends bytes; false once the other end is gone.
    pub(super) fn raw(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).and_then(|()| self.stream.flush()).is_ok()
    }

    /// Sends a message; false once the other end is gone.
    pub(super) fn say(&mut self, message: &Message) -> bool {
        let mut frame = Vec::new();
        encode(message, &mut frame);
        self.raw(&frame)
    }

    /// The next message that comes within `limit`.
    pub(super) fn hear(&mut self, limit: Duration) -> Heard {
        let start = Instant::now();
        let mut buffer = vec![0; 64 << 10];
        loop {
            match self.decoder.next() {
                Ok(Some(message)) => return Heard::Message(message),
                Ok(None) => {}
                Err(_) => return Heard::Closed,
            }
            let left = limit.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Heard::Nothing;
            }
            if self.stream.set_patience(left).is_err() {
                return Heard::Closed;
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Heard::Closed,
                Ok(n) => self.decoder.feed(&buffer[..n]),
                Err(e)
                    if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Heard::Closed,
            }
        }
    }

    /// Waits for a message that `wanted` takes; none once the other end gave up or is gone.
    pub(super) fn wait_for<T>(&mut self, wanted: impl Fn(&Message) -> Option<T>) -> Option<T> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            match self.hear(Duration::from_millis(200)) {
                Heard::Message(message) => {
                    if let Some(found) = wanted(&message) {
                        return Some(found);
                    }
                    // What carries a connection may outlive who gave up at its other end.
                    if matches!(message, Message::Cancel(_) | Message::Refused(_)) {
                        return None;
                    }
                }
                Heard::Nothing => {}
                Heard::Closed => return None,
            }
        }
        None
    }

    /// Reads on until the other end gives up or is gone, or has been silent for a while.
    pub(super) fn drain(&mut self) {
        let end = |message: &Message| {
            let over = matches!(message, Message::Cancel(_) | Message::Refused(_) | Message::Bye);
            over.then_some(())
        };
        loop {
            match self.hear(Duration::from_millis(300)) {
                Heard::Message(message) if end(&message).is_none() => {}
                _ => return,
            }
        }
    }

    fn hello() -> Message {
        Message::Hello(Hello { magic: *b"PKTR", lowest: 1, highest: 1, agent: "evil".to_owned() })
    }

    /// The called end's first words; what the caller asks, and as what it asks it.
    pub(super) fn be_called(&mut self) -> Option<Open> {
        self.say(&Self::hello());
        let open = self.wait_for(|message| match message {
            Message::Open(open) => Some(open.clone()),
            _ => None,
        });
        self.say(&Message::Opened(Opened { channel: packtrain_runtime::sample_answer() }));
        open
    }

    /// The caller's first words.
    pub(super) fn call(&mut self, open: Open) -> Option<()> {
        self.say(&Self::hello());
        self.say(&Message::Open(open));
        self.wait_for(|message| match message {
            Message::Opened(_) => Some(()),
            _ => None,
        })
    }

    /// Says what the choices say, until they are used up or nobody listens.
    pub(super) fn play(&mut self, choices: &mut Choices<'_>) {
        while !choices.is_empty() {
            let (message, announced) = script::message(choices, self.announced);
            self.announced = announced;
            if !self.say(&message) || matches!(self.hear(MOMENT), Heard::Closed) {
                return;
            }
        }
        self.drain();
    }
}

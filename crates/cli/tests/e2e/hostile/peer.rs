//! The connection of a hostile peer. It implements the control protocol itself, over any stream,
//! and sends arbitrary messages.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use packtrain_transfer::message::{Decoder, Hello, Message, Open, Opened, encode};

use super::script::{self, Choices};
use crate::rig::TIMEOUT;

/// How long a peer waits for a message before it sends the next.
const MOMENT: Duration = Duration::from_millis(1);

/// A byte stream.
pub(super) trait Stream: Read + Write + Send {
    /// Timeout of a read or a write.
    fn set_patience(&self, limit: Duration) -> io::Result<()>;
}

impl Stream for UnixStream {
    fn set_patience(&self, limit: Duration) -> io::Result<()> {
        self.set_write_timeout(Some(TIMEOUT))?;
        self.set_read_timeout(Some(limit))
    }
}

impl Stream for TcpStream {
    fn set_patience(&self, limit: Duration) -> io::Result<()> {
        self.set_write_timeout(Some(TIMEOUT))?;
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

/// A received message, or the reason why none came.
#[derive(Debug)]
pub(super) enum Received {
    Message(Message),
    Nothing,
    Closed,
}

/// A peer that sends arbitrary messages.
pub(super) struct Peer {
    stream: Box<dyn Stream>,
    decoder: Decoder,
    /// Number of announced entries.
    pub(super) announced: u32,
}

impl Peer {
    pub(super) fn new(stream: impl Stream + 'static) -> Self {
        Self { stream: Box::new(stream), decoder: Decoder::new(), announced: 0 }
    }

    /// The next byte of the preamble before the first message.
    pub(super) fn read_byte(&mut self) -> Option<u8> {
        let mut byte = [0];
        self.stream.set_patience(TIMEOUT).ok()?;
        self.stream.read_exact(&mut byte).ok()?;
        Some(byte[0])
    }

    /// Sends bytes; false if the other end has closed.
    pub(super) fn raw(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).and_then(|()| self.stream.flush()).is_ok()
    }

    /// Sends a message; false if the other end has closed.
    pub(super) fn send(&mut self, message: &Message) -> bool {
        let mut frame = Vec::new();
        encode(message, &mut frame);
        self.raw(&frame)
    }

    /// The next message within `limit`.
    pub(super) fn receive(&mut self, limit: Duration) -> Received {
        let start = Instant::now();
        let mut buffer = vec![0; 64 << 10];
        loop {
            match self.decoder.next() {
                Ok(Some(message)) => return Received::Message(message),
                Ok(None) => {}
                Err(_) => return Received::Closed,
            }
            let left = limit.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Received::Nothing;
            }
            if self.stream.set_patience(left).is_err() {
                return Received::Closed;
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Received::Closed,
                Ok(n) => self.decoder.feed(&buffer[..n]),
                Err(e)
                    if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Received::Closed,
            }
        }
    }

    /// Waits for a message that `wanted` accepts; `None` if the other end failed or has closed.
    pub(super) fn wait_for<T>(&mut self, wanted: impl Fn(&Message) -> Option<T>) -> Option<T> {
        let start = Instant::now();
        while start.elapsed() < TIMEOUT {
            match self.receive(Duration::from_millis(200)) {
                Received::Message(message) => {
                    if let Some(found) = wanted(&message) {
                        return Some(found);
                    }
                    // A connection may stay open after the program at its other end has ended.
                    if matches!(message, Message::Cancel(_) | Message::Refused(_)) {
                        return None;
                    }
                }
                Received::Nothing => {}
                Received::Closed => return None,
            }
        }
        None
    }

    /// Reads until the other end fails, closes, or is silent for a while.
    pub(super) fn drain(&mut self) {
        let end = |message: &Message| {
            let over = matches!(message, Message::Cancel(_) | Message::Refused(_) | Message::Bye);
            over.then_some(())
        };
        loop {
            match self.receive(Duration::from_millis(300)) {
                Received::Message(message) if end(&message).is_none() => {}
                _ => return,
            }
        }
    }

    fn hello() -> Message {
        Message::Hello(Hello { magic: *b"PKTR", lowest: 1, highest: 1, agent: "evil".to_owned() })
    }

    /// Sends the first messages of a called end; returns the caller's `Open`.
    pub(super) fn be_called(&mut self) -> Option<Open> {
        self.send(&Self::hello());
        let open = self.wait_for(|message| match message {
            Message::Open(open) => Some(open.clone()),
            _ => None,
        });
        self.send(&Message::Opened(Opened { channel: packtrain_runtime::sample_answer() }));
        open
    }

    /// Sends the first messages of a caller, and waits for `Opened`.
    pub(super) fn call(&mut self, open: Open) -> Option<()> {
        self.send(&Self::hello());
        self.send(&Message::Open(open));
        self.wait_for(|message| match message {
            Message::Opened(_) => Some(()),
            _ => None,
        })
    }

    /// Sends messages by the choices, until they are used up or the other end has closed.
    pub(super) fn play(&mut self, choices: &mut Choices<'_>) {
        while !choices.is_empty() {
            let (message, announced) = script::message(choices, self.announced);
            self.announced = announced;
            if !self.send(&message) || matches!(self.receive(MOMENT), Received::Closed) {
                return;
            }
        }
        self.drain();
    }
}

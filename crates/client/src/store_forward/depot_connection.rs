//! A connection to a depot, for the sender and the receiver of a kept session.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;

use packtrain_net::tcp::{ConnectOptions, connect, describe, tune};
use packtrain_os::clock;
use packtrain_service::{STOPPED, StopHandle, executor};
use packtrain_session::spool::{FRAME_HEAD, Frame};
use packtrain_session::{ANSWER_HEAD, Answer, Place, Reason, Refusal};
use packtrain_transfer::{Failure, FailureKind};
use packtrain_units::{ByteCount, Duration};

/// Timeout for the connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A depot that sends nothing for this long counts as dead.
pub(super) const SILENCE_TIMEOUT: Duration = Duration::from_secs(20);
/// How often a request to stop is checked while nothing comes.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// Why a depot does not carry out a request.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum DepotError {
    /// It refused.
    #[error("the depot {0} refuses: {1}")]
    Refused(Place, Refusal),
    /// It is unreachable, or closed the connection.
    #[error("the depot {0}: {1}")]
    Unreachable(Place, String),
}

impl DepotError {
    /// Whether the same request would fail again.
    pub(super) fn is_final(&self) -> bool {
        matches!(self, Self::Refused(_, refusal) if !refusal.reason.passes())
    }

    /// Minimum pause before the next try.
    pub(super) fn wait(&self) -> Option<Duration> {
        match self {
            Self::Refused(_, refusal) => refusal.retry_after,
            Self::Unreachable(..) => None,
        }
    }
}

impl From<&DepotError> for Failure {
    fn from(error: &DepotError) -> Self {
        let kind = match error {
            DepotError::Unreachable(..) => FailureKind::Temporary,
            DepotError::Refused(_, refusal) => match refusal.reason {
                Reason::NotAuthorised | Reason::Forbidden => FailureKind::NotAuthorised,
                Reason::Absent => FailureKind::SourceMissing,
                reason if reason.passes() => FailureKind::Temporary,
                Reason::TooLong | Reason::Loop => FailureKind::Usage,
                _ => FailureKind::Fatal,
            },
        };
        let mut text = error.to_string();
        if let Some(wait) = error.wait() {
            text = format!("{text}; come again in {}", wait.to_readable());
        }
        Failure::new(kind, text)
    }
}

/// A connection to a depot that accepted the header.
#[derive(Debug)]
pub(super) struct DepotConnection {
    pub(super) place: Place,
    socket: TcpStream,
    /// Ends the connection, and what waits for the depot; whoever waits asks it before the error.
    stop: StopHandle,
}

impl DepotConnection {
    /// Connects, sends `hello`, and waits for its acceptance.
    pub(super) fn open(
        place: &Place,
        hello: &[u8],
        buffers: Option<ByteCount>,
        stop: &StopHandle,
    ) -> Result<Self, DepotError> {
        let away = |text: String| DepotError::Unreachable(place.clone(), text);
        let options = ConnectOptions { timeout: CONNECT_TIMEOUT, ..ConnectOptions::default() };
        let host = place.host.to_string();
        let connected = stop.unless_stopped(connect(&host, place.port, &options));
        let connected = executor::handle().block_on(connected);
        let socket = connected.ok_or_else(|| away(STOPPED.to_owned()))?;
        let socket = socket.map_err(|e| away(e.to_string()))?.into_std();
        let blocking = socket.and_then(|socket| socket.set_nonblocking(false).map(|()| socket));
        let socket = blocking.map_err(|e| away(e.to_string()))?;
        let line = Self { place: place.clone(), socket, stop: stop.clone() };
        line.greet(hello, buffers)
    }

    fn greet(mut self, hello: &[u8], buffers: Option<ByteCount>) -> Result<Self, DepotError> {
        // These options are not required.
        let _ = self.socket.set_nodelay(true);
        if let Some(size) = buffers {
            let _ = tune::set_buffers(&self.socket, size);
        }
        // A write may wait as long as the depot delays its sender; the depot sends keepalive
        // messages meanwhile.
        let limits = self.socket.set_read_timeout(Some(STOP_CHECK.to_std()));
        limits.and_then(|()| self.socket.write_all(hello)).map_err(|e| self.away(&e))?;
        match self.answer(None)? {
            Answer::Accepted => Ok(self),
            Answer::Refused(refusal) => Err(DepotError::Refused(self.place, refusal)),
        }
    }

    fn away(&self, error: &std::io::Error) -> DepotError {
        let text = match error.kind() {
            ErrorKind::TimedOut | ErrorKind::WouldBlock => {
                format!("nothing comes from it for {}", SILENCE_TIMEOUT.to_readable())
            }
            _ => describe(error),
        };
        DepotError::Unreachable(self.place.clone(), text)
    }

    fn odd(&self, text: impl std::fmt::Display) -> DepotError {
        DepotError::Unreachable(self.place.clone(), text.to_string())
    }

    fn fill(&mut self, room: &mut [u8]) -> Result<(), DepotError> {
        let (mut heard, mut filled) = (clock::now(), 0);
        while filled < room.len() {
            let error = match self.socket.read(&mut room[filled..]) {
                Ok(0) => ErrorKind::UnexpectedEof.into(),
                Ok(count) => {
                    (heard, filled) = (clock::now(), filled + count);
                    continue;
                }
                Err(error) => error,
            };
            match error.kind() {
                ErrorKind::TimedOut | ErrorKind::WouldBlock => {
                    if self.stop.requested().is_some() {
                        return Err(DepotError::Unreachable(self.place.clone(), STOPPED.into()));
                    }
                    if clock::now().since(heard) >= SILENCE_TIMEOUT {
                        return Err(self.away(&error));
                    }
                }
                ErrorKind::Interrupted => {}
                _ => return Err(self.away(&error)),
            }
        }
        Ok(())
    }

    fn answer(&mut self, len: Option<u32>) -> Result<Answer, DepotError> {
        let mut bytes = vec![0; len.map_or(ANSWER_HEAD, |len| len as usize)];
        self.fill(&mut bytes)?;
        if len.is_none() {
            let head = bytes.first_chunk().ok_or_else(|| self.odd("too short an answer"))?;
            let text = Answer::text_len(head).map_err(|e| self.odd(e))?;
            bytes.resize(ANSWER_HEAD + text, 0);
            self.fill(&mut bytes[ANSWER_HEAD..])?;
        }
        Answer::read(&bytes).map_err(|e| self.odd(e))
    }

    /// The same connection, for another thread.
    pub(super) fn other(&self) -> Result<Self, DepotError> {
        let socket = self.socket.try_clone().map_err(|e| self.away(&e))?;
        Ok(Self { place: self.place.clone(), socket, stop: self.stop.clone() })
    }

    /// Closes it for all threads.
    pub(super) fn close(&self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }

    /// Reads the next frame; a refusal is an error.
    pub(super) fn frame(&mut self) -> Result<Frame, DepotError> {
        let mut head = [0; FRAME_HEAD];
        self.fill(&mut head)?;
        match Frame::read(&head).map_err(|e| self.odd(e))? {
            Frame::Refused { len } => match self.answer(Some(len))? {
                Answer::Refused(refusal) => Err(DepotError::Refused(self.place.clone(), refusal)),
                Answer::Accepted => Err(self.odd("a refusal that is none")),
            },
            frame => Ok(frame),
        }
    }

    /// Reads the record after its frame.
    pub(super) fn record(&mut self, len: u32) -> Result<Vec<u8>, DepotError> {
        let mut record = vec![0; len as usize];
        self.fill(&mut record)?;
        Ok(record)
    }

    /// Sends a frame and its record.
    pub(super) fn send(&mut self, frame: Frame, record: &[u8]) -> Result<(), DepotError> {
        let sent = self.socket.write_all(&frame.write());
        sent.and_then(|()| self.socket.write_all(record)).map_err(|e| self.away(&e))
    }
}

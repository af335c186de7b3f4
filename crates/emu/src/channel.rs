//! The messages between the two processes of an emulation: one line of JSON each.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::EmuError;
use crate::report::Report;

/// From the caller's process to the emulator's.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// The first message: the caller's process id and its payload for the child.
    Hello {
        /// Process id of the caller.
        pid: u32,
        /// Opaque data of the caller.
        payload: String,
    },
    /// A signal for the program.
    Signal(i32),
}

/// From the emulator's process to the caller's.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The program ended.
    Ended {
        /// Its exit code, 128 + n after signal n.
        code: i32,
        /// The report of the emulation.
        report: Box<Report>,
    },
    /// The emulation failed.
    Failed(Failure),
}

/// An [`EmuError`] in transfer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Failure {
    /// See [`EmuError::Forbidden`].
    Forbidden(String),
    /// See [`EmuError::Topology`].
    Topology(String),
    /// See [`EmuError::Start`].
    Start(String, i32),
    /// See [`EmuError::System`].
    System(String, i32),
}

impl From<EmuError> for Failure {
    fn from(error: EmuError) -> Self {
        let number = |error: &std::io::Error| error.raw_os_error().unwrap_or(0);
        match error {
            EmuError::Forbidden(why) => Self::Forbidden(why),
            EmuError::Start { program, source } => Self::Start(program, number(&source)),
            EmuError::System { what, source } if number(&source) != 0 => {
                Self::System(what, number(&source))
            }
            other => Self::Topology(other.to_string()),
        }
    }
}

impl From<Failure> for EmuError {
    fn from(failure: Failure) -> Self {
        let error = std::io::Error::from_raw_os_error;
        match failure {
            Failure::Forbidden(why) => Self::Forbidden(why),
            Failure::Topology(text) => Self::Topology(text),
            Failure::Start(program, number) => Self::Start { program, source: error(number) },
            Failure::System(what, number) => Self::System { what, source: error(number) },
        }
    }
}

/// One end of the channel.
#[derive(Debug)]
pub(crate) struct Channel {
    reader: BufReader<UnixStream>,
}

impl Channel {
    /// One end of a socket pair.
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self { reader: BufReader::new(stream) }
    }

    /// Sends a message. A closed peer is detected when reading.
    pub(crate) fn send(&mut self, message: &impl Serialize) {
        let mut line = serde_json::to_vec(message).unwrap_or_default();
        line.push(b'\n');
        let _ = self.reader.get_mut().write_all(&line);
    }

    /// Waits for the next message; none when the peer has closed.
    pub(crate) fn receive<M: DeserializeOwned>(&mut self) -> Option<M> {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line).ok()?;
        serde_json::from_slice(&line).ok()
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.get_ref().as_fd()
    }
}

/// Waits at most `millis` until one of these is readable or closed, and returns which are.
pub(crate) fn wait<const N: usize>(fds: [BorrowedFd<'_>; N], millis: Option<u32>) -> [bool; N] {
    let mut polls = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let limit = millis.map(|ms| Timespec {
        tv_sec: i64::from(ms / 1_000),
        tv_nsec: i64::from(ms % 1_000 * 1_000_000),
    });
    let _ = poll(&mut polls, limit.as_ref());
    polls.map(|poll| !poll.revents().is_empty())
}

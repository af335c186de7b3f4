//! Waits for several sockets at once, like `epoll`.

use std::collections::BTreeMap;
use std::sync::Arc;

use packtrain_os::clock;
use packtrain_units::Duration;

use crate::signal::PollSignal;
use crate::socket::Socket;

/// The events to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    /// The socket is readable or has ended.
    pub readable: bool,
    /// The socket is writable or has ended.
    pub writable: bool,
}

/// A socket with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The number that it was added with.
    pub key: u64,
    /// It is readable or has ended.
    pub readable: bool,
    /// It is writable or has ended.
    pub writable: bool,
}

/// Waits for any of several sockets. It is level-triggered: an event is reported as long as its
/// condition holds.
#[derive(Debug, Default)]
pub struct Poller {
    signal: Arc<PollSignal>,
    sockets: BTreeMap<u64, (Arc<Socket>, Interest)>,
}

impl Poller {
    /// A poller without sockets.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a socket with the number `key`; a socket with the same key is replaced.
    pub fn add(&mut self, socket: Arc<Socket>, key: u64, interest: Interest) {
        let mut state = socket.handle().shared.lock();
        if let Some(end) = state.ends.get_mut(&socket.id()) {
            end.signals.push(Arc::downgrade(&self.signal));
        }
        drop(state);
        self.sockets.insert(key, (socket, interest));
        self.signal.notify();
    }

    /// Removes a socket.
    pub fn remove(&mut self, key: u64) {
        self.sockets.remove(&key);
    }

    /// Waits until a socket has an event that it was added for, at most for `timeout`; returns
    /// those sockets, none after the timeout.
    pub fn wait(&self, timeout: Option<Duration>) -> Vec<Ready> {
        let until = timeout.map(|timeout| clock::now() + timeout);
        loop {
            // A notification from now on is about a change that the check below may miss.
            self.signal.clear();
            let ready = self.ready();
            let now = clock::now();
            if !ready.is_empty() || until.is_some_and(|until| until <= now) {
                return ready;
            }
            self.signal.wait(until);
        }
    }

    fn ready(&self) -> Vec<Ready> {
        let state = |socket: &Socket, interest: &Interest| {
            let (readable, writable) = socket.readiness(&socket.handle().shared.lock());
            (readable && interest.readable, writable && interest.writable)
        };
        let all = self.sockets.iter().map(|(key, (socket, interest))| {
            let (readable, writable) = state(socket, interest);
            Ready { key: *key, readable, writable }
        });
        all.filter(|ready| ready.readable || ready.writable).collect()
    }
}

//! Waiting for many sockets at once, as `epoll` does.

use std::collections::BTreeMap;
use std::sync::Arc;

use packtrain_os::clock;
use packtrain_units::Duration;

use crate::bell::Bell;
use crate::socket::Socket;

/// What somebody wants to know of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    /// That it can be read, or is over.
    pub readable: bool,
    /// That it can be written, or is over.
    pub writable: bool,
}

/// A socket that can do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The number that it was added with.
    pub key: u64,
    /// It can be read, or is over.
    pub readable: bool,
    /// It can be written, or is over.
    pub writable: bool,
}

/// Waits for any of several sockets. Level-triggered: what can still be done is told again.
#[derive(Debug, Default)]
pub struct Poller {
    bell: Arc<Bell>,
    sockets: BTreeMap<u64, (Arc<Socket>, Interest)>,
}

impl Poller {
    /// One that waits for nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits for this socket too; `key` tells which it is. A key that is in use is replaced.
    pub fn add(&mut self, socket: Arc<Socket>, key: u64, interest: Interest) {
        let mut state = socket.handle().shared.lock();
        if let Some(end) = state.ends.get_mut(&socket.id()) {
            end.bells.push(Arc::downgrade(&self.bell));
        }
        drop(state);
        self.sockets.insert(key, (socket, interest));
        self.bell.ring();
    }

    /// Waits for it no more.
    pub fn remove(&mut self, key: u64) {
        self.sockets.remove(&key);
    }

    /// Waits until a socket can do what it was added for, at the longest for `timeout`; gives
    /// those that can, none when the time is over.
    pub fn wait(&self, timeout: Option<Duration>) -> Vec<Ready> {
        let until = timeout.map(|timeout| clock::now() + timeout);
        loop {
            // Rings from now on are about what this look may miss.
            self.bell.clear();
            let ready = self.look();
            let now = clock::now();
            if !ready.is_empty() || until.is_some_and(|until| until <= now) {
                return ready;
            }
            self.bell.wait(until);
        }
    }

    fn look(&self) -> Vec<Ready> {
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

//! What a route knows of each of its connections: that something came, and how to end it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::net::{Shutdown, shutdown};

/// What is told of all connections of a route.
#[derive(Debug, Default)]
pub struct Pulse {
    received: AtomicU64,
    corrupted: AtomicBool,
}

impl Pulse {
    /// Bytes that came over any of them.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Whether the ends found other bytes than were sent, since it was last asked.
    pub(crate) fn take_corrupted(&self) -> bool {
        self.corrupted.swap(false, Ordering::Relaxed)
    }

    /// Whether that is to be looked into.
    pub(crate) fn is_corrupted(&self) -> bool {
        self.corrupted.load(Ordering::Relaxed)
    }
}

/// One connection.
#[derive(Debug)]
pub struct Line {
    socket: OwnedFd,
    pulse: Arc<Pulse>,
}

impl Line {
    /// Watches the connection of `socket`.
    pub fn new(socket: &impl AsFd, pulse: &Arc<Pulse>) -> std::io::Result<Arc<Self>> {
        let socket = socket.as_fd().try_clone_to_owned()?;
        Ok(Arc::new(Self { socket, pulse: Arc::clone(pulse) }))
    }

    /// So many bytes came.
    pub(super) fn came(&self, count: usize) {
        self.pulse.received.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// An end of it failed like this: whether the bytes were others is told on.
    pub fn failed(&self, error: &std::io::Error) {
        if packtrain_net::tcp::tls::is_corrupted(error) {
            self.pulse.corrupted.store(true, Ordering::Relaxed);
        }
    }

    /// Ends it at once, both ways.
    pub fn cut(&self) {
        // One that is gone already needs no end.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}

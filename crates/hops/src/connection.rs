//! The connections of a route: their activity, and how to close them.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::net::{Shutdown, shutdown};

/// The activity of all connections of a route.
#[derive(Debug, Default)]
pub struct RouteActivity {
    received: AtomicU64,
    corrupted: AtomicBool,
}

impl RouteActivity {
    /// Bytes received by all of them.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Whether an end detected corrupted bytes since the last call.
    pub(crate) fn take_corrupted(&self) -> bool {
        self.corrupted.swap(false, Ordering::Relaxed)
    }

    /// Whether a detected corruption is not handled yet.
    pub(crate) fn is_corrupted(&self) -> bool {
        self.corrupted.load(Ordering::Relaxed)
    }
}

/// One connection.
#[derive(Debug)]
pub struct RouteConnection {
    socket: OwnedFd,
    activity: Arc<RouteActivity>,
}

impl RouteConnection {
    /// Observes the connection of `socket`.
    pub fn new(socket: &impl AsFd, activity: &Arc<RouteActivity>) -> std::io::Result<Arc<Self>> {
        let socket = socket.as_fd().try_clone_to_owned()?;
        Ok(Arc::new(Self { socket, activity: Arc::clone(activity) }))
    }

    /// Adds received bytes.
    pub(super) fn add_received(&self, count: usize) {
        self.activity.received.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Reports an error of an end; an authentication error counts as corruption.
    pub fn failed(&self, error: &std::io::Error) {
        if packtrain_net::tcp::tls::is_corrupted(error) {
            self.activity.corrupted.store(true, Ordering::Relaxed);
        }
    }

    /// Closes it at once, in both directions.
    pub fn cut(&self) {
        // It may be closed already.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}

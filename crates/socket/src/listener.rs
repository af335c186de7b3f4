//! Accepts connections.

use parking_lot::Mutex;
use std::net::SocketAddr;

use packtrain_os::clock;
use packtrain_units::Duration;

use crate::error::Error;
use crate::handle::Handle;
use crate::shared::{End, State};
use crate::socket::Socket;

/// Maximum number of connections that wait for `accept`. Further ones are dropped, and their
/// callers try again.
pub(crate) const BACKLOG: usize = 128;

/// Accepts connections at a port. After a drop it accepts no more; accepted connections stay open.
#[derive(Debug)]
pub struct Listener {
    handle: Handle,
    timeout: Mutex<Option<Duration>>,
}

impl Listener {
    pub(crate) fn new(handle: Handle) -> Self {
        Self { handle, timeout: Mutex::new(None) }
    }

    /// The address that it listens at.
    pub fn local_addr(&self) -> SocketAddr {
        self.handle.local()
    }

    /// Sets how long [`Self::accept`] waits; zero does not wait, `None` (the default) waits without
    /// limit.
    pub fn set_timeout(&self, timeout: Option<Duration>) {
        *self.timeout.lock() = timeout;
    }

    /// Waits for a connection; returns it and its peer's address.
    ///
    /// # Errors
    /// [`Error::TimedOut`] after the timeout.
    pub fn accept(&self) -> Result<(Socket, SocketAddr), Error> {
        let timeout = *self.timeout.lock();
        let until = timeout.map(|timeout| clock::now() + timeout);
        let shared = &self.handle.shared;
        let (id, peer) = shared.wait(
            until,
            |state, _| Ok(self.take(state)),
            |state| Some(&mut state.accept_waiters),
        )?;
        Ok((Socket::new(self.handle.clone(), id, peer), peer))
    }

    /// Polls for a connection in a task.
    pub(crate) fn poll(
        &self,
        context: &std::task::Context<'_>,
    ) -> std::task::Poll<Result<(Socket, SocketAddr), Error>> {
        let mut state = self.handle.shared.lock();
        if let Some((id, peer)) = self.take(&mut state) {
            drop(state);
            return std::task::Poll::Ready(Ok((Socket::new(self.handle.clone(), id, peer), peer)));
        }
        if state.failed {
            return std::task::Poll::Ready(Err(Error::Failed));
        }
        state.accept_waiters.register(context);
        std::task::Poll::Pending
    }

    fn take(&self, state: &mut State) -> Option<(packtrain_udt4::SocketId, SocketAddr)> {
        loop {
            let id = state.endpoint.accept()?;
            // A connection that has ended already is skipped.
            let Some(connection) = state.endpoint.get(id) else { continue };
            let peer = connection.peer();
            // Events from before the accept are not repeated.
            let ended = connection.end_reason().cloned();
            let end = End { connected: true, ended, ..End::default() };
            state.ends.insert(id, end);
            return Some((id, peer));
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut state = self.handle.shared.lock();
        let now = clock::now();
        while let Some(id) = state.endpoint.accept() {
            state.endpoint.abort(now, id);
        }
        state.endpoint.stop_listening();
        state.closed = true;
        drop(state);
        self.handle.shared.wake();
    }
}

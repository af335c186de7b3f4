//! Accepting connections.

use parking_lot::Mutex;
use std::net::SocketAddr;

use packtrain_os::clock;
use packtrain_units::Duration;

use crate::error::Error;
use crate::handle::Handle;
use crate::shared::{End, State};
use crate::socket::Socket;

/// Connections that wait to be accepted; more are dropped, and their callers call again.
pub(crate) const BACKLOG: usize = 128;

/// Accepts connections at a port. Dropped, it accepts no more; what it accepted lives on.
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

    /// How long [`Self::accept`] waits; zero does not wait at all, `None` (the default) for ever.
    pub fn set_timeout(&self, timeout: Option<Duration>) {
        *self.timeout.lock() = timeout;
    }

    /// Waits for a connection; gives it and its peer's address.
    ///
    /// # Errors
    /// [`Error::TimedOut`] when the time set is over.
    pub fn accept(&self) -> Result<(Socket, SocketAddr), Error> {
        let timeout = *self.timeout.lock();
        let until = timeout.map(|timeout| clock::now() + timeout);
        let shared = &self.handle.shared;
        let (id, peer) =
            shared.wait(until, |state, _| Ok(self.take(state)), |state| Some(&mut state.door))?;
        Ok((Socket::new(self.handle.clone(), id, peer), peer))
    }

    /// The accepting half of a task's wait.
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
        state.door.register(context);
        std::task::Poll::Pending
    }

    fn take(&self, state: &mut State) -> Option<(packtrain_udt4::SocketId, SocketAddr)> {
        loop {
            let id = state.endpoint.accept()?;
            // One that is gone again is nobody's business.
            let Some(connection) = state.endpoint.get(id) else { continue };
            let peer = connection.peer();
            // What was told before anybody knew of it is not told again.
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

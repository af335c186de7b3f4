//! A connection.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use packtrain_os::clock;
use packtrain_udt4::{Connection, EndReason, Perf, SocketError, SocketId, Status};
use packtrain_units::{ByteCount, Duration, Time};

use crate::error::Error;
use crate::handle::Handle;
use crate::shared::{Calls, End, State, Waiters};

/// Maximum bytes copied while the port's lock is held, since the network thread waits for it.
const PIECE_BYTES: usize = 128 << 10;
/// Maximum bytes discarded while the lock is held: they are not copied.
const SKIP_BYTES: usize = 4 << 20;
/// No timeout.
const NO_TIMEOUT: u64 = u64::MAX;

/// A connection with a stream of bytes, or messages. Several threads may use it at once.
///
/// A drop closes it. Accepted data is delivered in the background, for at most
/// [`Options::linger`](crate::Options::linger) and as long as the process runs.
#[derive(Debug)]
pub struct Socket {
    handle: Handle,
    id: SocketId,
    peer: SocketAddr,
    recv_timeout: AtomicU64,
    send_timeout: AtomicU64,
}

impl Socket {
    pub(crate) fn new(handle: Handle, id: SocketId, peer: SocketAddr) -> Self {
        let (recv_timeout, send_timeout) = (AtomicU64::new(NO_TIMEOUT), AtomicU64::new(NO_TIMEOUT));
        Self { handle, id, peer, recv_timeout, send_timeout }
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// Its local port, on the address that the port was bound to.
    pub fn local_addr(&self) -> SocketAddr {
        self.handle.local()
    }

    /// Sets the timeout of receiving calls; `None` (the default) waits without limit, zero does not
    /// wait: then such calls return [`Error::WouldBlock`].
    pub fn set_recv_timeout(&self, timeout: Option<Duration>) {
        let nanos = timeout.map_or(NO_TIMEOUT, Duration::as_nanos);
        self.recv_timeout.store(nanos, Ordering::Relaxed);
    }

    /// Sets the timeout of sending calls.
    pub fn set_send_timeout(&self, timeout: Option<Duration>) {
        let nanos = timeout.map_or(NO_TIMEOUT, Duration::as_nanos);
        self.send_timeout.store(nanos, Ordering::Relaxed);
    }

    /// Sends bytes of a stream: as many as fit in the buffer, at least one. Waits while the buffer
    /// is full.
    ///
    /// # Errors
    /// [`Error::Ended`] after the end of the connection, [`Error::WouldBlock`],
    /// [`Error::TimedOut`].
    pub fn send(&self, bytes: &[u8]) -> Result<usize, Error> {
        if bytes.is_empty() {
            return Ok(0);
        }
        self.wait(&self.send_timeout, writing, |state, _| self.try_send(state, bytes))
    }

    /// Sends all bytes; the timeout applies to each wait.
    ///
    /// # Errors
    /// As for [`Self::send`]; the number of bytes sent before is unknown then.
    pub fn send_all(&self, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            let sent = self.send(bytes)?;
            bytes = &bytes[sent..];
        }
        Ok(())
    }

    /// Receives bytes of a stream, at least one. Zero means that the peer closed and everything was
    /// read.
    ///
    /// # Errors
    /// [`Error::Ended`] if the connection failed, [`Error::WouldBlock`], [`Error::TimedOut`].
    pub fn recv(&self, out: &mut [u8]) -> Result<usize, Error> {
        if out.is_empty() {
            return Ok(0);
        }
        self.wait(&self.recv_timeout, reading, |state, now| self.try_recv(state, now, out))
    }

    /// Receives and discards at most `most` bytes; returns their number. Zero as for
    /// [`Self::recv`].
    ///
    /// # Errors
    /// As for [`Self::recv`].
    pub fn skip(&self, most: usize) -> Result<usize, Error> {
        if most == 0 {
            return Ok(0);
        }
        let most = most.min(SKIP_BYTES);
        self.wait(&self.recv_timeout, reading, |state, now| {
            self.take(state, |connection| connection.skip(now, most))
        })
    }

    /// Sends a whole message. With `ttl` it is dropped if it was not delivered within that time.
    /// With `in_order` the peer reads it after earlier messages.
    ///
    /// # Errors
    /// [`Error::Call`] if it is larger than the send buffer; otherwise as for [`Self::send`].
    pub fn send_message(
        &self,
        message: &[u8],
        ttl: Option<Duration>,
        in_order: bool,
    ) -> Result<(), Error> {
        self.wait(&self.send_timeout, writing, |state, now| {
            let sent = connection(state, self.id)?.send_message(now, message, ttl, in_order)?;
            state.must_run |= sent;
            if sent && let Some(end) = state.ends.get_mut(&self.id) {
                end.accepted += message.len() as u64;
            }
            Ok(sent.then_some(()))
        })
    }

    /// Receives a whole message into `out`; returns its size, or `None` if the peer closed and
    /// everything was read.
    ///
    /// # Errors
    /// [`Error::Call`] if it is larger than `out`; the message is lost then. Otherwise as for
    /// [`Self::recv`].
    pub fn recv_message(&self, out: &mut [u8]) -> Result<Option<usize>, Error> {
        self.wait(&self.recv_timeout, reading, |state, now| {
            match self.read_with(state, |connection| connection.recv_message(now, out)) {
                Ok(size) => Ok(size.map(Some)),
                Err(e) => at_end(e.into()).map(|()| Some(None)),
            }
        })
    }

    /// Closes, and waits until everything sent is acknowledged, at most for
    /// [`Options::linger`](crate::Options::linger).
    ///
    /// # Errors
    /// [`Error::Ended`] if not everything was acknowledged.
    pub fn close(&self) -> Result<(), Error> {
        self.begin_close();
        let shared = &self.handle.shared;
        let closed = shared.wait(None, |state, _| self.try_close(state), writing(self.id));
        // The process may end after this call, so the peer should be informed first.
        shared.flush();
        closed
    }

    /// Closes without waiting: sent data is delivered in the background.
    pub fn begin_close(&self) {
        let mut calls = Calls::default();
        let mut state = self.handle.shared.lock();
        let now = clock::now();
        self.note_stats(&mut state);
        if let Some(end) = state.ends.get_mut(&self.id).filter(|end| end.ended.is_none()) {
            end.closing = true;
            state.endpoint.close(now, self.id);
            state.forward_events(now, &mut calls);
        }
        drop(state);
        calls.make();
        self.handle.shared.wake();
    }

    /// Closes at once: unacknowledged data is lost.
    pub fn abort(&self) {
        let mut calls = Calls::default();
        let mut state = self.handle.shared.lock();
        let now = clock::now();
        self.note_stats(&mut state);
        if let Some(end) = state.ends.get_mut(&self.id).filter(|end| end.ended.is_none()) {
            end.closing = true;
            state.endpoint.abort(now, self.id);
            state.forward_events(now, &mut calls);
        }
        drop(state);
        calls.make();
        self.handle.shared.wake();
    }

    /// The statistics of the connection. After a closed connection has ended they are those of the
    /// last call, or of the close.
    pub fn stats(&self) -> Perf {
        let mut state = self.handle.shared.lock();
        self.note_stats(&mut state);
        state.ends.get(&self.id).map(|end| end.last.clone()).unwrap_or_default()
    }

    /// Stores the current statistics, because those of a closed connection are removed with it.
    fn note_stats(&self, state: &mut State) {
        let Some(connection) = state.endpoint.get(self.id) else { return };
        if let Some(end) = state.ends.get_mut(&self.id).filter(|end| end.ended.is_none()) {
            end.last = connection.perf(clock::now());
        }
    }

    /// Number of payload bytes that the peer has acknowledged.
    pub fn acknowledged(&self) -> ByteCount {
        let state = self.handle.shared.lock();
        let Some(end) = state.ends.get(&self.id) else { return ByteCount::ZERO };
        let left = match (&end.ended, state.endpoint.get(self.id)) {
            (Some(EndReason::Closed), _) => 0,
            (None, Some(connection)) => connection.unacknowledged().get(),
            _ => end.unacknowledged,
        };
        ByteCount(end.accepted.saturating_sub(left))
    }

    /// Received, unread bytes; in a stream including those after a gap.
    pub fn received(&self) -> ByteCount {
        let state = self.handle.shared.lock();
        state.endpoint.get(self.id).map_or(ByteCount::ZERO, Connection::received)
    }

    /// Estimated number of datagrams that this host dropped at the port before they were read: the
    /// UDP receive buffer is too small for the rate, or the machine is busy.
    pub fn host_drops(&self) -> u64 {
        u64::from(self.handle.shared.lock().host_drops)
    }

    pub(crate) fn wait_connected(&self) -> Result<(), Error> {
        self.handle.shared.wait(None, |state, _| self.try_connected(state), writing(self.id))
    }

    pub(crate) fn try_connected(&self, state: &mut State) -> Result<Option<()>, Error> {
        let end = state.ends.get(&self.id).ok_or(Error::Closed)?;
        match &end.ended {
            Some(reason) => Err(reason.clone().into()),
            None => Ok(end.connected.then_some(())),
        }
    }

    pub(crate) fn try_send(&self, state: &mut State, bytes: &[u8]) -> Result<Option<usize>, Error> {
        let connection = connection(state, self.id)?;
        let waits = connection.has_unsent();
        let sent = connection.send(&bytes[..bytes.len().min(PIECE_BYTES)])?;
        // A network thread with unsent bytes waits for the pace or the window, not for more.
        state.must_run |= sent > 0 && !waits;
        if let Some(end) = state.ends.get_mut(&self.id) {
            end.accepted += sent as u64;
        }
        Ok((sent > 0).then_some(sent))
    }

    pub(crate) fn try_recv(
        &self,
        state: &mut State,
        now: Time,
        out: &mut [u8],
    ) -> Result<Option<usize>, Error> {
        let size = out.len().min(PIECE_BYTES);
        self.take(state, |connection| connection.recv(now, &mut out[..size]))
    }

    /// Reads bytes of a stream with `read`; `None` if there are none, 0 at the end.
    fn take(
        &self,
        state: &mut State,
        read: impl FnOnce(&mut Connection) -> Result<usize, SocketError>,
    ) -> Result<Option<usize>, Error> {
        match self.read_with(state, read) {
            Ok(got) => Ok((got > 0).then_some(got)),
            Err(e) => at_end(e.into()).map(|()| Some(0)),
        }
    }

    /// Reads with `take`. The network thread must run only if that makes a message to the peer due:
    /// an announcement of room after there was little.
    fn read_with<T>(
        &self,
        state: &mut State,
        take: impl FnOnce(&mut Connection) -> Result<T, SocketError>,
    ) -> Result<T, SocketError> {
        let connection = connection(state, self.id)?;
        let before = connection.poll_timeout();
        let taken = take(connection);
        let due = connection.poll_timeout();
        state.must_run |= due.is_some_and(|due| before.is_none_or(|before| due < before));
        taken
    }

    pub(crate) fn try_close(&self, state: &mut State) -> Result<Option<()>, Error> {
        let Some(end) = state.ends.get(&self.id) else { return Ok(Some(())) };
        match &end.ended {
            Some(EndReason::Closed) => Ok(Some(())),
            // The peer closed first, which is no error if it has everything.
            Some(EndReason::ByPeer) if end.unacknowledged == 0 => Ok(Some(())),
            Some(reason) => Err(reason.clone().into()),
            None => Ok(None),
        }
    }

    /// Number of readable bytes, whether the end has come, and whether sending would not wait.
    pub(crate) fn readiness(&self, state: &State) -> (bool, bool) {
        let ended = state.ends.get(&self.id).is_none_or(|end| end.ended.is_some());
        match state.endpoint.get(self.id) {
            Some(connection) => {
                let room = connection.status() == Status::Open
                    && connection.perf(clock::now()).send_room > ByteCount::ZERO;
                (ended || connection.is_readable(), ended || room)
            }
            None => (true, true),
        }
    }

    pub(crate) fn id(&self) -> SocketId {
        self.id
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Calls `attempt` until it returns a value, at most for `timeout`.
    fn wait<T, W>(
        &self,
        timeout: &AtomicU64,
        waiters: fn(SocketId) -> W,
        attempt: impl FnMut(&mut State, Time) -> Result<Option<T>, Error>,
    ) -> Result<T, Error>
    where
        W: Fn(&mut State) -> Option<&mut Waiters>,
    {
        let nanos = timeout.load(Ordering::Relaxed);
        let until = (nanos != NO_TIMEOUT).then(|| clock::now() + Duration::from_nanos(nanos));
        let shared = &self.handle.shared;
        let done = shared.wait(until, attempt, waiters(self.id));
        match done {
            Err(Error::TimedOut) if nanos == 0 => Err(Error::WouldBlock),
            done => done,
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let mut calls = Calls::default();
        let mut state = self.handle.shared.lock();
        let now = clock::now();
        if let Some(end) = state.ends.get_mut(&self.id) {
            end.orphan = true;
        }
        state.endpoint.close(now, self.id);
        state.forward_events(now, &mut calls);
        let gone = |c: Option<&Connection>| c.is_none_or(|c| c.status() == Status::Ended);
        if gone(state.endpoint.get(self.id)) {
            state.endpoint.abort(now, self.id);
            state.ends.remove(&self.id);
        }
        drop(state);
        calls.make();
    }
}

impl Read for &Socket {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        Ok(self.recv(out)?)
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(self.send(bytes)?)
    }

    /// Written data is sent without a flush; [`Socket::close`] waits for its delivery.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Socket {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        (&*self).read(out)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn connection(state: &mut State, id: SocketId) -> Result<&mut Connection, SocketError> {
    // The borrow of the endpoint must end before the check of the connection's end.
    let ended = state.ends.get(&id).and_then(|end| end.ended.clone());
    match state.endpoint.get_mut(id) {
        Some(connection) => Ok(connection),
        None => Err(SocketError::Ended(ended.unwrap_or(EndReason::Closed))),
    }
}

/// The end of a stream is not an error for a reader.
fn at_end(error: Error) -> Result<(), Error> {
    match error {
        Error::Ended(EndReason::ByPeer) => Ok(()),
        other => Err(other),
    }
}

fn reading(id: SocketId) -> impl Fn(&mut State) -> Option<&mut Waiters> {
    move |state: &mut State| state.ends.get_mut(&id).map(|end: &mut End| &mut end.reading)
}

fn writing(id: SocketId) -> impl Fn(&mut State) -> Option<&mut Waiters> {
    move |state: &mut State| state.ends.get_mut(&id).map(|end: &mut End| &mut end.writing)
}

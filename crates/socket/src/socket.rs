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

/// The most bytes copied under the port's lock: the network thread waits for it.
const PIECE: usize = 128 << 10;
/// No limit of time.
const EVER: u64 = u64::MAX;

/// A connection: a stream of bytes, or messages. May be used from several threads at once.
///
/// Dropped, it is closed; what was sent is delivered in the background, for as long as
/// [`Options::linger`](crate::Options::linger) says, if the process lives on.
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
        let (recv_timeout, send_timeout) = (AtomicU64::new(EVER), AtomicU64::new(EVER));
        Self { handle, id, peer, recv_timeout, send_timeout }
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// The port that it uses, on the address that the port was bound to.
    pub fn local_addr(&self) -> SocketAddr {
        self.handle.local()
    }

    /// How long a receiving call waits; `None` (the default) is for ever, zero not at all: then
    /// such calls give [`Error::WouldBlock`].
    pub fn set_recv_timeout(&self, timeout: Option<Duration>) {
        let nanos = timeout.map_or(EVER, Duration::as_nanos);
        self.recv_timeout.store(nanos, Ordering::Relaxed);
    }

    /// The same for sending calls.
    pub fn set_send_timeout(&self, timeout: Option<Duration>) {
        let nanos = timeout.map_or(EVER, Duration::as_nanos);
        self.send_timeout.store(nanos, Ordering::Relaxed);
    }

    /// Sends bytes of a stream: as many as there is room for, at least one. Waits for room.
    ///
    /// # Errors
    /// [`Error::Ended`] when the connection is over, [`Error::WouldBlock`], [`Error::TimedOut`].
    pub fn send(&self, bytes: &[u8]) -> Result<usize, Error> {
        if bytes.is_empty() {
            return Ok(0);
        }
        self.wait(&self.send_timeout, writing, |state, _| self.try_send(state, bytes))
    }

    /// Sends all of it, however long that takes; the time limit is for each wait.
    ///
    /// # Errors
    /// As for [`Self::send`]; how much was sent before is not known then.
    pub fn send_all(&self, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            let sent = self.send(bytes)?;
            bytes = &bytes[sent..];
        }
        Ok(())
    }

    /// Receives bytes of a stream, at least one. Zero means that the peer closed and everything
    /// was read.
    ///
    /// # Errors
    /// [`Error::Ended`] when the connection broke, [`Error::WouldBlock`], [`Error::TimedOut`].
    pub fn recv(&self, out: &mut [u8]) -> Result<usize, Error> {
        if out.is_empty() {
            return Ok(0);
        }
        self.wait(&self.recv_timeout, reading, |state, now| self.try_recv(state, now, out))
    }

    /// Receives and forgets at most `most` bytes; gives how many. Zero as for [`Self::recv`].
    ///
    /// # Errors
    /// As for [`Self::recv`].
    pub fn skip(&self, most: usize) -> Result<usize, Error> {
        let mut nowhere = [0; 32 << 10];
        let size = nowhere.len().min(most);
        self.recv(&mut nowhere[..size])
    }

    /// Sends a message whole. With `ttl` it is given up when it was not delivered in that time;
    /// with `in_order` the peer reads it after those sent before it.
    ///
    /// # Errors
    /// [`Error::Call`] when it is larger than the send buffer; else as for [`Self::send`].
    pub fn send_message(
        &self,
        message: &[u8],
        ttl: Option<Duration>,
        in_order: bool,
    ) -> Result<(), Error> {
        self.wait(&self.send_timeout, writing, |state, now| {
            let sent = connection(state, self.id)?.send_message(now, message, ttl, in_order)?;
            if sent && let Some(end) = state.ends.get_mut(&self.id) {
                end.accepted += message.len() as u64;
            }
            Ok(sent.then_some(()))
        })
    }

    /// Receives a message whole into `out`; gives its size, or none when the peer closed and
    /// everything was read.
    ///
    /// # Errors
    /// [`Error::Call`] when it is larger than `out`, and lost; else as for [`Self::recv`].
    pub fn recv_message(&self, out: &mut [u8]) -> Result<Option<usize>, Error> {
        self.wait(&self.recv_timeout, reading, |state, now| {
            match connection(state, self.id).map_err(Error::from) {
                Ok(connection) => match connection.recv_message(now, out) {
                    Ok(size) => Ok(size.map(Some)),
                    Err(e) => at_end(e.into()).map(|()| Some(None)),
                },
                Err(e) => at_end(e).map(|()| Some(None)),
            }
        })
    }

    /// Closes, and waits until everything sent is acknowledged, at the longest for
    /// [`Options::linger`](crate::Options::linger).
    ///
    /// # Errors
    /// [`Error::Ended`] when not everything was acknowledged.
    pub fn close(&self) -> Result<(), Error> {
        self.begin_close();
        let shared = &self.handle.shared;
        let closed = shared.wait(None, |state, _| self.try_close(state), writing(self.id));
        // The process may end now: the peer should have been told.
        shared.flush();
        closed
    }

    /// Closes and does not wait: what was sent is delivered in the background.
    pub fn begin_close(&self) {
        let mut calls = Calls::default();
        let mut state = self.handle.shared.lock();
        let now = clock::now();
        self.note_stats(&mut state);
        if let Some(end) = state.ends.get_mut(&self.id).filter(|end| end.ended.is_none()) {
            end.closing = true;
            state.endpoint.close(now, self.id);
            state.tell(now, &mut calls);
        }
        drop(state);
        calls.make();
        self.handle.shared.wake();
    }

    /// Closes at once: what is not acknowledged yet is lost.
    pub fn abort(&self) {
        let mut calls = Calls::default();
        let mut state = self.handle.shared.lock();
        let now = clock::now();
        self.note_stats(&mut state);
        if let Some(end) = state.ends.get_mut(&self.id).filter(|end| end.ended.is_none()) {
            end.closing = true;
            state.endpoint.abort(now, self.id);
            state.tell(now, &mut calls);
        }
        drop(state);
        calls.make();
        self.handle.shared.wake();
    }

    /// What the connection has done so far. Of one that was closed here and is over: what it had
    /// done when it was last asked, or closed.
    pub fn stats(&self) -> Perf {
        let mut state = self.handle.shared.lock();
        self.note_stats(&mut state);
        state.ends.get(&self.id).map(|end| end.last.clone()).unwrap_or_default()
    }

    /// Keeps the statistics as they are now: a connection that was closed here takes them along.
    fn note_stats(&self, state: &mut State) {
        let Some(connection) = state.endpoint.get(self.id) else { return };
        if let Some(end) = state.ends.get_mut(&self.id).filter(|end| end.ended.is_none()) {
            end.last = connection.perf(clock::now());
        }
    }

    /// Payload bytes that the peer has acknowledged.
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

    /// Bytes that arrived and were not read; of a stream, those behind a gap included.
    pub fn received(&self) -> ByteCount {
        let state = self.handle.shared.lock();
        state.endpoint.get(self.id).map_or(ByteCount::ZERO, Connection::received)
    }

    /// Datagrams that this host dropped at the port before they were read, estimated: the UDP
    /// receive buffer is too small for the rate, or the machine is busy.
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
        let sent = connection(state, self.id)?.send(&bytes[..bytes.len().min(PIECE)])?;
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
        let size = out.len().min(PIECE);
        match connection(state, self.id).and_then(|c| c.recv(now, &mut out[..size])) {
            Ok(got) => Ok((got > 0).then_some(got)),
            Err(e) => at_end(e.into()).map(|()| Some(0)),
        }
    }

    pub(crate) fn try_close(&self, state: &mut State) -> Result<Option<()>, Error> {
        let Some(end) = state.ends.get(&self.id) else { return Ok(Some(())) };
        match &end.ended {
            Some(EndReason::Closed) => Ok(Some(())),
            // The peer went first: fine, if it has everything.
            Some(EndReason::ByPeer) if end.unacknowledged == 0 => Ok(Some(())),
            Some(reason) => Err(reason.clone().into()),
            None => Ok(None),
        }
    }

    /// Bytes that can be read, whether the end has come, and whether there is room to send.
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

    /// Waits as long as `timeout` says for `attempt` to give something.
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
        let until = (nanos != EVER).then(|| clock::now() + Duration::from_nanos(nanos));
        let shared = &self.handle.shared;
        let done = shared.wait(until, attempt, waiters(self.id));
        match done {
            Err(Error::TimedOut) if nanos == 0 => Err(Error::WouldBlock),
            Ok(done) => {
                // There is something new to send, or room that the peer may be told of.
                shared.wake();
                Ok(done)
            }
            failed => failed,
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
        state.tell(now, &mut calls);
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

    /// What was written is on its way already; [`Socket::close`] waits for it.
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
    // The borrow of the endpoint must not outlive the look at the end.
    let ended = state.ends.get(&id).and_then(|end| end.ended.clone());
    match state.endpoint.get_mut(id) {
        Some(connection) => Ok(connection),
        None => Err(SocketError::Ended(ended.unwrap_or(EndReason::Closed))),
    }
}

/// The end of a stream is no error to who reads.
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

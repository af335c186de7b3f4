//! The same for tasks of any runtime: calls that say `Pending` and wake the task later. For each
//! direction of a socket one task is remembered, the last that asked.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use packtrain_os::clock;
use packtrain_udt4::Options;
use packtrain_units::Time;

use crate::error::Error;
use crate::listener::Listener;
use crate::port::Port;
use crate::shared::{End, State, Waiters};
use crate::socket::Socket;

impl Socket {
    /// Connects from a port of its own, as [`Socket::connect`] does.
    ///
    /// # Errors
    /// As there.
    pub async fn connect_async(peer: SocketAddr, options: &Options) -> Result<Self, Error> {
        let socket = Port::towards(peer)?.start(peer, options)?;
        poll_fn(|cx| socket.poll(cx, |end| &mut end.writing, |s, _| socket.try_connected(s)))
            .await?;
        Ok(socket)
    }

    /// Sends bytes of a stream, as [`Socket::send`] does.
    ///
    /// # Errors
    /// As there, without those of time.
    pub fn poll_send(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize, Error>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.poll(cx, |end| &mut end.writing, |state, _| self.try_send(state, bytes))
    }

    /// Receives bytes of a stream, as [`Socket::recv`] does.
    ///
    /// # Errors
    /// As there, without those of time.
    pub fn poll_recv(&self, cx: &mut Context<'_>, out: &mut [u8]) -> Poll<Result<usize, Error>> {
        if out.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.poll(cx, |end| &mut end.reading, |state, now| self.try_recv(state, now, out))
    }

    /// Closes, as [`Socket::close`] does.
    ///
    /// # Errors
    /// As there.
    pub fn poll_close(&self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.begin_close();
        self.poll(cx, |end| &mut end.writing, |state, _| self.try_close(state))
    }

    /// [`Self::poll_send`] as a future.
    ///
    /// # Errors
    /// As there.
    pub async fn send_async(&self, bytes: &[u8]) -> Result<usize, Error> {
        poll_fn(|cx| self.poll_send(cx, bytes)).await
    }

    /// [`Self::poll_recv`] as a future.
    ///
    /// # Errors
    /// As there.
    pub async fn recv_async(&self, out: &mut [u8]) -> Result<usize, Error> {
        poll_fn(|cx| self.poll_recv(cx, out)).await
    }

    /// [`Self::poll_close`] as a future.
    ///
    /// # Errors
    /// As there.
    pub async fn close_async(&self) -> Result<(), Error> {
        poll_fn(|cx| self.poll_close(cx)).await
    }

    fn poll<T>(
        &self,
        cx: &Context<'_>,
        waiters: impl Fn(&mut End) -> &mut Waiters,
        mut attempt: impl FnMut(&mut State, Time) -> Result<Option<T>, Error>,
    ) -> Poll<Result<T, Error>> {
        let mut state = self.handle().shared.lock();
        let done = attempt(&mut state, clock::now()).transpose();
        if done.is_none() {
            if state.failed {
                return Poll::Ready(Err(Error::Failed));
            }
            let end = state.ends.get_mut(&self.id());
            return match end {
                None => Poll::Ready(Err(Error::Closed)),
                Some(end) => {
                    waiters(end).register(cx);
                    Poll::Pending
                }
            };
        }
        drop(state);
        self.handle().shared.wake();
        done.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Listener {
    /// Waits for a connection, as [`Listener::accept`] does. One task at a time is remembered.
    ///
    /// # Errors
    /// [`Error::Failed`] when the network thread is gone.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<Result<(Socket, SocketAddr), Error>> {
        self.poll(cx)
    }

    /// [`Self::poll_accept`] as a future.
    ///
    /// # Errors
    /// As there.
    pub async fn accept_async(&self) -> Result<(Socket, SocketAddr), Error> {
        poll_fn(|cx| self.poll(cx)).await
    }
}

//! Asynchronous calls for tasks of any runtime: they return `Pending` and wake the task later. For
//! each direction of a socket one waiting task is stored, the last caller.

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
    /// Connects from a port of its own, like [`Socket::connect`].
    ///
    /// # Errors
    /// As for [`Socket::connect`].
    pub async fn connect_async(peer: SocketAddr, options: &Options) -> Result<Self, Error> {
        let socket = Port::towards(peer)?.start(peer, options)?;
        poll_fn(|cx| socket.poll(cx, |end| &mut end.writing, |s, _| socket.try_connected(s)))
            .await?;
        Ok(socket)
    }

    /// Sends bytes of a stream, like [`Socket::send`].
    ///
    /// # Errors
    /// As for [`Socket::send`], without timeouts.
    pub fn poll_send(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize, Error>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.poll(cx, |end| &mut end.writing, |state, _| self.try_send(state, bytes))
    }

    /// Receives bytes of a stream, like [`Socket::recv`].
    ///
    /// # Errors
    /// As for [`Socket::recv`], without timeouts.
    pub fn poll_recv(&self, cx: &mut Context<'_>, out: &mut [u8]) -> Poll<Result<usize, Error>> {
        if out.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.poll(cx, |end| &mut end.reading, |state, now| self.try_recv(state, now, out))
    }

    /// Closes, like [`Socket::close`].
    ///
    /// # Errors
    /// As for [`Socket::close`].
    pub fn poll_close(&self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.begin_close();
        self.poll(cx, |end| &mut end.writing, |state, _| self.try_close(state))
    }

    /// [`Self::poll_send`] as a future.
    ///
    /// # Errors
    /// As for [`Self::poll_send`].
    pub async fn send_async(&self, bytes: &[u8]) -> Result<usize, Error> {
        poll_fn(|cx| self.poll_send(cx, bytes)).await
    }

    /// [`Self::poll_recv`] as a future.
    ///
    /// # Errors
    /// As for [`Self::poll_recv`].
    pub async fn recv_async(&self, out: &mut [u8]) -> Result<usize, Error> {
        poll_fn(|cx| self.poll_recv(cx, out)).await
    }

    /// [`Self::poll_close`] as a future.
    ///
    /// # Errors
    /// As for [`Self::poll_close`].
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
        let must_run = std::mem::take(&mut state.must_run);
        drop(state);
        if must_run {
            self.handle().shared.wake();
        }
        done.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Listener {
    /// Waits for a connection, like [`Listener::accept`]. One waiting task is stored.
    ///
    /// # Errors
    /// [`Error::Failed`] after the network thread has ended.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<Result<(Socket, SocketAddr), Error>> {
        self.poll(cx)
    }

    /// [`Self::poll_accept`] as a future.
    ///
    /// # Errors
    /// As for [`Self::poll_accept`].
    pub async fn accept_async(&self) -> Result<(Socket, SocketAddr), Error> {
        poll_fn(|cx| self.poll(cx)).await
    }
}

//! The sender's own end of a hop. The sender reads and writes a local stream.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use packtrain_os::entropy;
use packtrain_session::hop::Secret;
use packtrain_session::{Answer, HopTransport};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::{
    DatagramStatus, Hops, Link, LinkError, Ring, RouteActivity, RouteConnection, drain, feed,
};
use packtrain_service::cipher::has_aes;

/// A connection of this process: TCP, or a hop by datagrams behind a local socket pair.
#[derive(Debug)]
pub enum Carrier {
    /// TCP.
    Tcp(TcpStream),
    /// This end of a socket pair; a hop has the other end.
    Local(UnixStream),
    /// Either kind, with its activity reported to its route.
    Watched(Box<Carrier>, Arc<RouteConnection>),
}

impl Carrier {
    /// The same, with its activity reported to its route.
    pub(crate) fn watched(self, activity: &Arc<RouteActivity>) -> Self {
        match RouteConnection::new(&self, activity) {
            Ok(line) => Self::Watched(Box::new(self), line),
            // No descriptor is left: the connection works without the report.
            Err(_) => self,
        }
    }

    /// The connection itself, never a `Watched` one.
    fn inner(&self) -> &Self {
        match self {
            Self::Watched(inner, _) => inner,
            own => own,
        }
    }

    /// The entry of this connection in its route.
    pub fn line(&self) -> Option<Arc<RouteConnection>> {
        match self {
            Self::Watched(_, line) => Some(Arc::clone(line)),
            Self::Tcp(_) | Self::Local(_) => None,
        }
    }
}

/// Connects by datagrams: `socket` is connected to a depot, and `header` is for it. Bytes written
/// to the carrier follow the header. The returned status is that of the hop's datagrams.
pub async fn call(
    mut socket: TcpStream,
    kind: HopTransport,
    header: &[u8],
    hops: &Arc<Hops>,
) -> io::Result<(Carrier, Arc<DatagramStatus>)> {
    let secret = Secret::new(entropy::bytes(), has_aes()).map_err(io::Error::other)?;
    socket.write_all(&[header, &secret.hello().write()].concat()).await?;
    let (near, mut far) = UnixStream::pair()?;
    let hops = Arc::clone(hops);
    let status = Arc::<DatagramStatus>::default();
    let told = Arc::clone(&status);
    tokio::spawn(async move {
        let (up, down) = (Ring::new(&hops.pool), Ring::new(&hops.pool));
        hops.pool.join();
        hops.pool.join();
        let ended = {
            let (read, write) = far.split();
            let mut link = Link::calling(&hops, kind, &mut socket, secret, told);
            let hop = link.run(&up, &down);
            let feed = async { Ok(feed(read, &up).await?) };
            let drain = async { Ok(drain(&down, write).await?) };
            tokio::try_join!(hop, feed, drain).map(drop)
        };
        hops.pool.leave();
        hops.pool.leave();
        match ended {
            Ok(()) => {}
            Err(error) => {
                packtrain_net::relay::cut(&socket);
                if let LinkError::Refused(refusal) = error {
                    // The reader may be gone.
                    let _ = far.write_all(&Answer::Refused(refusal).write()).await;
                }
            }
        }
    });
    Ok((Carrier::Local(near), status))
}

/// A connection that several tasks read and write.
pub trait Socket {
    /// Waits until bytes may be read.
    fn readable(&self) -> impl Future<Output = io::Result<()>> + Send;
    /// Waits until bytes may be written.
    fn writable(&self) -> impl Future<Output = io::Result<()>> + Send;
    /// Reads available bytes into `room` without waiting; returns their number, 0 at the end.
    fn try_read(&self, room: &mut [u8]) -> io::Result<usize>;
    /// Writes as many bytes as possible without waiting; returns their number.
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;
}

impl Socket for TcpStream {
    async fn readable(&self) -> io::Result<()> {
        TcpStream::readable(self).await
    }

    async fn writable(&self) -> io::Result<()> {
        TcpStream::writable(self).await
    }

    fn try_read(&self, room: &mut [u8]) -> io::Result<usize> {
        TcpStream::try_read(self, room)
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        TcpStream::try_write(self, bytes)
    }
}

impl Socket for Carrier {
    async fn readable(&self) -> io::Result<()> {
        match self.inner() {
            Self::Local(socket) => socket.readable().await,
            Self::Tcp(socket) => socket.readable().await,
            Self::Watched(..) => Ok(()),
        }
    }

    async fn writable(&self) -> io::Result<()> {
        match self.inner() {
            Self::Local(socket) => socket.writable().await,
            Self::Tcp(socket) => socket.writable().await,
            Self::Watched(..) => Ok(()),
        }
    }

    fn try_read(&self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.try_read(room),
            Self::Local(socket) => socket.try_read(room),
            Self::Watched(inner, _) => inner.try_read(room),
        }
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.try_write(bytes),
            Self::Local(socket) => socket.try_write(bytes),
            Self::Watched(inner, _) => inner.try_write(bytes),
        }
    }
}

impl AsFd for Carrier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Local(socket) => socket.as_fd(),
            Self::Watched(inner, _) => inner.as_fd(),
        }
    }
}

impl AsyncRead for Carrier {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_read(cx, room),
            Self::Local(socket) => Pin::new(socket).poll_read(cx, room),
            Self::Watched(inner, line) => {
                let before = room.filled().len();
                let polled = Pin::new(&mut **inner).poll_read(cx, room);
                line.add_received(room.filled().len() - before);
                polled
            }
        }
    }
}

impl AsyncWrite for Carrier {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_write(cx, bytes),
            Self::Local(socket) => Pin::new(socket).poll_write(cx, bytes),
            Self::Watched(inner, _) => Pin::new(&mut **inner).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_write_vectored(cx, slices),
            Self::Local(socket) => Pin::new(socket).poll_write_vectored(cx, slices),
            Self::Watched(inner, _) => Pin::new(&mut **inner).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_flush(cx),
            Self::Local(socket) => Pin::new(socket).poll_flush(cx),
            Self::Watched(inner, _) => Pin::new(&mut **inner).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::Local(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::Watched(inner, _) => Pin::new(&mut **inner).poll_shutdown(cx),
        }
    }
}

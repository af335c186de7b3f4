//! A UDP port and its network thread.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use packtrain_net::udp::Lane;
use packtrain_net::udp::UdpSocket;
use packtrain_os::{clock, entropy, thread};
use packtrain_udt4::{Endpoint, Options, Secret, SocketId};

use crate::driver;
use crate::error::Error;
use crate::listener::Listener;
use crate::shared::{End, Shared};
use crate::socket::Socket;

/// One UDP port: any number of connections and at most one listener share it. Its network thread
/// ends when nothing of it is left in anybody's hands and what was closed has been delivered.
#[derive(Debug)]
pub struct Port {
    handle: Handle,
}

/// Keeps a port's network thread running.
pub(crate) struct Handle {
    pub(crate) shared: Arc<Shared>,
    local: SocketAddr,
}

impl Port {
    /// Binds a UDP port; port 0 is one that the system chooses. The address `[::]` takes IPv4 as
    /// well.
    ///
    /// # Errors
    /// [`Error::Bind`], or [`Error::System`] when there is no thread to be had.
    pub fn bind(addr: SocketAddr) -> Result<Self, Error> {
        let mut socket = UdpSocket::bind(addr)?;
        // Stock ends send what is larger than a link in fragments, and so must we.
        socket.allow_fragments();
        let local = socket.local_addr();
        let (waker, sleeper) = thread::pair()?;
        let endpoint = Endpoint::new(&Secret(entropy::bytes()));
        let shared = Arc::new(Shared::new(endpoint, waker));
        let handle = Handle::new(Arc::clone(&shared), local);
        std::thread::Builder::new()
            .name("pt-udt4".to_owned())
            .spawn(move || driver::run(Lane::new(socket), shared, sleeper))?;
        Ok(Self { handle })
    }

    /// A port that can reach `peer`.
    pub(crate) fn towards(peer: SocketAddr) -> Result<Self, Error> {
        match peer {
            SocketAddr::V4(_) => Self::bind((Ipv4Addr::UNSPECIFIED, 0).into()),
            SocketAddr::V6(_) => Self::bind((Ipv6Addr::UNSPECIFIED, 0).into()),
        }
    }

    /// The address that it is bound to.
    pub fn local_addr(&self) -> SocketAddr {
        self.handle.local
    }

    /// Connects from this port; with [`Options::rendezvous`] the peer has to call this port at
    /// the same time.
    ///
    /// # Errors
    /// [`Error::Open`] for impossible options, [`Error::Connect`] when no connection comes about.
    pub fn connect(&self, peer: SocketAddr, options: &Options) -> Result<Socket, Error> {
        let socket = self.start(peer, options)?;
        socket.wait_connected()?;
        Ok(socket)
    }

    /// Begins to connect: a socket that is not connected yet.
    pub(crate) fn start(&self, peer: SocketAddr, options: &Options) -> Result<Socket, Error> {
        let mut state = self.handle.shared.lock();
        let id = state.endpoint.connect(clock::now(), peer, options)?;
        state.ends.insert(id, End::default());
        drop(state);
        self.handle.shared.wake();
        Ok(self.handle.socket(id, peer))
    }

    /// Listens on this port; what is accepted has these options.
    ///
    /// # Errors
    /// [`Error::Open`] for impossible options, or when it listens already.
    pub fn listen(&self, options: &Options) -> Result<Listener, Error> {
        let mut state = self.handle.shared.lock();
        state.endpoint.listen(options.clone(), crate::listener::BACKLOG)?;
        state.closed = false;
        drop(state);
        Ok(Listener::new(self.handle.clone()))
    }
}

impl Handle {
    fn new(shared: Arc<Shared>, local: SocketAddr) -> Self {
        shared.lock().handles += 1;
        Self { shared, local }
    }

    pub(crate) fn local(&self) -> SocketAddr {
        self.local
    }

    pub(crate) fn socket(&self, id: SocketId, peer: SocketAddr) -> Socket {
        Socket::new(self.clone(), id, peer)
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.shared), self.local)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.lock().handles -= 1;
        self.shared.wake();
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").field("local", &self.local).finish_non_exhaustive()
    }
}

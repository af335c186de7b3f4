//! A UDP port and its network thread.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use packtrain_net::udp::Lane;
use packtrain_net::udp::UdpSocket;
use packtrain_os::{clock, entropy, thread};
use packtrain_udt4::{Endpoint, Options, Secret};

use crate::driver;
use crate::error::Error;
use crate::handle::Handle;
use crate::listener::{BACKLOG, Listener};
use crate::shared::{End, Shared};
use crate::socket::Socket;

/// One UDP port: any number of connections and at most one listener share it. Its network thread
/// ends when nothing of it is left in anybody's hands and what was closed has been delivered.
#[derive(Debug)]
pub struct Port {
    handle: Handle,
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
        self.handle.local()
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
        Ok(Socket::new(self.handle.clone(), id, peer))
    }

    /// Listens on this port; what is accepted has these options.
    ///
    /// # Errors
    /// [`Error::Open`] for impossible options, or when it listens already.
    pub fn listen(&self, options: &Options) -> Result<Listener, Error> {
        let mut state = self.handle.shared.lock();
        state.endpoint.listen(options.clone(), BACKLOG)?;
        state.closed = false;
        drop(state);
        Ok(Listener::new(self.handle.clone()))
    }
}

impl Socket {
    /// Connects from a port of its own. The time limit is [`Options::connect_timeout`].
    ///
    /// # Errors
    /// [`Error::Open`] for impossible options, [`Error::Connect`] when no connection comes about.
    pub fn connect(peer: SocketAddr, options: &Options) -> Result<Self, Error> {
        Port::towards(peer)?.connect(peer, options)
    }

    /// Two ends that call each other at the same time, each from a port that the other knows.
    ///
    /// # Errors
    /// As for [`Self::connect`].
    pub fn rendezvous(
        local: SocketAddr,
        peer: SocketAddr,
        options: &Options,
    ) -> Result<Self, Error> {
        let options = Options { rendezvous: true, ..options.clone() };
        Port::bind(local)?.connect(peer, &options)
    }
}

impl Listener {
    /// Listens at an address; port 0 is one that the system chooses. What is accepted has these
    /// options.
    ///
    /// # Errors
    /// [`Error::Bind`] when the address cannot be had, [`Error::Open`] for impossible options.
    pub fn bind(addr: SocketAddr, options: &Options) -> Result<Self, Error> {
        Port::bind(addr)?.listen(options)
    }
}

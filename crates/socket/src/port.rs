//! A UDP port and its network thread.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use packtrain_net::udp::Lane;
use packtrain_net::udp::UdpSocket;
use packtrain_os::{clock, entropy, thread};
use packtrain_udt4::{Endpoint, Options, Secret};
use packtrain_units::ByteCount;

use crate::driver;
use crate::error::Error;
use crate::handle::Handle;
use crate::listener::{BACKLOG, Listener};
use crate::shared::{End, Shared};
use crate::socket::Socket;

/// Receive buffer that a port requests: that of the eight sockets of a `native` flow together. A
/// sender leaves slow start for good when it overflows.
const RECEIVE_BUFFER: ByteCount = ByteCount(64 << 20);

/// A UDP port, shared by any number of connections and at most one listener. Its network thread
/// ends when no handle of it is left and closed connections have delivered their data.
#[derive(Debug)]
pub struct Port {
    handle: Handle,
    /// The socket's receive buffer, if the system tells its size.
    buffer: Option<ByteCount>,
}

impl Port {
    /// Binds a UDP port; with port 0 the system chooses one. The address `[::]` accepts IPv4 as
    /// well.
    ///
    /// # Errors
    /// [`Error::Bind`], or [`Error::System`] if no thread can be started.
    /// [`Error::Bind`], or [`Error::System`] when there is no thread to be had.
    pub fn bind(addr: SocketAddr) -> Result<Self, Error> {
        let mut socket = UdpSocket::bind(addr)?;
        socket.request_receive_buffer(RECEIVE_BUFFER);
        // Stock ends send datagrams larger than the MTU in fragments, so this end must too.
        socket.allow_fragments();
        let local = socket.local_addr();
        let buffer = socket.buffer_sizes().ok().map(|sizes| sizes.receive);
        let (waker, sleeper) = thread::pair()?;
        let endpoint = Endpoint::new(&Secret(entropy::bytes()));
        let shared = Arc::new(Shared::new(endpoint, waker));
        let handle = Handle::new(Arc::clone(&shared), local);
        std::thread::Builder::new()
            .name("pt-udt4".to_owned())
            .spawn(move || driver::run(Lane::new(socket), shared, sleeper))?;
        Ok(Self { handle, buffer })
    }

    /// A port of the address family of `peer`.
    pub(crate) fn towards(peer: SocketAddr) -> Result<Self, Error> {
        match peer {
            SocketAddr::V4(_) => Self::bind((Ipv4Addr::UNSPECIFIED, 0).into()),
            SocketAddr::V6(_) => Self::bind((Ipv6Addr::UNSPECIFIED, 0).into()),
        }
    }

    /// The bound address.
    pub fn local_addr(&self) -> SocketAddr {
        self.handle.local()
    }

    /// Connects from this port. With [`Options::rendezvous`] the peer must connect to this port at
    /// the same time.
    ///
    /// # Errors
    /// [`Error::Open`] for invalid options, [`Error::Connect`] if no connection is made.
    /// [`Error::Open`] for impossible options, [`Error::Connect`] when no connection comes about.
    pub fn connect(&self, peer: SocketAddr, options: &Options) -> Result<Socket, Error> {
        let socket = self.start(peer, options)?;
        socket.wait_connected()?;
        Ok(socket)
    }

    /// Starts to connect; the returned socket is not connected yet.
    pub(crate) fn start(&self, peer: SocketAddr, options: &Options) -> Result<Socket, Error> {
        let mut state = self.handle.shared.lock();
        let id = state.endpoint.connect(clock::now(), peer, &self.with_buffer(options))?;
        state.ends.insert(id, End::default());
        drop(state);
        self.handle.shared.wake();
        Ok(Socket::new(self.handle.clone(), id, peer))
    }

    fn with_buffer(&self, options: &Options) -> Options {
        Options { socket_buffer: options.socket_buffer.or(self.buffer), ..options.clone() }
    }

    /// Listens on this port; accepted connections have these options.
    ///
    /// # Errors
    /// [`Error::Open`] for invalid options, or if the port has a listener already.
    pub fn listen(&self, options: &Options) -> Result<Listener, Error> {
        let mut state = self.handle.shared.lock();
        state.endpoint.listen(self.with_buffer(options), BACKLOG)?;
        state.closed = false;
        drop(state);
        Ok(Listener::new(self.handle.clone()))
    }
}

impl Socket {
    /// Connects from a port of its own. The timeout is [`Options::connect_timeout`].
    ///
    /// # Errors
    /// [`Error::Open`] for invalid options, [`Error::Connect`] if no connection is made.
    pub fn connect(peer: SocketAddr, options: &Options) -> Result<Self, Error> {
        Port::towards(peer)?.connect(peer, options)
    }

    /// Connects to a peer that connects to this end at the same time; each end knows the other's
    /// port.
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
    /// Listens at an address; with port 0 the system chooses one. Accepted connections have these
    /// options.
    ///
    /// # Errors
    /// [`Error::Bind`] if the address cannot be bound, [`Error::Open`] for invalid options.
    pub fn bind(addr: SocketAddr, options: &Options) -> Result<Self, Error> {
        Port::bind(addr)?.listen(options)
    }
}

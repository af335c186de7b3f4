//! The socket interface, the same on every system.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use packtrain_units::ByteCount;
use socket2::{Domain, Protocol, Type};

use super::buffers::{BufferSizes, receive_limit};
use super::platform;
use super::ports::PortRange;
use super::slab::RecvSlab;

/// Requested buffer size: twice 4 ms at 8 Gbit/s. The kernel grants what its limits allow.
const WANTED_BUFFER: ByteCount = ByteCount(8 << 20);

/// The lower-effort code point, 000001 (RFC 8622 section 4), at its position in the traffic class.
pub(crate) const LOWER_EFFORT: u8 = 1 << 2;

/// A bound, non-blocking UDP socket.
pub struct UdpSocket {
    inner: platform::Socket,
    local: SocketAddr,
}

/// Explicit congestion notification (RFC 3168 section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ecn {
    /// The transport does not support ECN.
    NotEct,
    /// It supports ECN, code point 1.
    Ect1,
    /// It supports ECN, code point 0.
    Ect0,
    /// A router on the path is congested.
    Ce,
}

/// The features of this socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// Splits one large send into datagrams (`UDP_SEGMENT`).
    pub segmentation: bool,
    /// Returns consecutive datagrams as one message (`UDP_GRO`).
    pub coalescing: bool,
    /// Reports the arrival times of datagrams.
    pub timestamps: bool,
    /// Reports congestion marks.
    pub ecn: bool,
    /// Sets the don't-fragment bit and leaves path MTU discovery to the engine.
    pub dont_fragment: bool,
}

/// Number of datagrams that the kernel dropped at this socket since it was opened, because the
/// buffer was full. A coalesced batch that is dropped counts as one (Linux 6.18). The counter
/// wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops(pub u32);

/// Why datagrams were not sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The send buffer is full: try again when the socket is writable.
    #[error("the socket's send buffer is full")]
    Blocked,
    /// A datagram is larger than the MTU of the first link.
    #[error("the datagram is larger than the first link carries")]
    TooBig,
    /// The system refused it: no route, a firewall rule, a full device queue. For the flow it is a
    /// lost datagram, and the reason may be temporary.
    #[error("the system refused the datagram: {0}")]
    Refused(#[source] io::Error),
}

/// Why no socket could be bound.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Every port of the range is in use.
    #[error("no free UDP port on {ip} in the range {ports}")]
    NoFreePort {
        /// The local address.
        ip: IpAddr,
        /// The range.
        ports: PortRange,
    },
    /// The system refused.
    #[error("cannot bind a UDP socket to {addr}: {source}")]
    System {
        /// The requested address.
        addr: SocketAddr,
        /// The error.
        #[source]
        source: io::Error,
    },
}

impl UdpSocket {
    /// Creates a socket bound to `addr`. The address `[::]` also accepts IPv4.
    ///
    /// # Errors
    /// [`BindError::System`] if the system refuses.
    pub fn bind(addr: SocketAddr) -> Result<Self, BindError> {
        Self::open(addr).map_err(|source| BindError::System { addr, source })
    }

    /// Creates a socket on `ip`, or on every address of this machine (IPv6 if available), with a
    /// port of the range. `turn` determines the first port to try.
    ///
    /// # Errors
    /// [`BindError::NoFreePort`] if all ports are in use, [`BindError::System`] for other errors.
    /// [`BindError::NoFreePort`] when all are taken, [`BindError::System`] for other refusals.
    pub fn bind_in(ip: Option<IpAddr>, ports: PortRange, turn: u64) -> Result<Self, BindError> {
        match ip {
            Some(ip) => Self::bind_port(ip, ports, turn),
            None => match Self::bind_port(Ipv6Addr::UNSPECIFIED.into(), ports, turn) {
                Err(BindError::System { .. }) => {
                    Self::bind_port(Ipv4Addr::UNSPECIFIED.into(), ports, turn)
                }
                done => done,
            },
        }
    }

    /// Creates sockets for the lanes of a flow: `count` of them, or as many as the range allows.
    ///
    /// # Errors
    /// As for [`Self::bind_in`], if not even one can be bound.
    pub fn bind_lanes(
        ip: Option<IpAddr>,
        ports: PortRange,
        count: usize,
        turn: u64,
    ) -> Result<Vec<Self>, BindError> {
        let mut sockets = vec![Self::bind_in(ip, ports, turn)?];
        while sockets.len() < count {
            match Self::bind_in(ip, ports, turn.wrapping_add(sockets.len() as u64)) {
                Ok(socket) => sockets.push(socket),
                Err(_) => break,
            }
        }
        Ok(sockets)
    }

    fn bind_port(ip: IpAddr, ports: PortRange, turn: u64) -> Result<Self, BindError> {
        if ports.is_any() {
            return Self::bind((ip, 0).into());
        }
        for port in ports.rotated(turn) {
            match Self::open((ip, port).into()) {
                Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
                other => {
                    return other
                        .map_err(|source| BindError::System { addr: (ip, port).into(), source });
                }
            }
        }
        Err(BindError::NoFreePort { ip, ports })
    }

    fn open(addr: SocketAddr) -> io::Result<Self> {
        let fd = socket2::Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
        if addr.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
            fd.set_only_v6(false)?;
        }
        // A system may refuse sizes above its limit, or reduce them silently.
        let _ = fd.set_recv_buffer_size(WANTED_BUFFER.get() as usize);
        let _ = fd.set_send_buffer_size(WANTED_BUFFER.get() as usize);
        fd.bind(&addr.into())?;
        let inner = platform::Socket::new(fd, addr.is_ipv6())?;
        let local = inner.fd().local_addr()?.as_socket().unwrap_or(addr);
        Ok(Self { inner, local })
    }

    /// The bound address.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Sends the datagrams in `bytes`, `segment` bytes each; the last may be shorter. Returns how
    /// many bytes the kernel accepted; fewer than all means that the buffer is full.
    ///
    /// # Errors
    /// [`SendError`]; the socket stays usable after each. After an error the rest of the batch is
    /// not sent.
    pub fn send(
        &mut self,
        to: SocketAddr,
        bytes: &[u8],
        segment: usize,
        ecn: Option<Ecn>,
    ) -> Result<usize, SendError> {
        let segment = segment.clamp(1, bytes.len().max(1));
        self.inner.send(to, bytes, segment, ecn).map_err(SendError::from)
    }

    /// Marks everything sent from now on as lower effort (RFC 8622): routers that support the mark
    /// prefer all other traffic.
    pub fn set_lower_effort(&mut self) {
        self.inner.set_class(LOWER_EFFORT);
    }

    /// Lets routers and this machine fragment datagrams that are too large for a link, for a
    /// protocol whose ends rely on it.
    pub fn allow_fragments(&mut self) {
        self.inner.allow_fragments();
    }

    /// Requests a receive buffer of this size instead of the default, for a protocol with one socket
    /// where a flow has several. The system's limit (`net.core.rmem_max`) applies.
    pub fn request_receive_buffer(&mut self, size: ByteCount) {
        // Refusal leaves the former size, which the buffer sizes show.
        let size = usize::try_from(size.get()).unwrap_or(usize::MAX);
        let _ = self.inner.fd().set_recv_buffer_size(size);
    }

    /// Receives pending datagrams into `slab`; returns the number of messages, zero if nothing is
    /// pending.
    ///
    /// # Errors
    /// The system's error, sometimes a delayed error of an earlier send: count it and continue.
    pub fn recv(&mut self, slab: &mut RecvSlab) -> io::Result<usize> {
        match self.inner.recv(slab) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(e) => Err(e),
            Ok(count) => Ok(count),
        }
    }

    /// The drop counter at the last receive call; needs no system call.
    pub fn seen_drops(&self) -> Drops {
        self.inner.seen_drops()
    }

    /// The current drop counter; needs a system call.
    pub fn drops(&mut self) -> Drops {
        self.inner.drops()
    }

    /// The features of this socket; segmentation becomes false if it is refused.
    pub fn offloads(&self) -> Offloads {
        self.inner.offloads()
    }

    /// The buffer sizes that the kernel granted.
    ///
    /// # Errors
    /// The system's error.
    pub fn buffer_sizes(&self) -> io::Result<BufferSizes> {
        let (receive, send) = self.inner.buffer_sizes()?;
        Ok(BufferSizes { receive, send, wanted: WANTED_BUFFER, receive_limit: receive_limit() })
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.borrow()
    }
}

impl Ecn {
    /// The two bits in the IP header.
    pub const fn bits(self) -> u8 {
        match self {
            Self::NotEct => 0,
            Self::Ect1 => 1,
            Self::Ect0 => 2,
            Self::Ce => 3,
        }
    }

    /// From the low two bits of the traffic class.
    pub(crate) fn from_tos(tos: &u8) -> Self {
        [Self::NotEct, Self::Ect1, Self::Ect0, Self::Ce][usize::from(tos & 3)]
    }
}

impl From<io::Error> for SendError {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            _ if error.kind() == io::ErrorKind::WouldBlock => Self::Blocked,
            Some(libc::EMSGSIZE) => Self::TooBig,
            _ => Self::Refused(error),
        }
    }
}

/// An IPv4-mapped IPv6 address of a dual-stack socket as IPv4.
pub(super) fn canonical(addr: SocketAddr) -> SocketAddr {
    match addr {
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => (v4, v6.port()).into(),
            None => addr,
        },
        SocketAddr::V4(_) => addr,
    }
}

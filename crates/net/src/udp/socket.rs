//! The socket as the rest of the program sees it, the same on every system.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use packtrain_units::ByteCount;
use socket2::{Domain, Protocol, Type};

use super::buffers::{BufferSizes, receive_limit};
use super::platform;
use super::ports::PortRange;
use super::slab::RecvSlab;

/// Buffer sizes that we ask the kernel for: 4 ms at 8 Gbit/s, twice over. It grants what its
/// limits allow.
const WANTED_BUFFER: ByteCount = ByteCount(8 << 20);

/// The lower-effort code point, 000001 (RFC 8622 section 4), in its place in the traffic class.
pub const LOWER_EFFORT: u8 = 1 << 2;

/// A bound UDP socket that never blocks.
pub struct UdpSocket {
    inner: platform::Socket,
    local: SocketAddr,
}

/// Explicit congestion notification (RFC 3168 section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ecn {
    /// The transport does not understand marks.
    NotEct,
    /// It does, code point 1.
    Ect1,
    /// It does, code point 0.
    Ect0,
    /// A router on the path is congested.
    Ce,
}

/// What the kernel does for this socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// Cuts one large send into datagrams (`UDP_SEGMENT`).
    pub segmentation: bool,
    /// Hands over datagrams that came back to back as one (`UDP_GRO`).
    pub coalescing: bool,
    /// Says when datagrams arrived.
    pub timestamps: bool,
    /// Says with which congestion mark.
    pub ecn: bool,
    /// Sets the don't-fragment bit and leaves the path's limit to us.
    pub dont_fragment: bool,
}

/// What the kernel dropped at this socket since it was opened, for want of buffer. A coalesced
/// batch that is dropped whole counts as one (Linux 6.18); the counter wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops(pub u32);

/// Why datagrams did not leave.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The send buffer is full: try again when the socket is writable.
    #[error("the socket's send buffer is full")]
    Blocked,
    /// A datagram is larger than the first link carries.
    #[error("the datagram is larger than the first link carries")]
    TooBig,
    /// The system refused: no route, a firewall's rule, a full device queue. For the flow it is
    /// a loss like any other, and may pass.
    #[error("the system refused the datagram: {0}")]
    Refused(#[source] io::Error),
}

/// Why no socket could be bound.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Every port of the range is taken.
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
        /// The address asked for.
        addr: SocketAddr,
        /// Its reason.
        #[source]
        source: io::Error,
    },
}

impl UdpSocket {
    /// A socket bound to `addr`. The address `[::]` takes IPv4 as well.
    ///
    /// # Errors
    /// [`BindError::System`] when the system refuses.
    pub fn bind(addr: SocketAddr) -> Result<Self, BindError> {
        Self::open(addr).map_err(|source| BindError::System { addr, source })
    }

    /// A socket on `ip`, or on every address of this machine, IPv6 where there is any, with a
    /// port of the range. `turn` says which port of the range is tried first.
    ///
    /// # Errors
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

    /// Sockets for the lanes of one flow: `count` of them, or as many as the range allows.
    ///
    /// # Errors
    /// As for [`Self::bind_in`] when not even one can be bound.
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
        // A system may refuse sizes above its limit, or cut them silently; both are fine.
        let _ = fd.set_recv_buffer_size(WANTED_BUFFER.get() as usize);
        let _ = fd.set_send_buffer_size(WANTED_BUFFER.get() as usize);
        fd.bind(&addr.into())?;
        let inner = platform::Socket::new(fd, addr.is_ipv6())?;
        let local = inner.fd().local_addr()?.as_socket().unwrap_or(addr);
        Ok(Self { inner, local })
    }

    /// The address that the socket is bound to.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Sends the datagrams in `bytes`, `segment` bytes each, the last perhaps fewer. Gives how
    /// many bytes the kernel took: less than all of them means that the buffer is full.
    ///
    /// # Errors
    /// [`SendError`]; none of them means that the socket is unusable. Of a batch that is refused
    /// none of the rest is sent.
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

    /// Marks everything sent from now on as lower effort (RFC 8622): routers that know the mark
    /// let all other traffic go first.
    pub fn set_lower_effort(&mut self) {
        self.inner.set_class(LOWER_EFFORT);
    }

    /// Lets routers, and this machine, cut datagrams that are too large for a link, for a wire
    /// whose ends rely on it.
    pub fn allow_fragments(&mut self) {
        self.inner.allow_fragments();
    }

    /// Takes what waits at the socket into `slab`; gives the number of messages, zero when
    /// nothing waits.
    ///
    /// # Errors
    /// What the system reports, at times late word of an earlier send: count it and go on.
    pub fn recv(&mut self, slab: &mut RecvSlab) -> io::Result<usize> {
        match self.inner.recv(slab) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(e) => Err(e),
            Ok(count) => Ok(count),
        }
    }

    /// The drop counter as the last receive call saw it; free.
    pub fn seen_drops(&self) -> Drops {
        self.inner.seen_drops()
    }

    /// The drop counter as it is now; one system call.
    pub fn drops(&mut self) -> Drops {
        self.inner.drops()
    }

    /// What the kernel does for this socket; segmentation turns false when it is refused.
    pub fn offloads(&self) -> Offloads {
        self.inner.offloads()
    }

    /// The sizes of the buffers that the kernel granted.
    ///
    /// # Errors
    /// What the system reports.
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
    /// The two bits as the IP header has them.
    pub const fn bits(self) -> u8 {
        match self {
            Self::NotEct => 0,
            Self::Ect1 => 1,
            Self::Ect0 => 2,
            Self::Ce => 3,
        }
    }

    /// From the low two bits of the header's traffic class.
    pub fn from_tos(tos: &u8) -> Self {
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

/// An IPv4 address that a dual-stack socket wrote as IPv6, as IPv4.
pub(super) fn canonical(addr: SocketAddr) -> SocketAddr {
    match addr {
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => (v4, v6.port()).into(),
            None => addr,
        },
        SocketAddr::V4(_) => addr,
    }
}

//! Listening, in a range of ports where a firewall asks for it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// Listens on `addr`; the unspecified IPv6 address takes IPv4 too. Call within a tokio runtime.
///
/// # Errors
/// What the kernel says, `AddrInUse` among it.
pub fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if addr.is_ipv6() {
        let both = addr.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        socket.set_only_v6(!both)?;
    }
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket.into())
}

/// Listens on the first free port of `ports`, on `ip` or on every address of both families.
/// No range means any port. Call within a tokio runtime.
///
/// # Errors
/// `AddrInUse` with the range when all its ports are taken; else what the kernel says.
pub fn listen_in(
    ip: Option<IpAddr>,
    ports: Option<RangeInclusive<u16>>,
) -> io::Result<TcpListener> {
    let ports = ports.unwrap_or(0..=0);
    for port in ports.clone() {
        let listening = match ip {
            Some(ip) => listen(SocketAddr::new(ip, port)),
            // A kernel without IPv6 still has IPv4.
            None => match listen((Ipv6Addr::UNSPECIFIED, port).into()) {
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                    listen((Ipv4Addr::UNSPECIFIED, port).into())
                }
                listening => listening,
            },
        };
        match listening {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied
                ) && port != *ports.end() => {}
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse && ports.start() != ports.end() =>
            {
                let (first, last) = ports.into_inner();
                let why =
                    format!("all ports from {first} to {last} are in use; give another range");
                return Err(io::Error::new(io::ErrorKind::AddrInUse, why));
            }
            listening => return listening,
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "the range of ports is empty"))
}

//! Listens, optionally in a range of ports for a firewall.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

/// Maximum number of connections that wait for `accept`.
const BACKLOG: i32 = 1024;

/// Listens on `addr`; the unspecified IPv6 address accepts IPv4 too. Call it within a tokio
/// runtime.
///
/// # Errors
/// The kernel's error, including `AddrInUse`.
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

/// Listens on the first free port of `ports`, on `ip` or on every address of both families. Without
/// a range the system chooses the port. Call it within a tokio runtime.
///
/// # Errors
/// `AddrInUse` with the range if all its ports are in use; otherwise the kernel's error.
pub fn listen_in(
    ip: Option<IpAddr>,
    ports: Option<RangeInclusive<u16>>,
) -> io::Result<TcpListener> {
    let ports = ports.unwrap_or(0..=0);
    for port in ports.clone() {
        let listening = match ip {
            Some(ip) => listen(SocketAddr::new(ip, port)),
            // The kernel may have no IPv6.
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

//! Settings of one TCP socket.

use std::io;
use std::os::fd::AsFd;

use packtrain_units::{ByteCount, Duration};
use rustix::net::sockopt;
use socket2::{SockRef, TcpKeepalive};

/// Marks what the socket sends as lower effort (RFC 8622).
///
/// # Errors
/// What the system reports.
pub fn set_lower_effort(socket: &impl AsFd) -> io::Result<()> {
    let class = u32::from(crate::udp::LOWER_EFFORT);
    let socket = SockRef::from(socket);
    let four = socket.set_tos_v4(class);
    // One of the two fits the socket's family.
    socket.set_tclass_v6(class).or(four)
}

/// Uses the kernel's congestion control `name` for this socket.
///
/// # Errors
/// `NotFound` when the kernel has none of that name, `PermissionDenied` when it is not allowed.
pub fn set_congestion(socket: &impl AsFd, name: &str) -> io::Result<()> {
    Ok(sockopt::set_tcp_congestion(socket, name)?)
}

/// The congestion controls that an ordinary user may choose here; empty where it is not known.
pub fn allowed_congestion() -> Vec<String> {
    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
        .map(|names| names.split_whitespace().map(str::to_owned).collect())
        .unwrap_or_default()
}

/// Sends small writes at once.
///
/// # Errors
/// What the kernel says.
pub fn set_nodelay(socket: &impl AsFd) -> io::Result<()> {
    Ok(sockopt::set_tcp_nodelay(socket, true)?)
}

/// Lets the socket be writable only while less than `limit` is unsent, so that ranges taken back
/// from this connection are not already stuck in its buffer.
///
/// # Errors
/// What the kernel says.
pub fn set_notsent_lowat(socket: &impl AsFd, limit: ByteCount) -> io::Result<()> {
    SockRef::from(socket).set_tcp_notsent_lowat(u32::try_from(limit.get()).unwrap_or(u32::MAX))
}

/// Gives up on a peer that acknowledges nothing for `limit`, and asks an idle one each third of it
/// whether it is there.
///
/// # Errors
/// What the kernel says.
pub fn set_dead_after(socket: &impl AsFd, limit: Duration) -> io::Result<()> {
    sockopt::set_tcp_user_timeout(socket, u32::try_from(limit.as_millis()).unwrap_or(u32::MAX))?;
    let third = Duration::from_secs(((limit / 3).as_millis() / 1000).max(1)).to_std();
    SockRef::from(socket).set_tcp_keepalive(
        &TcpKeepalive::new().with_time(third).with_interval(third).with_retries(3),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_takes_its_settings() {
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        set_nodelay(&socket).unwrap();
        set_notsent_lowat(&socket, ByteCount(128 << 10)).unwrap();
        set_dead_after(&socket, Duration::from_secs(30)).unwrap();
        assert!(SockRef::from(&socket).tcp_nodelay().unwrap());
        assert_eq!(SockRef::from(&socket).tcp_notsent_lowat().unwrap(), 128 << 10);
        let allowed = allowed_congestion();
        for name in &allowed {
            set_congestion(&socket, name).unwrap();
            assert_eq!(&sockopt::tcp_congestion(&socket).unwrap(), name);
        }
        assert!(set_congestion(&socket, "no-such").is_err());
    }
}

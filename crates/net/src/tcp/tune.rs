//! Options of a TCP socket.

use std::io;
use std::os::fd::AsFd;

use packtrain_units::{ByteCount, Duration};
use rustix::net::sockopt;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use super::sys;

/// Marks the packets of the socket as lower effort (RFC 8622).
///
/// # Errors
/// The system's error.
pub fn set_lower_effort(socket: &impl AsFd) -> io::Result<()> {
    let class = u32::from(crate::udp::LOWER_EFFORT);
    let socket = SockRef::from(socket);
    let four = socket.set_tos_v4(class);
    // Only the option of the socket's address family succeeds.
    socket.set_tclass_v6(class).or(four)
}

/// Shuts a connection down in both directions, even if other handles of it exist.
///
/// # Errors
/// The system's error.
pub fn shut(socket: &impl AsFd) -> io::Result<()> {
    SockRef::from(socket).shutdown(std::net::Shutdown::Both)
}

/// Sets the congestion control `name` of the kernel for this socket.
///
/// # Errors
/// `NotFound` if the kernel has none of that name, `PermissionDenied` if it is not allowed.
pub fn set_congestion(socket: &impl AsFd, name: &str) -> io::Result<()> {
    Ok(sockopt::set_tcp_congestion(socket, name)?)
}

/// The congestion controls that unprivileged users may choose; empty if unknown.
pub(crate) fn allowed_congestion() -> Vec<String> {
    names("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
}

/// The congestion controls that the kernel has loaded; empty if unknown.
pub(crate) fn available_congestion() -> Vec<String> {
    names("/proc/sys/net/ipv4/tcp_available_congestion_control")
}

fn names(path: &str) -> Vec<String> {
    std::fs::read_to_string(path)
        .map(|names| names.split_whitespace().map(str::to_owned).collect())
        .unwrap_or_default()
}

/// Why a congestion control cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CongestionError {
    /// The kernel has not loaded one of that name.
    #[error(
        "this machine's kernel has no congestion control `{name}` loaded, it has {}; if there is \
         one of that name, `modprobe tcp_{name}` as root loads it",
        listed(.available)
    )]
    Unknown {
        /// The requested name.
        name: String,
        /// The loaded ones.
        available: Vec<String>,
    },
    /// It is loaded, but only root may use it.
    #[error(
        "this machine lets ordinary users choose {} and not `{name}`; as root, `sysctl -w \
         net.ipv4.tcp_allowed_congestion_control='{} {name}'` allows it",
        listed(.allowed), .allowed.join(" ")
    )]
    Forbidden {
        /// The requested name.
        name: String,
        /// The ones that may be used.
        allowed: Vec<String>,
    },
    /// The name has invalid characters.
    #[error("`{0}` is not a valid name of a congestion control: use letters, digits, - and _")]
    Nonsense(String),
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "none that it lists".to_owned() } else { names.join(", ") }
}

/// Whether sockets of this process may use the congestion control `name`.
///
/// # Errors
/// See [`CongestionError`].
pub fn check_congestion(name: &str) -> Result<(), CongestionError> {
    // TCP_CA_NAME_MAX is 16, with the terminating zero.
    let sound = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > 15 || !name.chars().all(sound) {
        return Err(CongestionError::Nonsense(name.chars().take(40).collect()));
    }
    let tried = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))
        .and_then(|socket| set_congestion(&socket, name));
    let name = name.to_owned();
    match tried {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            Err(CongestionError::Forbidden { name, allowed: allowed_congestion() })
        }
        Err(_) => Err(CongestionError::Unknown { name, available: available_congestion() }),
    }
}

/// Fixes the sizes of the send and receive buffers, which ends the kernel's autotuning of both.
/// Call it before connecting or listening, because the window scale depends on it. Returns the size
/// that the kernel granted, the smaller of the two, without the kernel's overhead.
///
/// # Errors
/// The kernel's error.
pub fn set_buffers(socket: &impl AsFd, size: ByteCount) -> io::Result<ByteCount> {
    let size = usize::try_from(size.get().min(i32::MAX as u64 / 2)).unwrap_or(usize::MAX);
    let socket = SockRef::from(socket);
    socket.set_send_buffer_size(size)?;
    socket.set_recv_buffer_size(size)?;
    // The kernel reserves twice the requested size for its own data (socket(7)).
    let granted = socket.send_buffer_size()?.min(socket.recv_buffer_size()?) / 2;
    Ok(ByteCount(granted as u64))
}

/// Above this limit the kernel's tuning is not restricted.
const UNRESTRICTED: usize = 16 << 20;

/// Limits the received, unread bytes in the kernel to about `most`. If that is less than a fast,
/// long path needs, the whole limit is available at once; otherwise the kernel tunes up to it.
/// Arriving data is dropped and sent again if it was announced under an earlier limit of more than
/// twice the size. Do not use it with [`set_buffers`].
///
/// # Errors
/// The kernel's error, for example before Linux 5.14.
pub(crate) fn limit_received(socket: &impl AsFd, most: ByteCount) -> io::Result<()> {
    let most = usize::try_from(most.get()).unwrap_or(usize::MAX);
    let (fd, options) = (socket.as_fd(), SockRef::from(socket));
    let has = options.recv_buffer_size()?;
    if most >= UNRESTRICTED {
        return sys::fix_receive_buffer(fd, has > most);
    }
    if has / 2 > most {
        options.set_recv_buffer_size(most / 2)?;
    }
    if options.recv_buffer_size()? < most / 2 {
        // A requested size is limited by rmem_max. SO_RCVLOWAT is not, and enlarges the buffer.
        // Half of a buffer is for the kernel's own data.
        sys::fix_receive_buffer(fd, false)?;
        sys::wake_at(fd, most / 2)?;
        sys::wake_at(fd, 1)?;
    }
    sys::fix_receive_buffer(fd, true)
}

/// The size of all TCP buffers together at which the kernel is under memory pressure and drops data
/// that has arrived; `None` if unknown.
pub fn pressure() -> Option<ByteCount> {
    let field = |path, n| {
        let text = std::fs::read_to_string(path).ok()?;
        text.split_whitespace().nth(n)?.parse::<u64>().ok()
    };
    let pages = field("/proc/sys/net/ipv4/tcp_mem", 1)
        .map(|pages| ByteCount(pages.saturating_mul(sys::page_size())));
    // Only the initial network namespace can read it. By default the kernel sets it to a sixteenth
    // of the memory.
    pages.or_else(|| Some(ByteCount(field("/proc/meminfo", 1)?.saturating_mul(1024) / 16)))
}

/// Sends small writes at once (TCP_NODELAY).
///
/// # Errors
/// The kernel's error.
pub fn set_nodelay(socket: &impl AsFd) -> io::Result<()> {
    Ok(sockopt::set_tcp_nodelay(socket, true)?)
}

/// Keeps urgent bytes in the stream. `splice` treats the position of a separate urgent byte as the
/// end of the stream.
///
/// # Errors
/// The kernel's error.
pub fn set_urgent_inline(socket: &impl AsFd) -> io::Result<()> {
    SockRef::from(socket).set_out_of_band_inline(true)
}

/// Makes the socket writable only while less than `limit` is unsent, so that ranges that are taken
/// back from this connection are not in its buffer already.
///
/// # Errors
/// The kernel's error.
pub fn set_notsent_lowat(socket: &impl AsFd, limit: ByteCount) -> io::Result<()> {
    SockRef::from(socket).set_tcp_notsent_lowat(u32::try_from(limit.get()).unwrap_or(u32::MAX))
}

/// Closes the connection if the peer acknowledges nothing for `limit`, and probes an idle peer at
/// intervals of a third of it.
///
/// # Errors
/// The kernel's error.
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

    #[test]
    fn a_congestion_control_that_is_not_there_is_told_with_those_that_are() {
        let Err(error) = check_congestion("no-such") else { panic!("there is none") };
        let text = error.to_string();
        assert!(text.contains("modprobe tcp_no-such"), "{text}");
        for name in available_congestion() {
            assert!(text.contains(&name), "{text}");
        }
        for name in allowed_congestion() {
            check_congestion(&name).unwrap();
        }
        for bad in ["", "a b", "../x", "seventeen-letters"] {
            assert!(matches!(check_congestion(bad), Err(CongestionError::Nonsense(_))), "{bad}");
        }
    }

    #[test]
    fn what_comes_is_limited_and_freed_again() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let has = || SockRef::from(&server).recv_buffer_size().unwrap();
        let begun = has();
        // More than its initial size, and more than an unprivileged user may request.
        limit_received(&server, ByteCount(1 << 20)).unwrap();
        assert!(has() >= 1 << 19 && has() > begun, "{} of {begun}", has());
        limit_received(&server, ByteCount(64 << 10)).unwrap();
        assert!(has() <= 128 << 10, "{}", has());
        client.set_nonblocking(true).unwrap();
        let (mut put, mut quiet) = (0, 0);
        while quiet < 20 {
            match std::io::Write::write(&mut &client, &[7; 1 << 16]) {
                Ok(more) => (put, quiet) = (put + more, 0),
                Err(_) => quiet += 1,
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let held = crate::tcp::tcp_info(&server).unwrap().received.unwrap();
        assert!(put > 0 && held.get() < 256 << 10, "{held} of {put}");
        limit_received(&server, ByteCount(1 << 40)).unwrap();
        assert!(has() <= 128 << 10, "as much as it was, until the kernel finds that it needs more");
    }

    #[test]
    fn buffers_are_as_asked_or_as_granted() {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        // Linux allows no limit of the machine below this.
        let least = ByteCount(2304);
        assert_eq!(set_buffers(&socket, least).unwrap(), least);
        assert!(set_buffers(&socket, ByteCount(1 << 50)).unwrap() < ByteCount(1 << 50));
    }
}

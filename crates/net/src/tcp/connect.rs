//! Connects to the address that answers first (RFC 8305, "happy eyeballs").

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use packtrain_os::names;
use packtrain_units::{ByteCount, Duration};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use super::{describe, tune};

/// Delay before the next address is tried concurrently (RFC 8305 section 5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// Maximum number of addresses to try.
const ADDRESSES_MAX: usize = 16;

/// Options of a connection.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Timeout for name resolution and all attempts together.
    pub timeout: Duration,
    /// Congestion control of the kernel.
    pub congestion: Option<String>,
    /// Fixed buffers instead of the kernel's autotuning, see [`tune::set_buffers`].
    pub buffers: Option<ByteCount>,
    /// See [`tune::set_notsent_lowat`].
    pub notsent_lowat: Option<ByteCount>,
    /// Sets TCP_NODELAY.
    pub nodelay: bool,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(10),
            congestion: None,
            buffers: None,
            notsent_lowat: None,
            nodelay: true,
        }
    }
}

/// Why no connection was made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The name has no address.
    #[error("{}", unresolved(host, error))]
    Resolve {
        /// The name.
        host: String,
        /// The error of the resolver.
        error: io::Error,
    },
    /// Every address failed. This is the error of the first attempt, since later ones are often of
    /// an address family that the machine does not have.
    #[error("cannot connect to {addr}: {}", describe(error))]
    Refused {
        /// The first address.
        addr: SocketAddr,
        /// Its error.
        error: io::Error,
    },
    /// Nothing answered within the timeout.
    #[error("no answer within {}; is the port open in the firewall?", .0.to_readable())]
    TimedOut(Duration),
}

impl ConnectError {
    /// Whether another try fails in the same way: the name does not exist.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Resolve { error, .. } => !is_busy(error),
            Self::Refused { .. } | Self::TimedOut(_) => false,
        }
    }
}

/// Whether the resolver itself could not be asked (EAI_AGAIN), which says nothing about the name.
/// The standard library passes only the text on.
fn is_busy(error: &io::Error) -> bool {
    let text = error.to_string();
    text.contains("Temporary failure") || text.contains("try again")
}

fn unresolved(host: &str, error: &io::Error) -> String {
    if is_busy(error) {
        format!("the name {host} cannot be looked up now: the name server does not answer")
    } else {
        format!("no address is known for {host}: check the name")
    }
}

/// Connects to `host`, a name or an address, at `port`.
///
/// # Errors
/// See [`ConnectError`].
pub async fn connect(
    host: &str,
    port: u16,
    options: &ConnectOptions,
) -> Result<TcpStream, ConnectError> {
    let work = async {
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        let failed = |error| ConnectError::Resolve { host: host.to_owned(), error };
        let found = lookup(host, port).await.map_err(failed)?;
        if found.is_empty() {
            return Err(failed(io::ErrorKind::NotFound.into()));
        }
        race(found, options).await
    };
    within(options.timeout, work).await
}

/// The addresses of `host`, a name or an address without brackets, with `port`.
///
/// # Errors
/// The name has no address, or no name server answers.
pub async fn lookup(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let host = host.to_owned();
    let blocking = tokio::task::spawn_blocking(move || names::lookup(&host, port));
    blocking.await.map_err(io::Error::other)?
}

/// Connects to the first of `addrs` that answers; they are in order of preference.
///
/// # Errors
/// See [`ConnectError`].
pub async fn connect_any(
    addrs: &[SocketAddr],
    options: &ConnectOptions,
) -> Result<TcpStream, ConnectError> {
    if addrs.is_empty() {
        let error = io::Error::from(io::ErrorKind::NotFound);
        return Err(ConnectError::Resolve { host: "no address".into(), error });
    }
    within(options.timeout, race(addrs.to_vec(), options)).await
}

async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, ConnectError>>,
) -> Result<T, ConnectError> {
    let done = tokio::time::timeout(limit.to_std(), work).await;
    done.unwrap_or(Err(ConnectError::TimedOut(limit)))
}

/// Starts the attempts one after another, each after a failure of the previous one or after the
/// delay. Dropping the set cancels the other attempts.
async fn race(addrs: Vec<SocketAddr>, options: &ConnectOptions) -> Result<TcpStream, ConnectError> {
    let mut waiting = interleave(addrs);
    let mut running = JoinSet::new();
    let mut first_error: Option<(SocketAddr, io::Error)> = None;
    loop {
        if let Some(addr) = waiting.pop_front() {
            let options = options.clone();
            running.spawn(async move { (addr, attempt(addr, &options).await) });
        }
        let more = !waiting.is_empty();
        let delay = async {
            if more {
                tokio::time::sleep(ATTEMPT_DELAY.to_std()).await;
            } else {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            ended = running.join_next() => match ended {
                Some(Ok((_, Ok(stream)))) => return Ok(stream),
                Some(Ok((addr, Err(error)))) => {
                    first_error.get_or_insert((addr, error));
                }
                // An attempt does not panic, and is not aborted during this loop.
                Some(Err(_)) => {}
                None if more => {}
                None => return Err(match first_error {
                    Some((addr, error)) => ConnectError::Refused { addr, error },
                    None => ConnectError::TimedOut(options.timeout),
                }),
            },
            () = delay => {}
        }
    }
}

async fn attempt(addr: SocketAddr, options: &ConnectOptions) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    if let Some(name) = &options.congestion {
        tune::set_congestion(&socket, name)?;
    }
    if let Some(size) = options.buffers {
        tune::set_buffers(&socket, size)?;
    }
    if let Some(limit) = options.notsent_lowat {
        tune::set_notsent_lowat(&socket, limit)?;
    }
    if options.nodelay {
        tune::set_nodelay(&socket)?;
    }
    TcpSocket::from_std_stream(socket.into()).connect(addr).await
}

/// Alternates the address families, starting with that of the first address (RFC 8305 section 4).
fn interleave(addrs: Vec<SocketAddr>) -> VecDeque<SocketAddr> {
    let first_is_v6 = addrs.first().is_some_and(SocketAddr::is_ipv6);
    let (mut a, mut b): (VecDeque<_>, VecDeque<_>) =
        addrs.into_iter().partition(|addr| addr.is_ipv6() == first_is_v6);
    let mut out = VecDeque::new();
    while out.len() < ADDRESSES_MAX && !(a.is_empty() && b.is_empty()) {
        out.extend(a.pop_front());
        out.extend(b.pop_front());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_take_turns() {
        let addr = |text: &str| text.parse::<SocketAddr>().unwrap();
        let (a, b, c) = (addr("[::1]:1"), addr("[::2]:1"), addr("10.0.0.1:1"));
        assert_eq!(interleave(vec![a, b, c]), [a, c, b]);
        assert_eq!(interleave(vec![c, a, b]), [c, a, b]);
        assert!(interleave(vec![]).is_empty());
    }
}

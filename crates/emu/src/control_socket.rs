//! The control socket of a running emulation: an abstract socket address, which no file holds and
//! which ends with the process. Its name contains the user id and process id.

use std::fs;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::thread::LinkNameSpaceType;
use serde::{Deserialize, Serialize};

use crate::error::{EmuError, Tried};
use crate::hosts::Host;
use crate::namespace::Away;
use crate::programs::Environment;

/// Timeout of either side for the other's message.
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of the emulator for a visitor's request. Signals and ends of programs wait meanwhile.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(100);
/// Maximum size of a reply.
const MAX_REPLY_BYTES: usize = 64 * 1024;

/// The socket on which other processes ask to enter.
#[derive(Debug)]
pub(crate) struct ControlSocket(UnixListener);

/// The reply to a visitor. The namespaces are sent with it, the user namespace first if there is
/// one.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    hosts: Vec<String>,
    found: bool,
    user: bool,
    environment: Vec<(String, String)>,
}

impl ControlSocket {
    /// Opens the socket for the emulation that process `caller` started.
    pub(crate) fn open(caller: u32) -> Result<Self, EmuError> {
        let name = format!("{}{caller}", prefix());
        let address = SocketAddr::from_abstract_name(name).tried("a socket's name")?;
        let listener = UnixListener::bind_addr(&address).tried("a socket")?;
        listener.set_nonblocking(true).tried("a socket")?;
        Ok(Self(listener))
    }

    /// Serves one visitor.
    pub(crate) fn answer(&self, hosts: &[Host], away: &Away, environment: &Environment) {
        if let Ok((stream, _)) = self.0.accept() {
            // An invalid request gets no reply.
            let _ = serve_visitor(stream, hosts, away, environment);
        }
    }
}

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn serve_visitor(
    mut stream: UnixStream,
    hosts: &[Host],
    away: &Away,
    environment: &Environment,
) -> std::io::Result<()> {
    // Every user can connect to an abstract name.
    let peer = rustix::net::sockopt::socket_peercred(&stream)?;
    if peer.uid != rustix::process::geteuid() {
        return Err(std::io::ErrorKind::PermissionDenied.into());
    }
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    stream.set_write_timeout(Some(REQUEST_TIMEOUT))?;
    let mut name = [0; 256];
    let len = stream.read(&mut name)?;
    let host = hosts.iter().find(|host| host.name.as_bytes() == &name[..len]);
    let answer = Answer {
        hosts: hosts.iter().map(|host| host.name.clone()).collect(),
        found: host.is_some(),
        user: away.user.is_some(),
        environment: host.map(|host| environment.of(host)).unwrap_or_default(),
    };
    let text = serde_json::to_vec(&answer)?;
    let mut fds: Vec<BorrowedFd<'_>> = Vec::new();
    if let Some(host) = host {
        fds.extend(away.user.as_ref().map(AsFd::as_fd));
        fds.push(host.namespace.as_fd());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    }
    sendmsg(&stream, &[IoSlice::new(&text)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Enters a running emulation: moves the calling process, which must have one thread, to `host` and
/// returns the environment of the programs there. `pid` is the process that started the emulation;
/// none: the only one that runs.
///
/// # Errors
///
/// [`EmuError::NotFound`] if there is none, none with this id, several, or no such host;
/// [`EmuError::System`] if the kernel refuses.
pub fn enter(host: &str, pid: Option<u32>) -> Result<Vec<(String, String)>, EmuError> {
    let pid = pid.map_or_else(only, Ok)?;
    let name = format!("{}{pid}", prefix());
    let address = SocketAddr::from_abstract_name(name).tried("a socket's name")?;
    let mut stream = UnixStream::connect_addr(&address).map_err(|_| {
        EmuError::NotFound(format!("process {pid} runs no emulation of yours{}", there_are()))
    })?;
    let peer = rustix::net::sockopt::socket_peercred(&stream).tried("a socket")?;
    if peer.uid != rustix::process::geteuid() {
        return Err(EmuError::NotFound(format!("the emulation of {pid} is another user's")));
    }
    stream.set_read_timeout(Some(REPLY_TIMEOUT)).tried("a socket")?;
    stream.write_all(host.as_bytes()).tried("a socket")?;
    let (answer, namespaces) = read_reply(&stream).tried(format!("the emulation of {pid}"))?;
    if !answer.found {
        let hosts = answer.hosts.join(", ");
        return Err(EmuError::NotFound(format!("there is no host {host:?}; there are {hosts}")));
    }
    let mut kinds = vec![LinkNameSpaceType::Network];
    if answer.user {
        kinds.insert(0, LinkNameSpaceType::User);
    }
    for (namespace, kind) in namespaces.iter().zip(kinds) {
        rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(kind)).tried("setns")?;
    }
    if answer.user {
        // The programs of the emulation have these capabilities too; most need none.
        let _ = crate::sys::lend_capabilities();
    }
    Ok(answer.environment)
}

/// Processes of this user that started an emulation that still runs.
pub fn running() -> Vec<u32> {
    let table = fs::read_to_string("/proc/self/net/unix").unwrap_or_default();
    let start = format!("@{}", prefix());
    let mut pids: Vec<u32> = table
        .lines()
        .filter_map(|line| line.split_whitespace().nth(7)?.strip_prefix(&start)?.parse().ok())
        .collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

fn read_reply(stream: &UnixStream) -> std::io::Result<(Answer, Vec<OwnedFd>)> {
    let mut text = vec![0; MAX_REPLY_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut room = [IoSliceMut::new(&mut text)];
    let got = recvmsg(stream, &mut room, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut namespaces = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            namespaces.extend(fds);
        }
    }
    Ok((serde_json::from_slice(&text[..got.bytes])?, namespaces))
}

fn only() -> Result<u32, EmuError> {
    match running()[..] {
        [pid] => Ok(pid),
        [] => Err(EmuError::NotFound("no emulation of yours runs here".to_owned())),
        _ => Err(EmuError::NotFound(format!("several emulations run: say which{}", there_are()))),
    }
}

fn there_are() -> String {
    let pids: Vec<String> = running().iter().map(u32::to_string).collect();
    if pids.is_empty() { String::new() } else { format!(" (--pid {})", pids.join(", ")) }
}

fn prefix() -> String {
    format!("packtrain-emulate/{}/", rustix::process::geteuid().as_raw())
}

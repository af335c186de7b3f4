//! System calls that no safe library offers in the required form.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use packtrain_units::Duration;

/// Opens a TUN device of this name in the caller's namespace, with virtio headers, non-blocking.
/// `offload`: super-packets of TCP and, if the kernel supports it, UDP, and incomplete checksums.
pub(crate) fn tun(name: &str, offload: bool) -> io::Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let fd = rustix::fs::open("/dev/net/tun", flags, Mode::empty())?;
    let mut request = [0_u8; 40];
    request[..name.len().min(15)].copy_from_slice(&name.as_bytes()[..name.len().min(15)]);
    let mode = (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as u16;
    request[16..18].copy_from_slice(&mode.to_ne_bytes());
    // SAFETY: TUNSETIFF reads and writes a `struct ifreq` of 40 bytes, which `request` has.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, request.as_mut_ptr()) })?;
    const CSUM: u32 = 0x01;
    // TSO4, TSO6, ECN.
    const TCP: u32 = 0x02 | 0x04 | 0x08;
    const UDP: u32 = 0x20 | 0x40;
    let attempts = if offload { [CSUM | TCP | UDP, CSUM | TCP] } else { [CSUM, 0] };
    let mut last = Ok(0);
    for flags in attempts {
        // SAFETY: TUNSETOFFLOAD takes its argument by value.
        last = check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD, u64::from(flags)) });
        if last.is_ok() {
            break;
        }
    }
    last.map(|_| fd)
}

/// A packet socket on device `index` in the caller's namespace, for IPv4, with virtio headers,
/// non-blocking, which does not receive what it sends.
pub(crate) fn packet_socket(index: u32) -> io::Result<OwnedFd> {
    // IPv4 and IPv6; the devices carry nothing else.
    let protocol = (libc::ETH_P_ALL as u16).to_be();
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: socket takes no memory; the returned descriptor has no other owner.
    let fd = unsafe { OwnedFd::from_raw_fd(check(libc::socket(libc::AF_PACKET, kind, 0))?) };
    const VNET_HDR: c_int = 15;
    const QDISC_BYPASS: c_int = 20;
    const IGNORE_OUTGOING: c_int = 23;
    for option in [VNET_HDR, QDISC_BYPASS, IGNORE_OUTGOING] {
        set_option(&fd, libc::SOL_PACKET, option, 1)?;
    }
    // Beyond the system's limit if allowed, else up to it.
    const SOCKET_BUFFER_BYTES: c_int = 64 << 20;
    set_option(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, SOCKET_BUFFER_BYTES)
        .or_else(|_| set_option(&fd, libc::SOL_SOCKET, libc::SO_RCVBUF, SOCKET_BUFFER_BYTES))?;
    set_option(&fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SOCKET_BUFFER_BYTES)
        .or_else(|_| set_option(&fd, libc::SOL_SOCKET, libc::SO_SNDBUF, SOCKET_BUFFER_BYTES))?;
    // SAFETY: an all-zero sockaddr_ll is valid.
    let mut address = unsafe { std::mem::zeroed::<libc::sockaddr_ll>() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol;
    address.sll_ifindex = index as c_int;
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: bind reads `len` bytes of `address`, which lives through the call.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) })?;
    Ok(fd)
}

/// Packets that a packet socket dropped because its buffer was full, since the last call.
pub(crate) fn packet_drops(fd: &impl AsRawFd) -> u64 {
    const STATISTICS: c_int = 6;
    let mut counts = [0_u32; 2];
    let mut len = size_of_val(&counts) as libc::socklen_t;
    let (level, place) = (libc::SOL_PACKET, (&raw mut counts).cast());
    // SAFETY: the kernel writes at most `len` bytes to `counts`: packets and drops.
    let done = unsafe { libc::getsockopt(fd.as_raw_fd(), level, STATISTICS, place, &mut len) };
    if done == 0 { u64::from(counts[1]) } else { 0 }
}

fn set_option(fd: &OwnedFd, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
    let len = size_of::<c_int>() as libc::socklen_t;
    let place = (&raw const value).cast();
    // SAFETY: the kernel reads `len` bytes of `value`, which lives through the call.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, place, len) }).map(|_| ())
}

/// Moves the caller, which has one thread, from its shared namespaces to new ones.
pub(crate) fn unshare(flags: rustix::thread::UnshareFlags) -> io::Result<()> {
    // SAFETY: the flags name user and network namespaces only, never the table of descriptors.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(io::Error::from)
}

/// Signals that are read from a descriptor instead of delivered, until this is dropped.
pub(crate) struct Signals {
    /// Readable when a signal is pending.
    pub(crate) fd: OwnedFd,
    before: libc::sigset_t,
}

impl Signals {
    /// Blocks these signals for the calling thread.
    pub(crate) fn block(numbers: &[c_int]) -> io::Result<Self> {
        // SAFETY: `set` is initialised by sigemptyset, `before` by pthread_sigmask before they
        // are used; all calls take them by reference and keep nothing.
        unsafe {
            let mut set = std::mem::zeroed::<libc::sigset_t>();
            let mut before = std::mem::zeroed::<libc::sigset_t>();
            libc::sigemptyset(&mut set);
            for number in numbers {
                libc::sigaddset(&mut set, *number);
            }
            let error = libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
            if error != 0 {
                return Err(io::Error::from_raw_os_error(error));
            }
            let fd = check(libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK))?;
            Ok(Self { fd: OwnedFd::from_raw_fd(fd), before })
        }
    }

    /// The next pending signal.
    pub(crate) fn next(&self) -> Option<Signal> {
        const SIZE: usize = size_of::<libc::signalfd_siginfo>();
        let mut bytes = [0_u8; SIZE];
        let len = rustix::io::read(&self.fd, &mut bytes).ok()?;
        let field = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
        // The layout starts with `ssi_signo`, `ssi_errno`, `ssi_code`.
        let (number, code) = (field(0) as c_int, field(8) as c_int);
        (len == SIZE).then_some(Signal { number, sent: code <= 0 })
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: `before` is a valid set, taken by reference.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

/// A received signal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signal {
    /// Its number.
    pub(crate) number: c_int,
    /// Whether a process sent it; a terminal sends it to the child processes too.
    pub(crate) sent: bool,
}

/// How a program is started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    /// The network namespace that it enters.
    pub(crate) namespace: RawFd,
    /// Whether it gets the network capabilities of the emulator's user namespace.
    pub(crate) capable: bool,
    /// Whether it leads its own process group.
    pub(crate) group: bool,
    /// Whether it is killed when this process ends.
    pub(crate) dies: bool,
}

/// Makes `command` start in this way.
pub(crate) fn start_so(command: &mut Command, start: Start) {
    let prepare = move || {
        // SAFETY: the set is initialised by sigemptyset; setns, setpgid and prctl are system calls
        // that use no memory of this process; the descriptor is open, because the caller keeps it
        // until the program has started.
        unsafe {
            // The program does not inherit the blocked signals of this process.
            let mut none = std::mem::zeroed::<libc::sigset_t>();
            libc::sigemptyset(&mut none);
            libc::pthread_sigmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
            check(libc::setns(start.namespace, libc::CLONE_NEWNET))?;
            if start.group {
                check(libc::setpgid(0, 0))?;
            }
            if start.dies {
                check(libc::prctl(
                    libc::PR_SET_PDEATHSIG,
                    libc::SIGKILL as libc::c_ulong,
                    0,
                    0,
                    0,
                ))?;
            }
        }
        if start.capable {
            // Programs that need no capability must not fail for lack of one.
            let _ = lend_capabilities();
        }
        Ok(())
    };
    // SAFETY: between fork and exec `prepare` makes system calls only: it allocates no memory and
    // takes no lock.
    unsafe { command.pre_exec(prepare) };
}

/// Keeps a descriptor open in the program that `command` starts.
pub(crate) fn keep_open(command: &mut Command, fd: RawFd) {
    let keep = move || {
        // SAFETY: fcntl with F_SETFD touches no memory.
        check(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) }).map(|_| ())
    };
    // SAFETY: one system call between fork and exec.
    unsafe { command.pre_exec(keep) };
}

/// Takes over a descriptor from the parent process.
pub(crate) fn inherit(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: fcntl with F_SETFD touches no memory, and fails if the descriptor is not open.
    check(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    // SAFETY: it is open, and the parent opened it for this process alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes the network capabilities inheritable and ambient.
pub(crate) fn lend_capabilities() -> io::Result<()> {
    use rustix::thread::{
        CapabilitySet, capabilities, configure_capability_in_ambient_set, set_capabilities,
    };
    let lent = [CapabilitySet::NET_ADMIN, CapabilitySet::NET_RAW, CapabilitySet::NET_BIND_SERVICE];
    let mut sets = capabilities(None)?;
    for one in lent {
        sets.inheritable |= one & sets.permitted;
    }
    set_capabilities(None, sets)?;
    for one in lent {
        configure_capability_in_ambient_set(one, true)?;
    }
    Ok(())
}

/// `struct sched_attr` of sched_setattr(2), in its first version.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Raises the priority of the calling thread: real-time if the system allows it (the thread sleeps
/// whenever nothing is due), else time slices of this length, which bring it to its turn sooner
/// after a wake-up (EEVDF, Linux 6.12) and need no privilege. If both are refused, nothing changes.
pub(crate) fn raise_priority(slice: Duration) {
    const SIZE: u32 = size_of::<SchedAttr>() as u32;
    const RESET_ON_FORK: u64 = 1;
    let plain = SchedAttr { size: SIZE, runtime: slice.as_nanos(), ..Default::default() };
    let first = SchedAttr {
        policy: libc::SCHED_FIFO as u32,
        flags: RESET_ON_FORK,
        priority: 1,
        runtime: 0,
        ..plain
    };
    for attr in [first, SchedAttr { nice: -20, ..plain }, plain] {
        // SAFETY: the kernel reads `size` bytes from `attr`, which live through the call.
        let done = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
        if done == 0 {
            return;
        }
    }
}

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

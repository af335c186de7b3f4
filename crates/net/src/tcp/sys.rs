//! System calls without a safe wrapper: reading `TCP_INFO`, and options of buffers.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Larger than `struct tcp_info` of current kernels; an older kernel fills less.
pub(super) const INFO_MAX: usize = 512;

/// The option that selects which buffers have a fixed size, so that the kernel does not tune them
/// (Linux 5.14).
const SO_BUF_LOCK: libc::c_int = 72;
/// The flag of the receive buffer.
const SOCK_RCVBUF_LOCK: libc::c_int = 2;

/// Fixes the current size of the receive buffer, or lets the kernel tune it.
pub(super) fn fix_receive_buffer(socket: BorrowedFd<'_>, fixed: bool) -> io::Result<()> {
    // Other architectures have another number for this option.
    if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let lock = if fixed { SOCK_RCVBUF_LOCK } else { 0 };
    set(socket, libc::SOL_SOCKET, SO_BUF_LOCK, lock)
}

/// Size of a memory page, in bytes.
pub(super) fn page_size() -> u64 {
    // SAFETY: it reads a constant of the system.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).unwrap_or(4096)
}

/// Sets the number of bytes at which a reader is woken (SO_RCVLOWAT).
pub(super) fn wake_at(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    set(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes)
}

fn set(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: `value` is valid for reads of its size during the call, and the descriptor is
    // borrowed, hence open.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads `TCP_INFO` as bytes; returns how many the kernel filled.
pub(super) fn tcp_info(socket: BorrowedFd<'_>, out: &mut [u8; INFO_MAX]) -> io::Result<usize> {
    let mut len = INFO_MAX as libc::socklen_t;
    // SAFETY: `out` is valid for writes of `len` bytes, `len` has that size and lives during the
    // call, and the descriptor is borrowed, hence open. The kernel writes at most `len` bytes.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            out.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if result == 0 { Ok((len as usize).min(INFO_MAX)) } else { Err(io::Error::last_os_error()) }
}

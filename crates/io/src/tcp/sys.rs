//! The one call without a safe wrapper: reading `TCP_INFO`.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Room for `struct tcp_info` of kernels to come; an older one fills less.
pub(super) const INFO_MAX: usize = 512;

/// Reads `TCP_INFO` as bytes; gives how many the kernel filled.
pub(super) fn tcp_info(socket: BorrowedFd<'_>, out: &mut [u8; INFO_MAX]) -> io::Result<usize> {
    let mut len = INFO_MAX as libc::socklen_t;
    // SAFETY: `out` is valid for writes of `len` bytes, `len` says so and lives through the call,
    // and the descriptor is borrowed, hence open. The kernel writes at most `len` bytes.
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

//! `splice(2)` and the pipe that it needs.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Creates a non-blocking pipe; returns its reading and writing end.
pub(super) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [-1; 2];
    // SAFETY: `ends` is valid for writes of two descriptors.
    let made = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened both, and no other code owns them.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// Requests a capacity for a pipe; returns the actual one.
pub(super) fn set_pipe_size(pipe: BorrowedFd<'_>, size: usize) -> io::Result<usize> {
    let size = libc::c_int::try_from(size).unwrap_or(libc::c_int::MAX);
    // SAFETY: the descriptor is borrowed, hence open; the argument is a number.
    let got = unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, size) };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// The capacity of a pipe.
pub(super) fn pipe_size(pipe: BorrowedFd<'_>) -> io::Result<usize> {
    // SAFETY: the descriptor is borrowed, hence open.
    let got = unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_GETPIPE_SZ) };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// Moves at most `len` bytes between two descriptors, one of which is a pipe; zero at the end of
/// the input.
pub(super) fn splice(from: BorrowedFd<'_>, to: BorrowedFd<'_>, len: usize) -> io::Result<usize> {
    let flags = libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MOVE;
    let none = std::ptr::null_mut();
    // SAFETY: both descriptors are borrowed, hence open, and null offsets are allowed for sockets
    // and pipes; no memory of this process is involved.
    let moved = unsafe { libc::splice(from.as_raw_fd(), none, to.as_raw_fd(), none, len, flags) };
    usize::try_from(moved).map_err(|_| io::Error::last_os_error())
}

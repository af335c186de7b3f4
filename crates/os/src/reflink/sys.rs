//! The request that no safe library offers.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

pub(super) fn clone_range(
    from: &File,
    from_offset: u64,
    to: &File,
    to_offset: u64,
    len: u64,
) -> io::Result<()> {
    let range = libc::file_clone_range {
        src_fd: i64::from(from.as_raw_fd()),
        src_offset: from_offset,
        src_length: len,
        dest_offset: to_offset,
    };
    // SAFETY: both descriptors are open for as long as the borrows; the structure is live and is the
    // one that FICLONERANGE reads; the kernel writes no memory of ours.
    let done = unsafe { libc::ioctl(to.as_raw_fd(), libc::FICLONERANGE, &raw const range) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

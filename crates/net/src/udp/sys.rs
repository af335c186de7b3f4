//! System calls without a suitable safe wrapper.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{c_int, c_uint, iovec, mmsghdr, msghdr, sockaddr_storage, socklen_t};
use socket2::SockAddr;

use super::control::Control;
use super::slab::{SLOT, SLOTS};

/// Buffers for the addresses, control messages and lengths of `receive`.
pub(super) struct Received {
    names: Vec<sockaddr_storage>,
    controls: Vec<Control>,
    lens: [Lens; SLOTS],
}

#[derive(Clone, Copy, Default)]
struct Lens {
    bytes: usize,
    name: socklen_t,
    control: usize,
}

impl Received {
    pub(super) fn new() -> Self {
        // SAFETY: all zeroes is a valid `sockaddr_storage`: plain integers, family AF_UNSPEC.
        let name: sockaddr_storage = unsafe { std::mem::zeroed() };
        Self {
            names: vec![name; SLOTS],
            controls: vec![Control::new(); SLOTS],
            lens: [Lens::default(); SLOTS],
        }
    }

    /// Length of message `i` in bytes.
    pub(super) fn len(&self, i: usize) -> usize {
        self.lens[i].bytes
    }

    /// Sender of message `i`.
    pub(super) fn name(&self, i: usize) -> SockAddr {
        // SAFETY: the storage was zeroed and then written by the kernel, which gave the length;
        // the length is bounded by the storage's size.
        unsafe { SockAddr::new(storage(&self.names[i]), self.lens[i].name) }
    }

    /// Control messages of message `i`.
    pub(super) fn control(&self, i: usize) -> impl Iterator<Item = (c_int, c_int, &[u8])> {
        self.controls[i].messages(self.lens[i].control)
    }
}

/// `socket2` has its own name for this C structure.
fn storage(name: &sockaddr_storage) -> socket2::SockAddrStorage {
    let mut out = socket2::SockAddrStorage::zeroed();
    // SAFETY: `SockAddrStorage` is a transparent wrapper of the platform's `sockaddr_storage`,
    // as its documentation of `view_as` requires.
    unsafe { *out.view_as::<sockaddr_storage>() = *name };
    out
}

/// Receives up to `ask` messages without waiting, each into its `SLOT` bytes of `bytes`.
pub(super) fn receive(
    fd: BorrowedFd<'_>,
    bytes: &mut [u8],
    ask: usize,
    got: &mut Received,
) -> io::Result<usize> {
    let ask = ask.min(SLOTS).min(bytes.len() / SLOT);
    // SAFETY: all zeroes is a valid value of these structures: null pointers, zero lengths.
    let (mut headers, mut vectors) =
        unsafe { std::mem::zeroed::<([mmsghdr; SLOTS], [iovec; SLOTS])>() };
    for (i, slot) in bytes.chunks_exact_mut(SLOT).take(ask).enumerate() {
        vectors[i] = iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: SLOT };
        let header = &mut headers[i].msg_hdr;
        header.msg_iov = &raw mut vectors[i];
        header.msg_iovlen = 1;
        header.msg_name = (&raw mut got.names[i]).cast();
        header.msg_namelen = size_of::<sockaddr_storage>() as socklen_t;
        let control = got.controls[i].bytes_mut();
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = control.len() as _;
    }
    let count = retry(|| {
        // SAFETY: the headers point to live, disjoint memory of the stated lengths, borrowed
        // mutably by this function; `ask` headers are filled in.
        unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                headers.as_mut_ptr(),
                ask as c_uint,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            ) as isize
        }
    })?;
    for (lens, header) in got.lens.iter_mut().zip(&headers).take(count) {
        *lens = Lens {
            bytes: (header.msg_len as usize).min(SLOT),
            name: header.msg_hdr.msg_namelen.min(size_of::<sockaddr_storage>() as socklen_t),
            control: header.msg_hdr.msg_controllen as _,
        };
    }
    Ok(count)
}

/// Sends one message with the first `used` bytes of `control`, without waiting.
pub(super) fn send(
    fd: BorrowedFd<'_>,
    to: &SockAddr,
    bytes: &[u8],
    control: &mut Control,
    used: usize,
) -> io::Result<usize> {
    let mut vector = iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all zeroes is a valid `msghdr`.
    let mut header: msghdr = unsafe { std::mem::zeroed() };
    header.msg_name = to.as_ptr().cast_mut().cast();
    header.msg_namelen = to.len();
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    if used > 0 {
        header.msg_control = control.bytes_mut().as_mut_ptr().cast();
        header.msg_controllen = used as _;
    }
    retry(|| {
        // SAFETY: the header points to live memory of the stated lengths; the kernel only reads.
        unsafe { libc::sendmsg(fd.as_raw_fd(), &header, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) }
    })
}

/// Sets an integer option.
pub(super) fn set_option(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: c_int,
) -> io::Result<()> {
    let len = size_of::<c_int>() as socklen_t;
    retry(|| {
        // SAFETY: the value is a live integer of the stated length.
        unsafe {
            libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), len) as _
        }
    })
    .map(drop)
}

/// The socket's `SO_MEMINFO` words (`SK_MEMINFO_*`); words that the kernel lacks are zero.
pub(super) fn memory_info(fd: BorrowedFd<'_>) -> io::Result<[u32; 16]> {
    let mut words = [0_u32; 16];
    let mut len = size_of_val(&words) as socklen_t;
    retry(|| {
        // SAFETY: the kernel writes at most `len` bytes into the live array.
        unsafe {
            libc::getsockopt(
                fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MEMINFO,
                words.as_mut_ptr().cast(),
                &raw mut len,
            ) as _
        }
    })?;
    Ok(words)
}

/// Repeats a call that a signal interrupted.
fn retry(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        match usize::try_from(call()) {
            Ok(n) => return Ok(n),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

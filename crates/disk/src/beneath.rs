//! Opens paths beneath a directory; no path can leave it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Set when the kernel, or a sandbox, does not support `openat2`.
static NO_OPENAT2: AtomicBool = AtomicBool::new(false);

/// Opens `path` beneath `dir`. The kernel refuses `..` and links that lead out. Without `openat2`
/// (before Linux 5.6) no symbolic link is followed at all.
pub(super) fn open(dir: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    if !NO_OPENAT2.load(Ordering::Relaxed) {
        match open_kernel(dir, path, flags) {
            Err(Errno::NOSYS | Errno::PERM) if !kernel_resolves(dir) => {
                NO_OPENAT2.store(true, Ordering::Relaxed);
            }
            opened => return opened.map_err(Into::into),
        }
    }
    open_by_component(dir, path, flags)
}

fn open_kernel(dir: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let mut tries = 0;
    loop {
        // AGAIN: a concurrent rename interfered with the resolution of `..`; the kernel asks for
        // another try.
        match rustix::fs::openat2(dir, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) if tries < 16 => tries += 1,
            opened => return opened,
        }
    }
}

/// Whether `openat2` works, to distinguish a refusal of a sandbox from an error of the file.
fn kernel_resolves(dir: BorrowedFd<'_>) -> bool {
    open_kernel(dir, b".", OFlags::PATH | OFlags::DIRECTORY).is_ok()
}

/// The portable implementation: opens each component separately and follows no link.
pub(super) fn open_by_component(
    dir: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
) -> io::Result<OwnedFd> {
    let mut at: Option<OwnedFd> = None;
    let mut parts =
        path.split(|&b| b == b'/').filter(|part| !matches!(*part, b"" | b".")).peekable();
    if path.first() == Some(&b'/') {
        return Err(Errno::XDEV.into());
    }
    while let Some(part) = parts.next() {
        if part == b".." {
            return Err(Errno::XDEV.into());
        }
        let here = at.as_ref().map_or(dir, AsFd::as_fd);
        let step = match parts.peek() {
            Some(_) => OFlags::PATH | OFlags::DIRECTORY,
            None => flags,
        };
        at = Some(open_no_follow(here, part, step)?);
    }
    match at {
        Some(fd) => Ok(fd),
        None => open_no_follow(dir, b".", flags).map_err(Into::into),
    }
}

/// Opens one component, which must not be a link.
pub(super) fn open_no_follow(
    dir: BorrowedFd<'_>,
    name: &[u8],
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::io::retry_on_intr(|| rustix::fs::openat(dir, name, flags, Mode::empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn without_openat2_no_link_is_followed_at_all() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        symlink("a", dir.path().join("link")).unwrap();
        symlink("/etc", dir.path().join("out")).unwrap();
        let root =
            rustix::fs::open(dir.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let open = |path: &str| {
            open_by_component(root.as_fd(), path.as_bytes(), OFlags::RDONLY | OFlags::DIRECTORY)
        };
        for good in ["a", "a/b", "a//b", "./a/./b", "."] {
            open(good).unwrap_or_else(|e| panic!("{good}: {e}"));
        }
        for bad in ["..", "a/..", "a/../..", "/etc", "link", "link/b", "out", "out/ssh", "a/no"] {
            assert!(open(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn with_openat2_only_links_that_stay_are_followed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        symlink("a", dir.path().join("link")).unwrap();
        symlink("/etc", dir.path().join("out")).unwrap();
        symlink("../../..", dir.path().join("up")).unwrap();
        let root =
            rustix::fs::open(dir.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        if !kernel_resolves(root.as_fd()) {
            packtrain_testkit::skip("this kernel has no openat2");
            return;
        }
        let open =
            |path: &str| open(root.as_fd(), path.as_bytes(), OFlags::RDONLY | OFlags::DIRECTORY);
        for good in ["a/b", "link", "link/b", "."] {
            open(good).unwrap_or_else(|e| panic!("{good}: {e}"));
        }
        for bad in ["..", "/etc", "out", "out/ssh", "up", "a/../.."] {
            assert!(open(bad).is_err(), "{bad}");
        }
    }
}

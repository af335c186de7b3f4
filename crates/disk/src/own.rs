//! The existing files that may be used as temporaries, journals and locks of this process.
//!
//! Other users may be able to create files in a destination, and these names can be guessed.
//! Therefore an existing file is used only if this user owns it and no other user may write it. The
//! open file is checked, never its path.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::beneath;
use super::parents::Place;
use super::stat::{Kind, Stat};

/// The mode of every temporary, journal and lock.
pub(super) const PRIVATE: Mode = Mode::from_raw_mode(0o600);

/// The file under a name.
pub(super) enum Existing {
    /// A file that this process may use, open.
    Own(OwnedFd, Stat),
    /// Nothing.
    Absent,
    /// A file that is not used: another user's file, one that others may write, a hard link, a
    /// symbolic link, a directory, a pipe.
    Foreign,
}

impl Stat {
    /// Whether this is a regular file with one name that belongs to the effective user of this
    /// process and that no other user may write.
    pub(crate) fn is_own_file(&self) -> bool {
        self.kind == Kind::File && self.nlink == 1 && self.mode & 0o022 == 0 && self.is_own()
    }

    /// Whether it belongs to the effective user of this process.
    pub fn is_own(&self) -> bool {
        self.uid == rustix::process::geteuid().as_raw()
    }
}

/// Opens the file under `name`.
pub(super) fn open(place: &Place<'_>, name: &[u8], flags: OFlags) -> Result<Existing, Errno> {
    // NONBLOCK: opening a pipe must not block this thread.
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
    match beneath::open_no_follow(place.dir.as_fd(), name, flags) {
        Ok(fd) => {
            let stat = Stat::from(&rustix::fs::fstat(&fd)?);
            Ok(if stat.is_own_file() { Existing::Own(fd, stat) } else { Existing::Foreign })
        }
        Err(Errno::NOENT) => Ok(Existing::Absent),
        Err(
            Errno::LOOP | Errno::ISDIR | Errno::NXIO | Errno::NODEV | Errno::ACCESS | Errno::PERM,
        ) => Ok(Existing::Foreign),
        Err(error) => Err(error),
    }
}

/// Creates a file that does not exist yet.
pub(super) fn create(place: &Place<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(&place.dir, name, flags, PRIVATE)
}

/// Creates a file; an existing file of that name is removed first. `EXIST` if that fails.
pub(super) fn replace(place: &Place<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    match create(place, name) {
        Err(Errno::EXIST) => {
            if !remove(place, name) {
                return Err(Errno::EXIST);
            }
            create(place, name)
        }
        made => made,
    }
}

/// Removes a name that is not a directory; returns whether it is gone.
pub(super) fn remove(place: &Place<'_>, name: &[u8]) -> bool {
    matches!(rustix::fs::unlinkat(&place.dir, name, AtFlags::empty()), Ok(()) | Err(Errno::NOENT))
}

//! Mode, time and owner of what was moved.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::OnceLock;

use packtrain_object::{Mtime, RelPath};
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid};
use rustix::io::Errno;

use super::beneath;
use super::parents::Place;
use super::root::Root;
use super::stat::{Kind, Stat};

/// Metadata to set; what is `None` stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Permission bits, 07777.
    pub mode: Option<u32>,
    /// Time of the last modification.
    pub mtime: Option<Mtime>,
    /// User and group.
    pub owner: Option<(u32, u32)>,
}

impl Root {
    /// Sets the metadata of what exists: a file, a directory (the root itself by the empty path)
    /// or a symbolic link, which is never followed and has no mode of its own.
    ///
    /// # Errors
    /// What the file system says.
    pub fn settle(&self, rel: &RelPath, meta: &Meta) -> io::Result<()> {
        self.with_place(rel.as_bytes(), |place| {
            let stat = rustix::fs::statat(&place.dir, place.name, AtFlags::SYMLINK_NOFOLLOW)?;
            if let Some((uid, gid)) = meta.owner {
                let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
                rustix::fs::chownat(&place.dir, place.name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            // After the owner, whose change clears the set-user-id bits.
            if let (Some(mode), false) = (meta.mode, Stat::from(&stat).kind == Kind::Symlink) {
                no_modes_is_fine(change_mode_at(place, mode))?;
            }
            match meta.mtime {
                Some(mtime) => rustix::fs::utimensat(
                    &place.dir,
                    place.name,
                    &timestamps(mtime),
                    AtFlags::SYMLINK_NOFOLLOW,
                ),
                None => Ok(()),
            }
        })
    }

    pub(super) fn change_mode(&self, rel: &RelPath, mode: u32) -> io::Result<()> {
        self.with_place(rel.as_bytes(), |place| change_mode_at(place, mode))
    }
}

/// Sets everything on an open file; the modification time last, as the others may touch it.
pub(super) fn apply_to_file(fd: impl AsFd, mode: u32, meta: &Meta) -> Result<(), Errno> {
    let fd = fd.as_fd();
    if let Some((uid, gid)) = meta.owner {
        rustix::fs::fchown(fd, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    }
    no_modes_is_fine(rustix::fs::fchmod(fd, Mode::from_raw_mode(mode & 0o7777)))?;
    match meta.mtime {
        Some(mtime) => rustix::fs::futimens(fd, &timestamps(mtime)),
        None => Ok(()),
    }
}

/// The mask that new files get, read once: the call that asks for it also changes it.
pub(super) fn umask() -> u32 {
    static MASK: OnceLock<u32> = OnceLock::new();
    *MASK.get_or_init(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
        mask.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o022)
    })
}

/// Changes the mode of a name without following a link put there meanwhile. `fchmodat` cannot do
/// that before Linux 6.6, so it goes by an open handle, which need not be readable.
fn change_mode_at(place: &Place<'_>, mode: u32) -> Result<(), Errno> {
    let mode = Mode::from_raw_mode(mode & 0o7777);
    let fd = beneath::open_no_follow(place.dir.as_fd(), place.name, OFlags::PATH)?;
    let by_handle = format!("/proc/self/fd/{}", fd.as_raw_fd());
    match rustix::fs::chmodat(CWD, by_handle.as_str(), mode, AtFlags::empty()) {
        // No /proc here.
        Err(Errno::NOENT | Errno::NOTDIR) => {
            let flags = OFlags::RDONLY | OFlags::NONBLOCK;
            rustix::fs::fchmod(beneath::open_no_follow(place.dir.as_fd(), place.name, flags)?, mode)
        }
        changed => changed,
    }
}

/// A file system without modes (FAT, some network shares) refuses even its owner. The data counts
/// for more, so that is no failure.
fn no_modes_is_fine(changed: Result<(), Errno>) -> Result<(), Errno> {
    match changed {
        Err(Errno::PERM | Errno::OPNOTSUPP) => Ok(()),
        changed => changed,
    }
}

fn timestamps(mtime: Mtime) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec {
            tv_sec: mtime.secs,
            // What a peer says must be a time: the special values beyond mean "now" and "leave".
            tv_nsec: i64::from(mtime.nanos.min(999_999_999)),
        },
    }
}

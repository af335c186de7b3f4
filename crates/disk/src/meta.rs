//! Mode, time and owner of files.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use packtrain_object::{Acls, Attributes, Mtime, RelPath};
use rustix::fs::{AtFlags, Gid, Mode, Timespec, Timestamps, UTIME_NOW, Uid};
use rustix::io::Errno;

use super::acls;
use super::attributes;
use super::mode::change_mode_at;
use super::root::Root;
use super::stat::{Kind, Stat};

/// Modification times that every file system holds, in seconds: FAT begins with the year 1980, and 32
/// bits end in 2038.
const HELD_EVERYWHERE: Range<i64> = 315_532_800 + 86_400..1 << 31;

/// Metadata to set; `None` leaves the current value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta<'a> {
    /// Permission bits, 07777. The set-user-id and set-group-id bits, and a file's sticky bit, are
    /// set only if `owner` is given and could be set.
    pub mode: Option<u32>,
    /// Modification time. If the file system cannot hold it, it becomes the nearest that it can, and
    /// [`Root::not_timed`] counts it.
    pub mtime: Option<Mtime>,
    /// User and group. If this account may not set them, they keep their values, and
    /// [`Root::not_owned`] counts it.
    pub owner: Option<(u32, u32)>,
    /// Extended attributes of users: exactly these. If there is no support or no room for them,
    /// [`Root::not_attributed`] counts it.
    pub attributes: Option<&'a Attributes>,
    /// Access control lists: exactly these. If they cannot be set, [`Root::not_listed`] counts it.
    pub acls: Option<&'a Acls>,
}

impl Root {
    /// Sets the metadata of a file, a directory (the root itself by the empty path) or a symbolic
    /// link. A link is never followed and has no mode of its own.
    ///
    /// # Errors
    /// I/O errors.
    pub fn settle(&self, rel: &RelPath, meta: &Meta<'_>) -> io::Result<()> {
        let applied = self.with_place(rel.as_bytes(), |place| {
            let stat = rustix::fs::statat(&place.dir, place.name, AtFlags::SYMLINK_NOFOLLOW)?;
            let stat = Stat::from(&stat);
            // Set before owner and mode, which may take the right away.
            let attributes = match meta.attributes {
                Some(wanted) => attributes::apply_at(place, &stat, wanted)?,
                None => true,
            };
            let owner = set_owner(
                meta.owner,
                || Ok(stat),
                |uid, gid| {
                    rustix::fs::chownat(&place.dir, place.name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
                },
            )?;
            // Set after the owner, because a change of the owner clears the set-user-id bits.
            if let (Some(mode), false) = (meta.mode, stat.kind == Kind::Symlink) {
                no_modes_is_fine(change_mode_at(place, owner.mode(mode, stat.kind)))?;
            }
            // After the mode, which changes the mask of a list.
            let acls = match meta.acls {
                Some(wanted) => acls::apply_at(place, &stat, wanted)?,
                None => true,
            };
            let name = place.name;
            let time = set_time(
                meta.mtime,
                |times| rustix::fs::utimensat(&place.dir, name, times, AtFlags::SYMLINK_NOFOLLOW),
                || rustix::fs::statat(&place.dir, name, AtFlags::SYMLINK_NOFOLLOW),
            )?;
            Ok(Applied { owner, attributes, acls, time })
        })?;
        self.note(applied);
        Ok(())
    }

    /// How many times an owner or group could not be set.
    pub fn not_owned(&self) -> u64 {
        self.not_owned.load(Ordering::Relaxed)
    }

    /// How many times the file system could not hold a modification time.
    pub fn not_timed(&self) -> u64 {
        self.not_timed.load(Ordering::Relaxed)
    }

    pub(super) fn note(&self, applied: Applied) {
        if applied.owner == Owner::Foreign {
            self.not_owned.fetch_add(1, Ordering::Relaxed);
        }
        if !applied.attributes {
            self.not_attributed.fetch_add(1, Ordering::Relaxed);
        }
        if !applied.acls {
            self.not_listed.fetch_add(1, Ordering::Relaxed);
        }
        if !applied.time {
            self.not_timed.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn change_mode(&self, rel: &RelPath, mode: u32) -> io::Result<()> {
        self.with_place(rel.as_bytes(), |place| change_mode_at(place, mode))
    }
}

/// What of the metadata could be set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Applied {
    owner: Owner,
    /// Whether the attributes are those that were wanted.
    attributes: bool,
    /// Whether the access control lists are those that were wanted.
    acls: bool,
    /// Whether the modification time is the one that was wanted.
    time: bool,
}

/// The result of a request for an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// No owner was requested.
    Unasked,
    /// It is set.
    Set,
    /// This account may not set the owner.
    Foreign,
}

impl Owner {
    /// The bits of a mode to set. The bits that let a file act for its owner are set only if the
    /// owner was set.
    fn mode(self, mode: u32, kind: Kind) -> u32 {
        match (self, kind) {
            (Self::Set, _) => mode & 0o7777,
            (_, Kind::Directory) => mode & 0o1777,
            _ => mode & 0o777,
        }
    }
}

/// Sets owner and group with `chown`; without the permission only the group, if that is allowed.
fn set_owner(
    wanted: Option<(u32, u32)>,
    stat: impl FnOnce() -> Result<Stat, Errno>,
    chown: impl Fn(Option<Uid>, Option<Gid>) -> Result<(), Errno>,
) -> Result<Owner, Errno> {
    let Some((uid, gid)) = wanted else { return Ok(Owner::Unasked) };
    let stat = stat()?;
    if (stat.uid, stat.gid) == (uid, gid) {
        return Ok(Owner::Set);
    }
    match chown(Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))) {
        Ok(()) => Ok(Owner::Set),
        // INVAL: the user namespace does not map this user.
        Err(Errno::PERM | Errno::INVAL | Errno::OPNOTSUPP) => {
            let _ = chown(None, Some(Gid::from_raw(gid)));
            Ok(Owner::Foreign)
        }
        Err(error) => Err(error),
    }
}

/// Sets all metadata on an open file; the modification time last, because the other calls may
/// change it.
pub(super) fn apply_to_file(fd: impl AsFd, mode: u32, meta: &Meta<'_>) -> Result<Applied, Errno> {
    let fd = fd.as_fd();
    let attributes = match meta.attributes {
        Some(wanted) => attributes::apply(fd, wanted)?,
        None => true,
    };
    let stat = || rustix::fs::fstat(fd).map(|stat| Stat::from(&stat));
    let owner = set_owner(meta.owner, stat, |uid, gid| rustix::fs::fchown(fd, uid, gid))?;
    let mode = Mode::from_raw_mode(owner.mode(mode, Kind::File));
    no_modes_is_fine(rustix::fs::fchmod(fd, mode))?;
    let acls = apply_acls(fd, meta)?;
    let time = set_time_of(fd, meta)?;
    Ok(Applied { owner, attributes, acls, time })
}

fn apply_acls(fd: BorrowedFd<'_>, meta: &Meta<'_>) -> Result<bool, Errno> {
    match meta.acls {
        Some(wanted) => acls::apply(fd, false, wanted),
        None => Ok(true),
    }
}

/// Like [`apply_to_file`], for a file that was just created with the permission bits of `mode`, of
/// which umask and default ACL may have removed some. `is_kept` says whether they did not, if that is
/// known; the second result says it then.
pub(super) fn apply_to_new_file(
    fd: impl AsFd,
    mode: u32,
    meta: &Meta<'_>,
    is_kept: Option<bool>,
) -> Result<(Applied, bool), Errno> {
    let fd = fd.as_fd();
    // A new file has none.
    let attributes = match meta.attributes.filter(|wanted| !wanted.is_empty()) {
        Some(wanted) => attributes::apply(fd, wanted)?,
        None => true,
    };
    let stat = || rustix::fs::fstat(fd).map(|stat| Stat::from(&stat));
    let is_kept = match is_kept {
        Some(is_kept) => is_kept,
        None => stat()?.mode & 0o7777 == mode & 0o777,
    };
    let owner = set_owner(meta.owner, stat, |uid, gid| rustix::fs::fchown(fd, uid, gid))?;
    let wanted = owner.mode(mode, Kind::File);
    if !is_kept || wanted != mode & 0o777 {
        no_modes_is_fine(rustix::fs::fchmod(fd, Mode::from_raw_mode(wanted)))?;
    }
    let acls = apply_acls(fd, meta)?;
    let time = set_time_of(fd, meta)?;
    Ok((Applied { owner, attributes, acls, time }, is_kept))
}

fn set_time_of(fd: BorrowedFd<'_>, meta: &Meta<'_>) -> Result<bool, Errno> {
    let set = |times: &Timestamps| rustix::fs::futimens(fd, times);
    set_time(meta.mtime, set, || rustix::fs::fstat(fd))
}

/// Sets a time; false if the file system changed it. All file systems hold the times from 1980 to 2037;
/// others are looked at again.
fn set_time(
    wanted: Option<Mtime>,
    set: impl FnOnce(&Timestamps) -> Result<(), Errno>,
    stat: impl FnOnce() -> Result<rustix::fs::Stat, Errno>,
) -> Result<bool, Errno> {
    let Some(mtime) = wanted else { return Ok(true) };
    set(&timestamps(mtime))?;
    if HELD_EVERYWHERE.contains(&mtime.secs) {
        return Ok(true);
    }
    // FAT keeps every other second.
    Ok(Stat::from(&stat()?).mtime.secs.abs_diff(mtime.secs) < 2)
}

/// The umask, read once from /proc, because umask(2) cannot read it without a change.
pub(super) fn umask() -> u32 {
    static MASK: OnceLock<u32> = OnceLock::new();
    *MASK.get_or_init(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
        mask.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o022)
    })
}

/// File systems without modes (FAT, some network shares) refuse `chmod` even to the owner. The data
/// matters more, so that is not an error.
pub(super) fn no_modes_is_fine(changed: Result<(), Errno>) -> Result<(), Errno> {
    match changed {
        Err(Errno::PERM | Errno::OPNOTSUPP) => Ok(()),
        changed => changed,
    }
}

/// The time of access becomes the present, as with rsync: file systems of libfuse 2 ignore a change of
/// one time alone.
fn timestamps(mtime: Mtime) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        last_modification: Timespec {
            tv_sec: mtime.secs,
            // The value comes from a peer and must be a time: larger values mean "now" and "omit"
            // to the kernel.
            tv_nsec: i64::from(mtime.nanos.min(999_999_999)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_the_file_system_changes_is_told() {
        let file = tempfile::tempfile().unwrap();
        let told = |wanted: i64, held: i64| {
            let time = |secs| Mtime { secs, nanos: 0 };
            rustix::fs::futimens(&file, &timestamps(time(held))).unwrap();
            set_time(Some(time(wanted)), |_| Ok(()), || rustix::fs::fstat(&file)).unwrap()
        };
        let end_of_32_bits = (1 << 31) - 1;
        assert!(!told(5_680_281_600, end_of_32_bits), "the year 2150");
        assert!(told(1 << 31, 1 << 31));
        assert!(told(1_000_000_001, 7), "is not looked at");
        assert!(told(3, 2), "every other second");
        assert!(!told(-5_000_000_000, -5), "the year 1811");
    }
}

//! Temporaries: a file is written under a hidden name in the directory of its target and renamed
//! when it is complete, so that the old version stays whole until then.
//!
//! The name is the same in every run, so that a later run finds the temporary. A file of that name
//! that fails the checks of [`super::own`] is removed and created again. If it cannot be removed,
//! for example in a directory with the sticky bit, a random name is used.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};

use packtrain_object::RelPath;
use packtrain_os::entropy;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::meta::{self, Meta};
use super::own::{self, Existing, PRIVATE};
use super::parents::Place;
use super::root::Root;
use super::stat::{Kind, Stat};
use super::temp_name::{RANDOM, TAG_MAX, name, random_tag};
use super::temp_state::TempIdentity;
use super::{beneath, root};

/// Number of random names to try; one suffices unless entropy is broken.
const MAX_TRIES: usize = 8;

impl Root {
    /// Opens the temporary of `target` for reading and writing, with length `len` and holes where
    /// nothing was written. `tag` identifies the transfer. With `keep_existing`, a temporary of
    /// this run, or one that an earlier run of this user left, is reopened with its content;
    /// otherwise it is created anew.
    ///
    /// # Errors
    /// I/O errors; `EINVAL` for a tag that cannot be part of a name; an error without a code if the
    /// temporary of this run was replaced by another file.
    pub fn open_temp(
        &self,
        target: &RelPath,
        tag: &str,
        len: u64,
        keep_existing: bool,
    ) -> io::Result<File> {
        let reopened = keep_existing && self.made.is_open(target);
        let (fd, size) = match keep_existing {
            true => self.reopen_temp(target, tag)?,
            false => (self.make_temp(target, tag)?, None),
        };
        let stat = Stat::from(&rustix::fs::fstat(&fd)?);
        if size.unwrap_or(stat.size) != len {
            rustix::io::retry_on_intr(|| rustix::fs::ftruncate(&fd, len))?;
        }
        self.made.opened(target, &stat, keep_existing && !reopened);
        Ok(fd.into())
    }

    /// The temporary of this run, or of an earlier one, or a new one.
    fn reopen_temp(&self, target: &RelPath, tag: &str) -> io::Result<(OwnedFd, Option<u64>)> {
        if let Some(file) = self.made.file(target) {
            let (fd, stat) = self.with_temp(target, tag, |place, temp| {
                let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY;
                let fd = beneath::open_no_follow(place.dir.as_fd(), temp, flags)?;
                let stat = Stat::from(&rustix::fs::fstat(&fd)?);
                Ok((fd, stat))
            })?;
            return match stat.kind == Kind::File && file == (stat.dev, stat.ino) {
                true => Ok((fd, Some(stat.size))),
                false => Err(io::Error::other("the temporary was replaced by another file")),
            };
        }
        match self.find_temp(target, tag, OFlags::RDWR)? {
            Some((fd, stat)) => Ok((fd, Some(stat.size))),
            None => Ok((self.make_temp(target, tag)?, Some(0))),
        }
    }

    /// The temporary that an earlier run of this user left.
    fn find_temp(
        &self,
        target: &RelPath,
        tag: &str,
        flags: OFlags,
    ) -> io::Result<Option<(OwnedFd, Stat)>> {
        match self.with_temp(target, tag, |place, temp| own::open(place, temp, flags))? {
            Existing::Own(fd, stat) => return Ok(Some((fd, stat))),
            Existing::Absent => return Ok(None),
            Existing::Foreign => {}
        }
        // The earlier run had to use a random name.
        let (dir, last) = root::split(target.as_bytes());
        let sample = name(last, &random_tag(tag, 0), self.name_max);
        let start = &sample[..sample.len() - RANDOM];
        let Ok(items) = self.list_bytes(dir) else { return Ok(None) };
        for item in items {
            if item.kind != Kind::File
                || item.name.len() != sample.len()
                || !item.name.starts_with(start)
            {
                continue;
            }
            let found =
                self.with_place(target.as_bytes(), |place| own::open(place, &item.name, flags))?;
            let end = std::str::from_utf8(&item.name[start.len()..]);
            if let (Existing::Own(fd, stat), Ok(end)) = (found, end) {
                self.made.named(target, format!("{tag}-{end}"));
                return Ok(Some((fd, stat)));
            }
        }
        Ok(None)
    }

    /// Creates a new temporary.
    fn make_temp(&self, target: &RelPath, tag: &str) -> io::Result<OwnedFd> {
        let made = self.with_temp(target, tag, own::replace);
        if made.as_ref().is_err_and(|e| Errno::from_io_error(e) == Some(Errno::EXIST)) {
            for _ in 0..MAX_TRIES {
                let other = random_tag(tag, entropy::seed());
                match self.with_name(target, &other, own::create) {
                    Err(e) if Errno::from_io_error(&e) == Some(Errno::EXIST) => {}
                    Err(error) => return Err(error),
                    Ok(fd) => {
                        self.made.insert(target, Some(other));
                        return Ok(fd);
                    }
                }
            }
        }
        let fd = made?;
        self.made.insert(target, None);
        Ok(fd)
    }

    /// Opens the target itself for writing, for `--inplace`, and gives up that the old version
    /// stays whole. Creates it if it does not exist, and sets its length to `len` if that is known.
    /// While it is open, no other call of this function can open it. A new file is private, or has
    /// the mode of the user's umask if it is `public`.
    ///
    /// # Errors
    /// I/O errors; `EINVAL` for a file that is not regular; `ResourceBusy` while another transfer
    /// writes it.
    pub fn open_in_place(
        &self,
        target: &RelPath,
        len: Option<u64>,
        public: bool,
    ) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
        let mode = if public { Mode::from_raw_mode(0o666) } else { PRIVATE };
        let fd = self.with_place(target.as_bytes(), |place| {
            rustix::fs::openat(&place.dir, place.name, flags, mode)
        })?;
        let raw = rustix::fs::fstat(&fd)?;
        let stat = Stat::from(&raw);
        if stat.kind != Kind::File {
            return Err(Errno::INVAL.into());
        }
        // On a file system without locks the transfer runs without one. Another name of a file that
        // this run has open is locked by this run already.
        let inode = (raw.st_dev, raw.st_ino);
        let locked = rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive);
        if locked != Err(Errno::WOULDBLOCK) {
            self.in_place.lock().insert(inode);
        } else if !self.in_place.lock().contains(&inode) {
            let text = "another program has locked it; if that is a transfer, wait for its end";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
        }
        if let Some(len) = len.filter(|len| *len != stat.size) {
            rustix::io::retry_on_intr(|| rustix::fs::ftruncate(&fd, len))?;
        }
        Ok(fd.into())
    }

    /// The status of the temporary of `target`; `None` if there is none of this user. This run
    /// reopens only the file whose status was returned.
    ///
    /// # Errors
    /// I/O errors other than a missing file.
    pub fn temp_stat(&self, target: &RelPath, tag: &str) -> io::Result<Option<Stat>> {
        match self.find_temp(target, tag, OFlags::RDONLY) {
            Ok(Some((_, stat))) => {
                self.made.seen(target, &stat);
                Ok(Some(stat))
            }
            Ok(None) => Ok(None),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::NOENT | Errno::NOTDIR) => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Whether this run has opened the temporary of `target` and not finished it.
    pub fn has_temp(&self, target: &RelPath) -> bool {
        self.made.is_open(target)
    }

    /// Whether this run has temporaries that a later run can resume.
    pub fn has_temps(&self) -> bool {
        !self.made.is_empty()
    }

    /// Removes the temporary of `target`; a missing one is not an error.
    ///
    /// # Errors
    /// I/O errors.
    pub fn remove_temp(&self, target: &RelPath, tag: &str) -> io::Result<()> {
        self.with_temp(target, tag, unlink)?;
        self.made.forget(target);
        Ok(())
    }

    /// Removes the temporary of `target` that an earlier run left, if there is one. Unlike other calls
    /// it makes no directory that is planned.
    ///
    /// # Errors
    /// I/O errors.
    pub fn remove_left_temp(&self, target: &RelPath, tag: &str) -> io::Result<()> {
        let _gate = self.fresh.gate.read();
        self.with_place_ungated(target.as_bytes(), |place| {
            unlink(place, &name(place.name, tag, self.name_max))
        })
    }

    /// Removes the temporaries of this run that no later run can resume: all except those opened
    /// with `keep_existing`. Call it after all writes have ended.
    pub fn remove_unfinished_temps(&self, tag: &str) {
        for target in self.made.unfinished() {
            let _ = self.remove_temp(&target, tag);
        }
    }

    /// Writes a whole small file to its temporary: open, write, close.
    ///
    /// # Errors
    /// I/O errors; the temporary is removed then.
    pub fn write_small(&self, target: &RelPath, tag: &str, bytes: &[u8]) -> io::Result<()> {
        let fd = self.make_temp(target, tag)?;
        File::from(fd).write_all(bytes).inspect_err(|_| {
            let _ = self.remove_temp(target, tag);
        })
    }

    /// Like [`Root::write_small`], with the metadata set while the file is open, so that
    /// [`Root::commit_ready`] only renames.
    ///
    /// # Errors
    /// I/O errors; the temporary is removed then.
    pub fn write_ready(
        &self,
        target: &RelPath,
        tag: &str,
        bytes: &[u8],
        mode: u32,
        meta: &Meta<'_>,
    ) -> io::Result<()> {
        let mut file = File::from(self.make_temp(target, tag)?);
        let written = file.write_all(bytes);
        let ready = written.and_then(|()| Ok(meta::apply_to_file(&file, mode, meta)?));
        let applied = ready.inspect_err(|_| {
            let _ = self.remove_temp(target, tag);
        })?;
        self.note(applied);
        Ok(())
    }

    /// Renames a temporary of [`Root::write_ready`] to the target's name.
    ///
    /// # Errors
    /// I/O errors; the temporary stays then.
    pub fn commit_ready(&self, target: &RelPath, tag: &str) -> io::Result<()> {
        self.with_temp(target, tag, |place, temp| {
            rustix::fs::renameat(&place.dir, temp, &place.dir, place.name)
        })?;
        self.made.forget(target);
        Ok(())
    }

    /// Sets the temporary's metadata and renames it to the target's name, replacing an existing
    /// file. Nothing is synced; the caller does that before or after.
    ///
    /// # Errors
    /// I/O errors; `IsADirectory` if a directory has the name. The temporary stays then.
    pub fn commit(&self, target: &RelPath, tag: &str, meta: &Meta<'_>) -> io::Result<()> {
        let known = self.made.known(target);
        let applied = self.with_temp(target, tag, |place, temp| {
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
            let fd = beneath::open_no_follow(place.dir.as_fd(), temp, flags)?;
            let stat = Stat::from(&rustix::fs::fstat(&fd)?);
            let is_ours = match known {
                TempIdentity::File(dev, ino) => (stat.dev, stat.ino) == (dev, ino),
                // Created by this run, and its device and inode were not read.
                TempIdentity::Name => stat.nlink == 1,
                TempIdentity::Nothing => stat.is_own_file(),
            };
            if !is_ours || stat.kind != Kind::File {
                return Err(Errno::NOENT);
            }
            let mode = match meta.mode {
                Some(mode) => mode,
                None => mode_of_target(place),
            };
            let applied = meta::apply_to_file(&fd, mode, meta)?;
            rustix::fs::renameat(&place.dir, temp, &place.dir, place.name)?;
            Ok(applied)
        })?;
        self.made.forget(target);
        self.note(applied);
        Ok(())
    }

    /// Calls `work` with the place of `target` and the name of its temporary in this run.
    pub(super) fn with_temp<T>(
        &self,
        target: &RelPath,
        tag: &str,
        work: impl Fn(&Place<'_>, &[u8]) -> Result<T, Errno>,
    ) -> io::Result<T> {
        match self.made.tag(target) {
            Some(other) => self.with_name(target, &other, work),
            None => self.with_name(target, tag, work),
        }
    }

    fn with_name<T>(
        &self,
        target: &RelPath,
        tag: &str,
        work: impl Fn(&Place<'_>, &[u8]) -> Result<T, Errno>,
    ) -> io::Result<T> {
        let fits =
            !tag.is_empty() && tag.len() <= TAG_MAX && !tag.bytes().any(|b| matches!(b, b'/' | 0));
        if !fits || target.as_bytes().is_empty() {
            return Err(Errno::INVAL.into());
        }
        self.with_place(target.as_bytes(), |place| {
            work(place, &name(place.name, tag, self.name_max))
        })
    }
}

/// The mode if the source gives none: that of the old file, or that of the user's umask.
fn mode_of_target(place: &Place<'_>) -> u32 {
    match rustix::fs::statat(&place.dir, place.name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if Stat::from(&stat).kind == Kind::File => Stat::from(&stat).mode & 0o777,
        _ => 0o666 & !meta::umask(),
    }
}

/// Removes a name; a missing one is not an error.
fn unlink(place: &Place<'_>, name: &[u8]) -> Result<(), Errno> {
    rustix::fs::unlinkat(&place.dir, name, AtFlags::empty()).or_else(root::absent_is_fine)
}

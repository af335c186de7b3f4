//! Temporaries: a file grows under a hidden name beside its target and takes its name when it is
//! complete, so that the old version stays whole until then.
//!
//! The name is the same in every run, so that a later run finds what an earlier one left. What
//! has that name and is not ours ([`super::own`]) is removed and made anew; where it cannot be
//! removed, as in a directory with the sticky bit, a name that nobody can guess is used.

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
use super::temp_state::Known;
use super::{beneath, root};

/// How many names that nobody can guess are tried: one does, unless entropy is broken.
const TRIES: usize = 8;

impl Root {
    /// Opens the temporary of `target` for reading and writing, `len` bytes long and sparse where
    /// nothing was written. `tag` tells one transfer's temporaries from another's.
    /// With `keep_existing`, one of this run or one that an earlier run of this user left is
    /// reopened with what it holds; else it is made anew.
    ///
    /// # Errors
    /// What the file system says; `EINVAL` for a tag that cannot be part of a name; an error
    /// without a code if the temporary of this run was replaced by another file.
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

    /// The temporary of this run, or else of an earlier one, or else a new one.
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
        // An earlier run could not use the name either.
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

    /// Makes the temporary anew.
    fn make_temp(&self, target: &RelPath, tag: &str) -> io::Result<OwnedFd> {
        let made = self.with_temp(target, tag, own::replace);
        if made.as_ref().is_err_and(|e| Errno::from_io_error(e) == Some(Errno::EXIST)) {
            for _ in 0..TRIES {
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

    /// Opens the target itself for writing, made if it is not there, and cut or grown to `len`
    /// where that is known: for `--inplace`, which gives up that the old version stays whole.
    /// While it is open, nobody else has it open by this function. A new file is private, or
    /// has what the user's mask leaves if it is `public`.
    ///
    /// # Errors
    /// What the file system says; `EINVAL` for what is no regular file; `ResourceBusy` while
    /// another transfer writes it.
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
        // A file system without locks: better unlocked than not at all. Another name of a file that
        // this run has open already is locked by this run.
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

    /// What is known of the temporary of `target`; `None` when there is none that is ours. The
    /// file that was looked at is the one that this run reopens, or no other.
    ///
    /// # Errors
    /// Anything but its absence.
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

    /// Whether this run made or opened the temporary of `target` and did not finish with it.
    pub fn has_temp(&self, target: &RelPath) -> bool {
        self.made.is_open(target)
    }

    /// Whether temporaries of this run exist that a later one goes on from.
    pub fn has_temps(&self) -> bool {
        !self.made.is_empty()
    }

    /// Removes the temporary of `target`; that there is none is fine.
    ///
    /// # Errors
    /// What the file system says.
    pub fn remove_temp(&self, target: &RelPath, tag: &str) -> io::Result<()> {
        self.with_temp(target, tag, |place, temp| {
            rustix::fs::unlinkat(&place.dir, temp, AtFlags::empty()).or_else(root::absent_is_fine)
        })?;
        self.made.forget(target);
        Ok(())
    }

    /// Removes the temporaries that this run made and that no later run goes on from: all but
    /// those opened with `keep_existing`. Call it when nobody writes any more.
    pub fn remove_unfinished_temps(&self, tag: &str) {
        for target in self.made.unfinished() {
            let _ = self.remove_temp(&target, tag);
        }
    }

    /// Writes a whole small file into its temporary: open, write, close, and nothing else.
    ///
    /// # Errors
    /// What the file system says; the temporary is gone then.
    pub fn write_small(&self, target: &RelPath, tag: &str, bytes: &[u8]) -> io::Result<()> {
        let fd = self.make_temp(target, tag)?;
        File::from(fd).write_all(bytes).inspect_err(|_| {
            let _ = self.remove_temp(target, tag);
        })
    }

    /// Like [`Root::write_small`], with the metadata set while the file is open, so that
    /// [`Root::commit_ready`] has nothing left to do but the renaming.
    ///
    /// # Errors
    /// What the file system says; the temporary is gone then.
    pub fn write_ready(
        &self,
        target: &RelPath,
        tag: &str,
        bytes: &[u8],
        mode: u32,
        meta: &Meta,
    ) -> io::Result<()> {
        let mut file = File::from(self.make_temp(target, tag)?);
        let written = file.write_all(bytes);
        let ready = written.and_then(|()| Ok(meta::apply_to_file(&file, mode, meta)?));
        let owner = ready.inspect_err(|_| {
            let _ = self.remove_temp(target, tag);
        })?;
        self.note_owner(owner);
        Ok(())
    }

    /// Gives a temporary made by [`Root::write_ready`] the target's name.
    ///
    /// # Errors
    /// What the file system says. The temporary stays then.
    pub fn commit_ready(&self, target: &RelPath, tag: &str) -> io::Result<()> {
        self.with_temp(target, tag, |place, temp| {
            rustix::fs::renameat(&place.dir, temp, &place.dir, place.name)
        })?;
        self.made.forget(target);
        Ok(())
    }

    /// Gives the temporary its metadata and the target's name, in place of what had it.
    /// Nothing is synced: the caller has done so, or will.
    ///
    /// # Errors
    /// What the file system says; `IsADirectory` when a directory has the name. The temporary
    /// stays then.
    pub fn commit(&self, target: &RelPath, tag: &str, meta: &Meta) -> io::Result<()> {
        let known = self.made.known(target);
        let owner = self.with_temp(target, tag, |place, temp| {
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
            let fd = beneath::open_no_follow(place.dir.as_fd(), temp, flags)?;
            let stat = Stat::from(&rustix::fs::fstat(&fd)?);
            let is_ours = match known {
                Known::File(dev, ino) => (stat.dev, stat.ino) == (dev, ino),
                // Made by this run, and not asked for what it is.
                Known::Name => stat.nlink == 1,
                Known::Nothing => stat.is_own_file(),
            };
            if !is_ours || stat.kind != Kind::File {
                return Err(Errno::NOENT);
            }
            let mode = match meta.mode {
                Some(mode) => mode,
                None => mode_of_target(place),
            };
            let owner = meta::apply_to_file(&fd, mode, meta)?;
            rustix::fs::renameat(&place.dir, temp, &place.dir, place.name)?;
            Ok(owner)
        })?;
        self.made.forget(target);
        self.note_owner(owner);
        Ok(())
    }

    /// Runs `work` on the place of `target` and the name that its temporary has in this run.
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

/// Without a mode from the source: the old file's, or what the user's mask leaves.
fn mode_of_target(place: &Place<'_>) -> u32 {
    match rustix::fs::statat(&place.dir, place.name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if Stat::from(&stat).kind == Kind::File => Stat::from(&stat).mode & 0o777,
        _ => 0o666 & !meta::umask(),
    }
}

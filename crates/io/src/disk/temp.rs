//! Temporaries: a file grows under a hidden name beside its target and takes its name when it is
//! complete, so that the old version stays whole until then.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};

use packtrain_object::RelPath;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::beneath;
use super::meta::{self, Meta};
use super::parents::Place;
use super::root::{Root, absent_is_fine};
use super::stat::{Kind, Stat};

/// What a tag may take of a name, in bytes.
const TAG_MAX: usize = 64;
const MARK: &str = ".packtrain-";
/// Ours alone until it is complete.
const PRIVATE: Mode = Mode::from_raw_mode(0o600);

impl Root {
    /// Opens the temporary of `target` for reading and writing, `len` bytes long and sparse where
    /// nothing was written. `tag` tells one transfer's temporaries from another's.
    /// With `keep_existing`, one left by an earlier run is reopened with what it holds; else it is
    /// made anew.
    ///
    /// # Errors
    /// What the file system says; `EINVAL` for a tag that cannot be part of a name.
    pub fn open_temp(
        &self,
        target: &RelPath,
        tag: &str,
        len: u64,
        keep_existing: bool,
    ) -> io::Result<File> {
        let fd = self.with_temp(target, tag, |place, temp| {
            let flags = OFlags::RDWR | OFlags::NONBLOCK;
            if keep_existing {
                match beneath::open_no_follow(place.dir.as_fd(), temp, flags) {
                    Ok(fd) if is_ours(&fd)? => return Ok(fd),
                    // Not a file we could have made: make our own.
                    Ok(_) | Err(Errno::NOENT | Errno::LOOP | Errno::ISDIR | Errno::NXIO) => {}
                    Err(error) => return Err(error),
                }
            }
            create(place, temp)
        })?;
        if Stat::from(&rustix::fs::fstat(&fd)?).size != len {
            rustix::io::retry_on_intr(|| rustix::fs::ftruncate(&fd, len))?;
        }
        Ok(fd.into())
    }

    /// Opens the target itself for writing, made if it is not there, and cut or grown to `len`
    /// where that is known: for `--inplace`, which gives up that the old version stays whole.
    ///
    /// # Errors
    /// What the file system says; `EINVAL` for what is no regular file.
    pub fn open_in_place(&self, target: &RelPath, len: Option<u64>) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = self.with_place(target.as_bytes(), |place| {
            rustix::fs::openat(&place.dir, place.name, flags, PRIVATE)
        })?;
        let stat = Stat::from(&rustix::fs::fstat(&fd)?);
        if stat.kind != Kind::File {
            return Err(Errno::INVAL.into());
        }
        if let Some(len) = len.filter(|len| *len != stat.size) {
            rustix::io::retry_on_intr(|| rustix::fs::ftruncate(&fd, len))?;
        }
        Ok(fd.into())
    }

    /// What is known of the temporary of `target`; `None` when there is none.
    ///
    /// # Errors
    /// Anything but its absence.
    pub fn temp_stat(&self, target: &RelPath, tag: &str) -> io::Result<Option<Stat>> {
        self.with_temp(target, tag, |place, temp| {
            match rustix::fs::statat(&place.dir, temp, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => Ok(Some(Stat::from(&stat))),
                Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
                Err(error) => Err(error),
            }
        })
        .or_else(|error| match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            _ => Err(error),
        })
    }

    /// Removes the temporary of `target`; that there is none is fine.
    ///
    /// # Errors
    /// What the file system says.
    pub fn remove_temp(&self, target: &RelPath, tag: &str) -> io::Result<()> {
        self.with_temp(target, tag, |place, temp| {
            rustix::fs::unlinkat(&place.dir, temp, AtFlags::empty()).or_else(absent_is_fine)
        })
    }

    /// Writes a whole small file into its temporary: open, write, close, and nothing else.
    ///
    /// # Errors
    /// What the file system says; the temporary is gone then.
    pub fn write_small(&self, target: &RelPath, tag: &str, bytes: &[u8]) -> io::Result<()> {
        let fd = self.with_temp(target, tag, create)?;
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
        let mut file = File::from(self.with_temp(target, tag, create)?);
        let written = file.write_all(bytes);
        written.and_then(|()| Ok(meta::apply_to_file(&file, mode, meta)?)).inspect_err(|_| {
            let _ = self.remove_temp(target, tag);
        })
    }

    /// Gives a temporary made by [`Root::write_ready`] the target's name.
    ///
    /// # Errors
    /// What the file system says. The temporary stays then.
    pub fn commit_ready(&self, target: &RelPath, tag: &str) -> io::Result<()> {
        self.with_temp(target, tag, |place, temp| {
            rustix::fs::renameat(&place.dir, temp, &place.dir, place.name)
        })
    }

    /// Gives the temporary its metadata and the target's name, in place of what had it.
    /// Nothing is synced: the caller has done so, or will.
    ///
    /// # Errors
    /// What the file system says; `IsADirectory` when a directory has the name. The temporary
    /// stays then.
    pub fn commit(&self, target: &RelPath, tag: &str, meta: &Meta) -> io::Result<()> {
        self.with_temp(target, tag, |place, temp| {
            let fd = beneath::open_no_follow(
                place.dir.as_fd(),
                temp,
                OFlags::RDONLY | OFlags::NONBLOCK,
            )?;
            if !is_ours(&fd)? {
                return Err(Errno::NOENT);
            }
            let mode = match meta.mode {
                Some(mode) => mode,
                None => mode_of_target(place),
            };
            meta::apply_to_file(&fd, mode, meta)?;
            rustix::fs::renameat(&place.dir, temp, &place.dir, place.name)
        })
    }

    pub(super) fn with_temp<T>(
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

/// Whether a name is one of ours, made for a file on its way: so that a caller
/// need not move or delete it as if it were the user's.
pub fn is_temp_name(name: &[u8]) -> bool {
    let mark = MARK.as_bytes();
    let after = name.windows(mark.len()).rposition(|part| part == mark).map(|at| at + mark.len());
    name.first() == Some(&b'.') && after.is_some_and(|at| at > mark.len() + 1 && at < name.len())
}

/// The temporary's name: `.NAME.packtrain-TAG`, and for a name too long for that, its beginning
/// with a hash of the whole.
pub(super) fn name(target: &[u8], tag: &str, max: usize) -> Vec<u8> {
    let fixed = 1 + MARK.len() + tag.len();
    let mut out = Vec::with_capacity(fixed + target.len());
    out.push(b'.');
    if fixed + target.len() <= max {
        out.extend_from_slice(target);
    } else {
        let hash = blake3::hash(target).to_hex();
        let hash = &hash.as_bytes()[..16];
        out.extend_from_slice(whole_characters(target, max.saturating_sub(fixed + 1 + hash.len())));
        out.push(b'~');
        out.extend_from_slice(hash);
    }
    out.extend_from_slice(MARK.as_bytes());
    out.extend_from_slice(tag.as_bytes());
    out
}

/// At most `len` bytes, and no part of a UTF-8 character, which some file systems refuse.
fn whole_characters(name: &[u8], len: usize) -> &[u8] {
    let mut end = len.min(name.len());
    while end > 0 && end < name.len() && name[end] & 0xC0 == 0x80 {
        end -= 1;
    }
    &name[..end]
}

/// Makes a temporary anew; one of that name goes first.
fn create(place: &Place<'_>, temp: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || rustix::fs::openat(&place.dir, temp, flags, PRIVATE);
    match open() {
        Err(Errno::EXIST) => {
            rustix::fs::unlinkat(&place.dir, temp, AtFlags::empty()).or_else(absent_is_fine)?;
            open()
        }
        opened => opened,
    }
}

/// Whether this can be a temporary of ours: a regular file with one name, so that writing to it
/// changes no other.
fn is_ours(fd: &OwnedFd) -> Result<bool, Errno> {
    let stat = Stat::from(&rustix::fs::fstat(fd)?);
    Ok(stat.kind == Kind::File && stat.nlink == 1)
}

/// Without a mode from the source: the old file's, or what the user's mask leaves.
fn mode_of_target(place: &Place<'_>) -> u32 {
    match rustix::fs::statat(&place.dir, place.name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if Stat::from(&stat).kind == Kind::File => Stat::from(&stat).mode & 0o777,
        _ => 0o666 & !meta::umask(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_within_what_the_file_system_takes() {
        assert_eq!(name(b"a", "t", 255), b".a.packtrain-t");
        for len in [1, 100, 230, 240, 255] {
            for max in [128, 143, 255] {
                let made = name(&vec![b'x'; len], &"t".repeat(TAG_MAX), max);
                assert!(made.len() <= max && is_temp_name(&made), "{len} {max}");
            }
        }
        // Two long names that begin alike.
        let long = |end: u8| name(&[&[b'x'; 254][..], &[end]].concat(), "t", 255);
        assert_ne!(long(b'1'), long(b'2'));
    }

    #[test]
    fn only_our_names_are_ours() {
        assert!(is_temp_name(b".a.packtrain-0f"));
        for other in [&b"a.packtrain-0f"[..], b".a.packtrain-", b".packtrain-0f", b".a", b"", b"."]
        {
            assert!(!is_temp_name(other), "{}", String::from_utf8_lossy(other));
        }
    }
}

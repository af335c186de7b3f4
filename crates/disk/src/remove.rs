//! Removes names without following links.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use packtrain_object::RelPath;
use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;

use super::beneath;
use super::root::{DirItem, Root, read_items, split};
use super::stat::{Kind, Stat};

/// A directory beneath a [`Root`], opened to list and remove its content. Paths are relative to it
/// and follow no symbolic link at all, not even one that stays beneath the root.
pub struct RemovalDir<'a> {
    root: &'a Root,
    rel: Vec<u8>,
    base: OwnedFd,
    /// The directory below `base` that was used last.
    open: Option<(Vec<u8>, OwnedFd)>,
}

/// File systems whose inode numbers are made up or may come from a cache: the magic numbers of NFS,
/// SMB, CIFS, SMB 2, 9p and FUSE (statfs(2)).
const UNSTABLE_IDENTITIES: [u32; 6] =
    [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42, 0x0102_1997, 0x6573_5546];

impl Root {
    /// Whether a file that was replaced under this name is seen to be another one, by its device and
    /// inode number. Not on network file systems and FUSE.
    ///
    /// # Errors
    /// I/O errors.
    pub fn has_stable_identities(&self, rel: &RelPath) -> io::Result<bool> {
        let found = self.with_place(rel.as_bytes(), |place| rustix::fs::fstatfs(&place.dir))?;
        Ok(!UNSTABLE_IDENTITIES.contains(&(found.f_type as u32)))
    }

    /// Removes a file, a link or an empty directory.
    ///
    /// # Errors
    /// I/O errors, including `NotFound`.
    pub fn remove(&self, rel: &RelPath) -> io::Result<()> {
        let rel = rel.as_bytes();
        if rel.is_empty() {
            return Err(Errno::BUSY.into());
        }
        let removed = self.with_place(rel, |place| {
            rustix::fs::unlinkat(&place.dir, place.name, AtFlags::empty())
        });
        // A removed link may have been part of the path of a cached directory.
        self.forget(rel);
        match removed.as_ref().map_err(Errno::from_io_error) {
            Err(Some(Errno::ISDIR)) => self.remove_dir(rel),
            // The error of POSIX and some file systems for a directory.
            Err(Some(Errno::PERM)) if self.is_dir(rel) => self.remove_dir(rel),
            _ => removed,
        }
    }

    /// Removes `rel` and everything beneath it; links are removed, not followed. The root itself
    /// cannot be removed.
    ///
    /// # Errors
    /// The first error; entries removed before it stay removed.
    pub fn remove_tree(&self, rel: &RelPath) -> io::Result<()> {
        let stat = match self.stat(rel)? {
            _ if rel.is_root() => return Err(Errno::BUSY.into()),
            None => return Err(Errno::NOENT.into()),
            Some(stat) if stat.kind != Kind::Directory => return self.remove(rel),
            Some(stat) => stat,
        };
        let mut open = self.removal_of(rel, &stat)?;
        // Paths are queued instead of open directories, so that depth uses no file descriptors.
        let mut waiting = vec![(Vec::new(), false)];
        while let Some((dir, is_empty)) = waiting.pop() {
            if is_empty && dir.is_empty() {
                return self.remove(rel);
            }
            if is_empty {
                open.remove(&dir, Kind::Directory)?;
                continue;
            }
            let items = open.list(&dir)?;
            waiting.push((dir.clone(), true));
            for item in items {
                let path = match dir.is_empty() {
                    true => item.name,
                    false => [&dir[..], b"/", &item.name[..]].concat(),
                };
                match item.kind {
                    Kind::Directory => waiting.push((path, false)),
                    kind => open.remove(&path, kind)?,
                }
            }
        }
        Ok(())
    }

    /// Opens `rel` to remove its content.
    ///
    /// # Errors
    /// I/O errors.
    pub fn removal_dir(&self, rel: &RelPath) -> io::Result<RemovalDir<'_>> {
        let on_disk = self.fresh.on_disk(rel.as_bytes());
        let path = if rel.is_root() { b"." } else { &on_disk[..] };
        let base = beneath::open(self.fd(), path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(RemovalDir { root: self, rel: rel.as_bytes().to_vec(), base, open: None })
    }

    /// Opens the directory `rel`, which has this status. Whoever may rename in its parent can put
    /// something else in its place.
    fn removal_of(&self, rel: &RelPath, stat: &Stat) -> io::Result<RemovalDir<'_>> {
        let base = self.with_place(rel.as_bytes(), |place| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            beneath::open_no_follow(place.dir.as_fd(), place.name, flags)
        })?;
        let opened = Stat::from(&rustix::fs::fstat(&base)?);
        if (opened.dev, opened.ino) != (stat.dev, stat.ino) {
            return Err(Errno::NOENT.into());
        }
        Ok(RemovalDir { root: self, rel: rel.as_bytes().to_vec(), base, open: None })
    }

    fn is_dir(&self, rel: &[u8]) -> bool {
        matches!(self.stat_bytes(rel), Ok(Some(stat)) if stat.kind == Kind::Directory)
    }

    fn remove_dir(&self, rel: &[u8]) -> io::Result<()> {
        self.with_place(rel, |place| {
            rustix::fs::unlinkat(&place.dir, place.name, AtFlags::REMOVEDIR)
        })
    }
}

impl RemovalDir<'_> {
    /// The names in the directory `dir`, unordered.
    ///
    /// # Errors
    /// I/O errors; `NotADirectory` or `FilesystemLoop` for a link.
    pub fn list(&mut self, dir: &[u8]) -> io::Result<Vec<DirItem>> {
        read_items(self.open(dir)?, usize::MAX)
    }

    /// Removes the file, link or empty directory at `path`, according to `kind`.
    ///
    /// # Errors
    /// I/O errors, including `DirectoryNotEmpty`.
    pub fn remove(&mut self, path: &[u8], kind: Kind) -> io::Result<()> {
        if path.is_empty() {
            return Err(Errno::BUSY.into());
        }
        let (parent, name) = split(path);
        let flags = match kind {
            Kind::Directory => AtFlags::REMOVEDIR,
            _ => AtFlags::empty(),
        };
        if kind == Kind::Directory {
            let whole = [&self.rel[..], b"/", path].concat();
            self.root.forget(if self.rel.is_empty() { path } else { &whole });
        }
        let parent = self.open(parent)?;
        Ok(rustix::io::retry_on_intr(|| rustix::fs::unlinkat(parent, name, flags))?)
    }

    fn open(&mut self, dir: &[u8]) -> io::Result<BorrowedFd<'_>> {
        if dir.is_empty() {
            return Ok(self.base.as_fd());
        }
        if self.open.as_ref().is_none_or(|(path, _)| path != dir) {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let fd = beneath::open_by_component(self.base.as_fd(), dir, flags)?;
            self.open = Some((dir.to_vec(), fd));
        }
        self.open.as_ref().map(|(_, fd)| fd.as_fd()).ok_or_else(|| Errno::NOENT.into())
    }
}

impl std::fmt::Debug for RemovalDir<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemovalDir").field("root", self.root).finish_non_exhaustive()
    }
}

//! Removing names and whole trees, never beyond a link.

use std::io;

use packtrain_object::RelPath;
use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::root::Root;
use super::stat::Kind;

impl Root {
    /// Removes a file, a link or an empty directory.
    ///
    /// # Errors
    /// What the file system says, `NotFound` among it.
    pub fn remove(&self, rel: &RelPath) -> io::Result<()> {
        self.remove_bytes(rel.as_bytes())
    }

    /// Removes `rel` and everything beneath it; links are removed, not followed.
    /// The root itself cannot be removed.
    ///
    /// # Errors
    /// The first error; what was removed before it stays removed.
    pub fn remove_tree(&self, rel: &RelPath) -> io::Result<()> {
        let top = rel.as_bytes();
        if top.is_empty() {
            return Err(Errno::BUSY.into());
        }
        match self.stat_bytes(top)? {
            None => return Err(Errno::NOENT.into()),
            Some(stat) if stat.kind != Kind::Directory => return self.remove_bytes(top),
            Some(_) => {}
        }
        // Paths wait here instead of open directories, so that depth costs no file handles.
        let mut waiting = vec![(top.to_vec(), false)];
        while let Some((dir, emptied)) = waiting.pop() {
            if emptied {
                self.remove_dir(&dir)?;
                continue;
            }
            let items = self.list_bytes(&dir)?;
            waiting.push((dir.clone(), true));
            for item in items {
                let path = [&dir[..], b"/", &item.name[..]].concat();
                match item.kind {
                    Kind::Directory => waiting.push((path, false)),
                    _ => self.remove_bytes(&path)?,
                }
            }
        }
        Ok(())
    }

    fn remove_bytes(&self, rel: &[u8]) -> io::Result<()> {
        if rel.is_empty() {
            return Err(Errno::BUSY.into());
        }
        let removed = self.with_place(rel, |place| {
            rustix::fs::unlinkat(&place.dir, place.name, AtFlags::empty())
        });
        match removed.as_ref().map_err(Errno::from_io_error) {
            Err(Some(Errno::ISDIR)) => self.remove_dir(rel),
            // What POSIX and some file systems say of a directory.
            Err(Some(Errno::PERM)) if self.is_dir(rel) => self.remove_dir(rel),
            _ => removed,
        }
    }

    fn is_dir(&self, rel: &[u8]) -> bool {
        matches!(self.stat_bytes(rel), Ok(Some(stat)) if stat.kind == Kind::Directory)
    }

    fn remove_dir(&self, rel: &[u8]) -> io::Result<()> {
        self.forget(rel);
        self.with_place(rel, |place| {
            rustix::fs::unlinkat(&place.dir, place.name, AtFlags::REMOVEDIR)
        })
    }
}

//! Making things durable, and what room there is for them.

use parking_lot::{Mutex, MutexGuard};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use packtrain_object::RelPath;
use packtrain_units::ByteCount;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::beneath;
use super::root::Root;
use super::stat::Stat;
use super::trouble::{Trouble, classify};

/// What a file system can still take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Space left for us.
    pub available: ByteCount,
    /// Files it can still make; `None` where the file system has no such limit.
    pub inodes: Option<u64>,
}

/// The file systems we work on beneath a root, each with a handle to sync it by.
///
/// A handle reports the errors of writing back since it was opened, so each is opened before the
/// first write to its file system.
pub(super) struct FileSystems {
    known: Mutex<Vec<(u64, Arc<OwnedFd>)>>,
}

impl FileSystems {
    /// Begins with that of the root itself.
    pub(super) fn of(root: &OwnedFd) -> io::Result<Self> {
        let dev = Stat::from(&rustix::fs::fstat(root)?).dev;
        Ok(Self { known: Mutex::new(vec![(dev, Arc::new(root.try_clone()?))]) })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(u64, Arc<OwnedFd>)>> {
        self.known.lock()
    }
}

impl Root {
    /// Makes everything written beneath the root durable (`syncfs`): data, names and metadata, on
    /// every file system that writes went to. It waits for whatever else is being written there.
    ///
    /// # Errors
    /// An error of writing back, a full disk among it, as the kernel reports it since Linux 5.8.
    pub fn sync(&self) -> io::Result<()> {
        // Syncing takes long, and others open directories meanwhile: the list is not kept locked.
        let handles = self.file_systems.lock().clone();
        for (_, fd) in handles {
            match rustix::io::retry_on_intr(|| rustix::fs::syncfs(&fd)) {
                // BADF: a directory we may enter but not open, so the handle is for paths alone.
                Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL | Errno::BADF) => {
                    rustix::fs::sync();
                }
                synced => synced?,
            }
        }
        Ok(())
    }

    /// Makes the data of one temporary durable (`fdatasync`): cheaper than [`Root::sync`] where few
    /// files grow on a disk that others write to.
    ///
    /// # Errors
    /// An error of writing back; `NotFound` when there is no such temporary.
    pub fn sync_temp(&self, target: &RelPath, tag: &str) -> io::Result<()> {
        self.with_temp(target, tag, |place, temp| {
            let flags = OFlags::RDONLY | OFlags::NONBLOCK;
            rustix::fs::fdatasync(beneath::open_no_follow(place.dir.as_fd(), temp, flags)?)
        })
    }

    /// What the root's file system can still take.
    ///
    /// # Errors
    /// What the file system says.
    pub fn free_space(&self) -> io::Result<Space> {
        let vfs = rustix::fs::fstatvfs(self.fd())?;
        Ok(Space {
            available: ByteCount(vfs.f_bavail.saturating_mul(vfs.f_frsize)),
            // Zero in all: made as needed, as on btrfs.
            inodes: (vfs.f_files > 0).then_some(vfs.f_favail),
        })
    }

    /// Like [`classify`], and tells space from inodes by asking the file system.
    pub fn trouble(&self, error: &io::Error) -> Trouble {
        match (classify(error), self.free_space()) {
            (Trouble::Full, Ok(Space { inodes: Some(0), .. })) => Trouble::FullInodes,
            (trouble, _) => trouble,
        }
    }

    /// Takes note of the file system of an open directory at `path`.
    pub(super) fn note_file_system(&self, dir: &OwnedFd, path: &[u8]) -> io::Result<()> {
        let dev = Stat::from(&rustix::fs::fstat(dir)?).dev;
        let mut known = self.file_systems.lock();
        if known.iter().all(|(other, _)| *other != dev) {
            // A handle made for paths alone cannot be synced.
            let handle = beneath::open(self.fd(), path, OFlags::RDONLY | OFlags::DIRECTORY);
            known.push((dev, Arc::new(handle.or_else(|_| dir.try_clone())?)));
        }
        Ok(())
    }
}

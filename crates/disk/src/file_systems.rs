//! Which file systems were written to.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::OFlags;

use super::beneath;
use super::stat::Stat;

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

    /// Takes note of the file system of `dir`, open at `path` beneath `root`.
    pub(super) fn note(&self, root: BorrowedFd<'_>, dir: &OwnedFd, path: &[u8]) -> io::Result<()> {
        let dev = Stat::from(&rustix::fs::fstat(dir)?).dev;
        let mut known = self.known.lock();
        if known.iter().all(|(other, _)| *other != dev) {
            // A handle made for paths alone cannot be synced.
            let handle = beneath::open(root, path, OFlags::RDONLY | OFlags::DIRECTORY);
            known.push((dev, Arc::new(handle.or_else(|_| dir.try_clone())?)));
        }
        Ok(())
    }

    /// A handle of each.
    pub(super) fn handles(&self) -> Vec<Arc<OwnedFd>> {
        self.known.lock().iter().map(|(_, handle)| Arc::clone(handle)).collect()
    }
}

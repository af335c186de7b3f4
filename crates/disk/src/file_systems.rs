//! The file systems that were written to.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::OFlags;

use super::beneath;
use super::stat::Stat;

/// The file systems beneath a root that were used, each with a handle for `syncfs`.
///
/// A handle reports write-back errors only since it was opened, so each is opened before the first
/// write to its file system.
pub(super) struct FileSystems {
    known: Mutex<Vec<(u64, Arc<OwnedFd>)>>,
}

impl FileSystems {
    /// Starts with the file system of the root.
    pub(super) fn of(root: &OwnedFd) -> io::Result<Self> {
        let dev = Stat::from(&rustix::fs::fstat(root)?).dev;
        Ok(Self { known: Mutex::new(vec![(dev, Arc::new(root.try_clone()?))]) })
    }

    /// Adds the file system of `dir`, which is open at `path` beneath `root`.
    pub(super) fn note(&self, root: BorrowedFd<'_>, dir: &OwnedFd, path: &[u8]) -> io::Result<()> {
        let dev = Stat::from(&rustix::fs::fstat(dir)?).dev;
        let mut known = self.known.lock();
        if known.iter().all(|(other, _)| *other != dev) {
            // An `O_PATH` handle cannot be synced.
            let handle = beneath::open(root, path, OFlags::RDONLY | OFlags::DIRECTORY);
            known.push((dev, Arc::new(handle.or_else(|_| dir.try_clone())?)));
        }
        Ok(())
    }

    /// A file of this run lies on the file system `dev`. Where no directory of it could be opened for
    /// reading, so that its handle cannot be synced, the file's own takes its place.
    pub(super) fn note_file(
        &self,
        dev: u64,
        open: impl FnOnce() -> io::Result<OwnedFd>,
    ) -> io::Result<()> {
        let mut known = self.known.lock();
        let Some((_, handle)) = known.iter_mut().find(|(other, _)| *other == dev) else {
            return Ok(());
        };
        if rustix::fs::fcntl_getfl(&*handle)?.contains(OFlags::PATH) {
            *handle = Arc::new(open()?);
        }
        Ok(())
    }

    /// A handle of each file system.
    pub(super) fn handles(&self) -> Vec<Arc<OwnedFd>> {
        self.known.lock().iter().map(|(_, handle)| Arc::clone(handle)).collect()
    }
}

//! A bounded cache of open parent directories, so that many files in a few directories need few
//! path resolutions.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Maximum number of open directories, well below the usual limit of 1024 open files.
const MAX_OPEN_DIRS: usize = 96;

#[derive(Default)]
pub(super) struct Parents {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    open: HashMap<Box<[u8]>, Kept>,
    clock: u64,
}

struct Kept {
    fd: Arc<OwnedFd>,
    used: u64,
}

impl Parents {
    /// The open directory at `path`, from the cache or opened by `open`.
    pub(super) fn get(
        &self,
        path: &[u8],
        open: impl FnOnce() -> io::Result<OwnedFd>,
    ) -> io::Result<Arc<OwnedFd>> {
        {
            let mut inner = self.lock();
            inner.clock += 1;
            let now = inner.clock;
            if let Some(kept) = inner.open.get_mut(path) {
                kept.used = now;
                return Ok(Arc::clone(&kept.fd));
            }
        }
        let fd = Arc::new(open()?);
        let mut inner = self.lock();
        if inner.open.len() >= MAX_OPEN_DIRS {
            inner.drop_oldest();
        }
        let used = inner.clock;
        inner.open.insert(path.into(), Kept { fd: Arc::clone(&fd), used });
        Ok(fd)
    }

    /// Adds the open directory at `path`.
    pub(super) fn insert(&self, path: &[u8], fd: OwnedFd) {
        let mut inner = self.lock();
        if inner.open.len() >= MAX_OPEN_DIRS {
            inner.drop_oldest();
        }
        inner.clock += 1;
        let used = inner.clock;
        inner.open.insert(path.into(), Kept { fd: Arc::new(fd), used });
    }

    /// Removes `path` and everything beneath it from the cache.
    pub(super) fn forget(&self, path: &[u8]) {
        self.lock().open.retain(|kept, _| {
            !(kept.starts_with(path) && (kept.len() == path.len() || kept[path.len()] == b'/'))
        });
    }

    // A panic of another thread cannot break an invariant of the cache.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}

impl Inner {
    fn drop_oldest(&mut self) {
        let oldest =
            self.open.iter().min_by_key(|(_, kept)| kept.used).map(|(path, _)| path.clone());
        if let Some(path) = oldest {
            self.open.remove(&path);
        }
    }
}

/// An open directory and a name in it, for the `*at` calls.
pub(super) struct Place<'a> {
    pub(super) dir: Parent<'a>,
    pub(super) name: &'a [u8],
}

/// The directory of a [`Place`].
pub(super) enum Parent<'a> {
    Root(&'a OwnedFd),
    Borrowed(BorrowedFd<'a>),
    Kept(Arc<OwnedFd>),
}

impl AsFd for Parent<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Root(fd) => fd.as_fd(),
            Self::Borrowed(fd) => *fd,
            Self::Kept(fd) => fd.as_fd(),
        }
    }
}

//! Making things durable, and what room there is for them.

use std::io;
use std::os::fd::AsFd;

use packtrain_object::RelPath;
use packtrain_units::ByteCount;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::beneath;
use super::root::Root;
use super::trouble::{Trouble, classify};

/// What a file system can still take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Space left for us.
    pub available: ByteCount,
    /// Files it can still make; `None` where the file system has no such limit.
    pub inodes: Option<u64>,
}

impl Root {
    /// Makes everything written beneath the root durable (`syncfs`): data, names and metadata, on
    /// every file system that writes went to. It waits for whatever else is being written there.
    ///
    /// # Errors
    /// An error of writing back, a full disk among it, as the kernel reports it since Linux 5.8.
    pub fn sync(&self) -> io::Result<()> {
        // Syncing takes long, and others open directories meanwhile: the list is not kept locked.
        let handles = self.file_systems.handles();
        for fd in handles {
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
}

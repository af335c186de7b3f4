//! Syncs, and free space.

use std::io;
use std::os::fd::AsFd;

use packtrain_object::RelPath;
use packtrain_units::ByteCount;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::beneath;
use super::root::Root;
use super::trouble::{Trouble, classify};

/// Free space of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Space that is available to this user.
    pub available: ByteCount,
    /// Files that can still be created; `None` if the file system has no such limit.
    pub inodes: Option<u64>,
}

impl Root {
    /// Makes everything written beneath the root durable (`syncfs`): data, names and metadata, on
    /// every file system that was written to. It also waits for the writes of other programs to
    /// these file systems.
    ///
    /// # Errors
    /// A write-back error, including a full disk, as the kernel reports it since Linux 5.8.
    pub fn sync(&self) -> io::Result<()> {
        // A sync takes long, and other threads open directories meanwhile, so the list is not kept
        // locked.
        let handles = self.file_systems.handles();
        for fd in handles {
            match rustix::io::retry_on_intr(|| rustix::fs::syncfs(&fd)) {
                // BADF: an `O_PATH` handle of a directory that cannot be opened otherwise, and in
                // which no lock was taken.
                Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL | Errno::BADF) => {
                    rustix::fs::sync();
                }
                synced => synced?,
            }
        }
        Ok(())
    }

    /// Makes the data of one temporary durable (`fdatasync`). This is cheaper than [`Root::sync`]
    /// if few files grow on a disk that other programs write to.
    ///
    /// # Errors
    /// A write-back error; `NotFound` if there is no such temporary.
    pub fn sync_temp(&self, target: &RelPath, tag: &str) -> io::Result<()> {
        self.with_temp(target, tag, |place, temp| {
            let flags = OFlags::RDONLY | OFlags::NONBLOCK;
            rustix::fs::fdatasync(beneath::open_no_follow(place.dir.as_fd(), temp, flags)?)
        })
    }

    /// The free space of the root's file system.
    ///
    /// # Errors
    /// I/O errors.
    pub fn free_space(&self) -> io::Result<Space> {
        let vfs = rustix::fs::fstatvfs(self.fd())?;
        Ok(Space {
            available: ByteCount(vfs.f_bavail.saturating_mul(vfs.f_frsize)),
            // A total of zero means that inodes are allocated on demand, as on btrfs.
            inodes: (vfs.f_files > 0).then_some(vfs.f_favail),
        })
    }

    /// Like [`classify`], and distinguishes missing space from missing inodes by the free space of
    /// the file system.
    pub fn trouble(&self, error: &io::Error) -> Trouble {
        match (classify(error), self.free_space()) {
            (Trouble::Full, Ok(Space { inodes: Some(0), .. })) => Trouble::FullInodes,
            (trouble, _) => trouble,
        }
    }
}

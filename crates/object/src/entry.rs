//! What a manifest tells of each file, directory and link.

use serde::{Deserialize, Serialize};

use crate::path::RelPath;

/// A modification time.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Mtime {
    /// Whole seconds since 1970, negative before.
    pub secs: i64,
    /// Nanoseconds on top, below 10^9.
    pub nanos: u32,
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File {
        /// Its size in bytes.
        size: u64,
    },
    /// Bytes whose number is told when they end; the last entry of its manifest.
    Stream,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink {
        /// Where it points, as bytes.
        target: Vec<u8>,
    },
}

/// One line of the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it goes, below the destination.
    pub path: RelPath,
    /// What it is.
    pub kind: EntryKind,
    /// Permission bits, 0o7777 at most, or [`NO_MODE`].
    pub mode: u32,
    /// When its content last changed.
    pub mtime: Mtime,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// Stands in [`Entry::mode`] where the source has no permissions: a pipe, a web server.
pub const NO_MODE: u32 = 0o10000;

impl Entry {
    /// Permission bits; none where the source has none.
    pub const fn permissions(&self) -> Option<u32> {
        match self.mode {
            NO_MODE => None,
            mode => Some(mode),
        }
    }

    /// The file's size in bytes; none for what is not a file or has no known size.
    pub const fn size(&self) -> Option<u64> {
        match self.kind {
            EntryKind::File { size } => Some(size),
            _ => None,
        }
    }
}

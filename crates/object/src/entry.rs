//! Metadata of each file, directory and link in a manifest.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::acl::Acls;
use crate::attributes::Attributes;
use crate::chunk::EntryId;
use crate::path::RelPath;

/// A modification time.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Mtime {
    /// Whole seconds since 1970, negative before.
    pub secs: i64,
    /// Nanoseconds within the second, below 10^9.
    pub nanos: u32,
}

impl Mtime {
    /// Whether this is the time that a file system stores for `wanted`. Some keep only whole seconds,
    /// or 10 ms, 1 us or 100 ns. `ctime_nanos` shows which: the nanoseconds of the file's time of
    /// change. The kernel sets that time, so it is rarely round unless the file system rounds it.
    pub fn is_stored(self, wanted: Self, ctime_nanos: u32) -> bool {
        let stores = |unit: u32| {
            ctime_nanos.is_multiple_of(unit) && self.nanos == wanted.nanos / unit * unit
        };
        let units = [1, 100, 1_000, 1_000_000, 10_000_000, 1_000_000_000];
        self.secs == wanted.secs && units.into_iter().any(stores)
    }
}

/// The type of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File {
        /// Its size in bytes.
        size: u64,
    },
    /// Data of unknown size until its end; the last entry of its manifest.
    Stream,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink {
        /// Its target, as bytes.
        target: Vec<u8>,
    },
}

/// One entry of the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its path below the destination.
    pub path: RelPath,
    /// Its type.
    pub kind: EntryKind,
    /// Permission bits, 0o7777 at most, or [`NO_MODE`].
    pub mode: u32,
    /// When its content last changed.
    pub mtime: Mtime,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// What only some options keep.
    pub extras: Extras,
}

/// Bytes that an attribute takes in memory besides its name and value.
const ATTRIBUTE_BYTES: usize = 64;
/// Bytes that an entry of an access control list takes in memory.
const ACL_ENTRY_BYTES: usize = 12;

/// What only some options keep of an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extras {
    /// Which other entries are names of the same file (`--hard-links`).
    pub hard_link: HardLink,
    /// The extended attributes that it has, and no others (`--xattrs`); none if they are not kept.
    pub attributes: Option<Arc<Attributes>>,
    /// The access control lists that it has, and no others (`--acls`); none if they are not kept.
    pub acls: Option<Arc<Acls>>,
}

impl Extras {
    /// Bytes that they take in memory, at most 150 KiB.
    pub fn bytes(&self) -> usize {
        let bytes = |list: &Arc<Attributes>| list.bytes() + ATTRIBUTE_BYTES * (list.len() + 1);
        let acls = |acls: &Arc<Acls>| ATTRIBUTE_BYTES + ACL_ENTRY_BYTES * acls.entries();
        self.attributes.as_ref().map_or(0, bytes) + self.acls.as_ref().map_or(0, acls)
    }
}

/// Whether other entries of a manifest are names of the same file. Only a regular file has any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HardLink {
    /// No other entry is known to be.
    #[default]
    None,
    /// It is the first name of a file to which later entries may refer.
    First {
        /// Maximum number of later entries that refer to it.
        further: u32,
    },
    /// It is a further name of the file of this earlier entry.
    To(EntryId),
}

/// Value of [`Entry::mode`] where the source has no permissions: a pipe, a web server.
pub const NO_MODE: u32 = 0o10000;

impl Entry {
    /// Permission bits; `None` where the source has none.
    pub const fn permissions(&self) -> Option<u32> {
        match self.mode {
            NO_MODE => None,
            mode => Some(mode),
        }
    }

    /// The file's size in bytes; `None` for other types and unknown sizes.
    pub const fn size(&self) -> Option<u64> {
        match self.kind {
            EntryKind::File { size } => Some(size),
            _ => None,
        }
    }

    /// Whether it has data: a regular file, or a stream that becomes one.
    pub const fn is_file(&self) -> bool {
        matches!(self.kind, EntryKind::File { .. } | EntryKind::Stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_stored_as_finely_as_its_file_system_keeps_times() {
        let wanted = Mtime { secs: 5, nanos: 123_456_789 };
        let stored = |nanos, ctime_nanos| Mtime { secs: 5, nanos }.is_stored(wanted, ctime_nanos);
        assert!(stored(123_456_789, 987_654_321));
        for (nanos, ctime_nanos) in [
            (123_456_700, 987_654_300),
            (123_456_000, 987_654_000),
            (120_000_000, 980_000_000),
            (0, 0),
        ] {
            assert!(stored(nanos, ctime_nanos));
            assert!(!stored(nanos, 987_654_321), "it could have kept the time");
        }
        assert!(!stored(0, 987_654_000));
        assert!(!Mtime { secs: 6, nanos: 0 }.is_stored(wanted, 0));
    }
}

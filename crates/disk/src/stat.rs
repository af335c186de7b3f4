//! The status of a name.

use packtrain_object::Mtime;
use packtrain_units::ByteCount;
use rustix::fs::FileType;

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, never followed.
    Symlink,
    /// A pipe, socket or device; these are not transferred.
    Special,
}

/// The result of `lstat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The kind of the file.
    pub kind: Kind,
    /// Length in bytes.
    pub size: u64,
    /// Modification time.
    pub mtime: Mtime,
    /// The part of the second of the time of change (ctime), in nanoseconds.
    pub ctime_nanos: u32,
    /// Permission bits, 07777.
    pub mode: u32,
    /// Number of hard links.
    pub nlink: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Space taken, in units of 512 bytes.
    pub blocks: u64,
    /// Device number of the file system.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
}

impl Stat {
    /// Whether two names are the same file.
    pub(crate) fn same_file(&self, other: &Self) -> bool {
        (self.dev, self.ino) == (other.dev, other.ino)
    }

    /// Allocated space.
    pub fn space(&self) -> ByteCount {
        ByteCount(self.blocks.saturating_mul(512))
    }

    /// Whether less space is allocated than the length needs.
    pub fn is_sparse(&self) -> bool {
        self.blocks.saturating_mul(512) < self.size
    }
}

impl From<FileType> for Kind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Symlink,
            _ => Self::Special,
        }
    }
}

// The widths of these fields differ between architectures.
#[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
impl From<&rustix::fs::Stat> for Stat {
    fn from(stat: &rustix::fs::Stat) -> Self {
        Self {
            kind: FileType::from_raw_mode(stat.st_mode).into(),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mtime: Mtime { secs: stat.st_mtime as i64, nanos: stat.st_mtime_nsec as u32 },
            ctime_nanos: stat.st_ctime_nsec as u32,
            mode: stat.st_mode & 0o7777,
            nlink: u64::from(stat.st_nlink),
            uid: stat.st_uid,
            gid: stat.st_gid,
            blocks: stat.st_blocks as u64,
            dev: stat.st_dev as u64,
            ino: stat.st_ino as u64,
        }
    }
}

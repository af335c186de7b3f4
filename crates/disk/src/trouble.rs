//! Errors of the file system as messages that say what to do.

use std::fmt;
use std::io;

use rustix::io::Errno;

/// The reason of a failed file operation, as far as it matters for the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trouble {
    /// No space is left on the file system.
    Full,
    /// No inodes are left on the file system, though space may be.
    FullInodes,
    /// The user's or group's quota is used up.
    Quota,
    /// The file system is mounted read-only.
    ReadOnly,
    /// Permission is denied.
    Denied,
    /// A name is longer than the file system allows.
    NameTooLong,
    /// The name does not exist.
    NotFound,
    /// A directory has the name of a file.
    IsDirectory,
    /// Another file has the name of a directory.
    NotDirectory,
    /// The name exists already.
    Exists,
    /// The directory is not empty.
    NotEmpty,
    /// The path leads out of the directory it must stay in, by `..` or by a symbolic link.
    Escapes,
    /// The file is longer than the file system allows.
    TooLarge,
    /// The file system refuses the name, for example because of its characters.
    BadName,
    /// The process or the system has too many files open.
    TooManyOpen,
    /// The file changed on a file server while it was in use.
    Stale,
    /// The file is in use and cannot be changed.
    Busy,
    /// The file system does not support the operation.
    Unsupported,
    /// The device failed.
    Io,
    /// Any other error.
    Other,
}

/// Classifies an error. `FullInodes` needs a query of the file system: see
/// [`Root::trouble`](super::Root::trouble).
pub fn classify(error: &io::Error) -> Trouble {
    let Some(errno) = error.raw_os_error().map(Errno::from_raw_os_error) else {
        return match error.kind() {
            io::ErrorKind::NotFound => Trouble::NotFound,
            io::ErrorKind::PermissionDenied => Trouble::Denied,
            io::ErrorKind::StorageFull | io::ErrorKind::WriteZero => Trouble::Full,
            io::ErrorKind::AlreadyExists => Trouble::Exists,
            io::ErrorKind::Unsupported => Trouble::Unsupported,
            _ => Trouble::Other,
        };
    };
    match errno {
        Errno::NOSPC => Trouble::Full,
        Errno::DQUOT => Trouble::Quota,
        Errno::ROFS => Trouble::ReadOnly,
        Errno::ACCESS | Errno::PERM => Trouble::Denied,
        Errno::NAMETOOLONG => Trouble::NameTooLong,
        Errno::NOENT => Trouble::NotFound,
        Errno::ISDIR => Trouble::IsDirectory,
        Errno::NOTDIR => Trouble::NotDirectory,
        Errno::EXIST => Trouble::Exists,
        Errno::NOTEMPTY => Trouble::NotEmpty,
        // openat2 returns XDEV for a path that leaves the root, and LOOP for a link that it may not
        // follow.
        Errno::XDEV | Errno::LOOP => Trouble::Escapes,
        Errno::FBIG | Errno::OVERFLOW => Trouble::TooLarge,
        Errno::INVAL | Errno::ILSEQ => Trouble::BadName,
        Errno::MFILE | Errno::NFILE => Trouble::TooManyOpen,
        Errno::STALE => Trouble::Stale,
        Errno::BUSY | Errno::TXTBSY => Trouble::Busy,
        Errno::OPNOTSUPP | Errno::NOSYS => Trouble::Unsupported,
        Errno::IO | Errno::NXIO | Errno::NODEV => Trouble::Io,
        _ => Trouble::Other,
    }
}

impl Trouble {
    /// Whether the target accepts no more data, so that other files would fail too.
    pub const fn is_full(self) -> bool {
        matches!(self, Self::Full | Self::FullInodes | Self::Quota)
    }

    /// Whether every file of the target will fail for this reason.
    pub const fn is_whole_target(self) -> bool {
        self.is_full() || matches!(self, Self::ReadOnly)
    }

    /// A message with the reason and a remedy.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Full => {
                "the target's file system is full; free some space and run the same command again"
            }
            Self::FullInodes => {
                "the target's file system has no inodes left for more files; delete files there \
                 and run the same command again"
            }
            Self::Quota => {
                "your quota on the target is used up; free some space or ask for more, and run \
                 the same command again"
            }
            Self::ReadOnly => {
                "the target's file system is read-only; remount it writable or choose another target"
            }
            Self::Denied => {
                "permission denied; check the owner and mode of the file and its directories"
            }
            Self::NameTooLong => {
                "the name is too long for the file system; rename it at the source or choose \
                 another target"
            }
            Self::NotFound => "no such file or directory; check the name",
            Self::IsDirectory => {
                "a directory is in the way; remove it or choose another name for the target"
            }
            Self::NotDirectory => {
                "part of the path is not a directory; remove what is in the way or choose \
                 another target"
            }
            Self::Exists => {
                "something of that name exists already; remove it or choose another name"
            }
            Self::NotEmpty => "the directory is not empty; remove what is in it first",
            Self::Escapes => {
                "the path leads out of its directory by `..` or a symbolic link, which is refused; \
                 remove the link or name its target instead"
            }
            Self::TooLarge => {
                "the file is larger than the file system takes; choose another target"
            }
            Self::BadName => {
                "the file system refuses this name or request; rename it at the source or choose \
                 another target"
            }
            Self::TooManyOpen => "too many files are open; raise the limit with `ulimit -n`",
            Self::Stale => "the file went away on its file server; run the same command again",
            Self::Busy => "the file is in use; stop what uses it and run the same command again",
            Self::Unsupported => "the file system cannot do this; choose another target",
            Self::Io => "the disk reports an error; look at the system's log and check the disk",
            Self::Other => "the file system refused",
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errno_decides() {
        for (errno, trouble) in [
            (Errno::NOSPC, Trouble::Full),
            (Errno::DQUOT, Trouble::Quota),
            (Errno::ROFS, Trouble::ReadOnly),
            (Errno::ACCESS, Trouble::Denied),
            (Errno::NAMETOOLONG, Trouble::NameTooLong),
            (Errno::ISDIR, Trouble::IsDirectory),
            (Errno::NOTDIR, Trouble::NotDirectory),
            (Errno::XDEV, Trouble::Escapes),
            (Errno::IO, Trouble::Io),
            (Errno::CHILD, Trouble::Other),
        ] {
            assert_eq!(classify(&errno.into()), trouble);
        }
        assert_eq!(classify(&io::Error::from(io::ErrorKind::WriteZero)), Trouble::Full);
        assert!(Trouble::Quota.is_full() && !Trouble::Denied.is_full());
    }
}

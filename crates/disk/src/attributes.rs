//! Extended attributes of the namespace `user` (`--xattrs`).
//!
//! No other namespace is ever read or written: the names of [`Attributes`] have none, and this module
//! puts `user.` before each.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use packtrain_object::attributes::{MAX_BYTES, NAMESPACE};
use packtrain_object::{Attributes, RelPath};
use rustix::fs::{Mode, OFlags, XattrFlags};
use rustix::io::Errno;

use super::beneath;
use super::mode::change_mode_at;
use super::parents::Place;
use super::root::Root;
use super::stat::{Kind, Stat};

/// Maximum length of the list of names of all namespaces (Linux `XATTR_LIST_MAX`).
const MAX_LIST: usize = 64 << 10;

/// The length that is tried first.
const USUAL_LIST: usize = 1 << 10;

/// What a file or directory has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attributed {
    /// These attributes, and no others.
    Has(Attributes),
    /// Its file system has no attributes of users.
    Unsupported,
    /// More than an entry may have.
    TooLarge,
}

impl Root {
    /// The attributes of a regular file or directory; a link in the last component is not followed,
    /// unless the root follows links.
    ///
    /// # Errors
    /// I/O errors.
    pub fn read_attributes(&self, rel: &RelPath) -> io::Result<Attributed> {
        Ok(read(self.open_handle(rel)?.as_fd())?)
    }

    /// Opens a name without the right to read it.
    pub(super) fn open_handle(&self, rel: &RelPath) -> io::Result<OwnedFd> {
        if rel.is_root() {
            return self.fd().try_clone_to_owned();
        }
        match self.open_following(rel.as_bytes(), OFlags::PATH) {
            Some(opened) => opened,
            None => self.with_place(rel.as_bytes(), |place| {
                beneath::open_no_follow(place.dir.as_fd(), place.name, OFlags::PATH)
            }),
        }
    }

    /// How many times attributes could not be set.
    pub fn not_attributed(&self) -> u64 {
        self.not_attributed.load(Ordering::Relaxed)
    }
}

/// A path that leads to an open file, for the calls that a handle of `O_PATH` does not allow.
pub(super) fn handle(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

fn read(fd: BorrowedFd<'_>) -> Result<Attributed, Errno> {
    let path = handle(fd);
    let names = match names(&path) {
        // Without /proc there is no path to a handle.
        Err(Errno::OPNOTSUPP | Errno::NOENT) => return Ok(Attributed::Unsupported),
        names => names?,
    };
    let mut pairs = Vec::with_capacity(names.len());
    let mut bytes = 0;
    for name in names {
        let Some(value) = value(&path, &name)? else { continue };
        bytes += name.len() + value.len();
        if bytes > MAX_BYTES {
            return Ok(Attributed::TooLarge);
        }
        pairs.push((name, value));
    }
    Ok(Attributes::new(pairs).map_or(Attributed::TooLarge, Attributed::Has))
}

/// The names of the namespace `user`, without it.
fn names(path: &str) -> Result<Vec<Vec<u8>>, Errno> {
    let mut list = vec![0; USUAL_LIST];
    let len = match rustix::fs::listxattr(path, &mut list[..]) {
        Err(Errno::RANGE) => {
            list.resize(MAX_LIST, 0);
            rustix::fs::listxattr(path, &mut list[..])?
        }
        len => len?,
    };
    let all = list[..len].split(|byte| *byte == 0);
    Ok(all.filter_map(|name| name.strip_prefix(NAMESPACE)).map(<[u8]>::to_vec).collect())
}

/// The value of a name without its namespace; none if it is gone.
fn value(path: &str, name: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
    let full = full(name)?;
    let mut value = vec![0; MAX_BYTES];
    match rustix::fs::getxattr(path, &full, &mut value[..]) {
        Ok(len) => {
            value.truncate(len);
            value.shrink_to_fit();
            Ok(Some(value))
        }
        Err(Errno::NODATA) => Ok(None),
        Err(error) => Err(error),
    }
}

fn full(name: &[u8]) -> Result<CString, Errno> {
    CString::new([NAMESPACE, name].concat()).map_err(|_| Errno::INVAL)
}

/// Gives an open file or directory exactly these attributes. False if that is not possible there:
/// the file system has none, or no room for these.
pub(super) fn apply(fd: impl AsFd, wanted: &Attributes) -> Result<bool, Errno> {
    let path = handle(fd.as_fd());
    let set = || {
        for name in names(&path)?.iter().filter(|name| wanted.get(name).is_none()) {
            rustix::fs::removexattr(&*path, &full(name)?)?;
        }
        for (name, wanted) in wanted.iter() {
            if value(&path, name)?.as_deref() != Some(wanted) {
                rustix::fs::setxattr(&*path, &full(name)?, wanted, XattrFlags::empty())?;
            }
        }
        Ok(())
    };
    match set() {
        Ok(()) => Ok(true),
        // No room: ext4 keeps all attributes of a file in one block. That is not a full disk.
        Err(
            Errno::OPNOTSUPP
            | Errno::NOSPC
            | Errno::DQUOT
            | Errno::TOOBIG
            | Errno::RANGE
            | Errno::PERM
            | Errno::NOENT,
        ) => Ok(wanted.is_empty()),
        Err(error) => Err(error),
    }
}

/// Like [`apply`], for a name whose file may be read-only; its mode is the same afterwards.
pub(super) fn apply_at(place: &Place<'_>, stat: &Stat, wanted: &Attributes) -> Result<bool, Errno> {
    if !matches!(stat.kind, Kind::File | Kind::Directory) {
        return Ok(true);
    }
    let fd = beneath::open_no_follow(place.dir.as_fd(), place.name, OFlags::PATH)?;
    match apply(&fd, wanted) {
        Err(Errno::ACCESS) => {}
        applied => return applied,
    }
    // An owner may not read or write attributes of a file that he may not read or write.
    if change_mode_at(place, stat.mode | 0o600).is_err() {
        return Ok(false);
    }
    let applied = apply(&fd, wanted);
    change_mode_at(place, stat.mode)?;
    match applied {
        Err(Errno::ACCESS) => Ok(false),
        applied => applied,
    }
}

/// A mode with which a new file can get attributes.
pub(super) fn writable(mode: Mode) -> Mode {
    mode | Mode::RUSR | Mode::WUSR
}

#[cfg(test)]
#[path = "attributes_tests.rs"]
mod tests;

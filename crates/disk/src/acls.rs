//! POSIX access control lists (`--acls`), as Linux stores them in extended attributes.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use packtrain_object::RelPath;
use packtrain_object::acl::{Acl, AclTag, Acls, MAX_ENTRIES};
use rustix::fs::{OFlags, XattrFlags};
use rustix::io::Errno;

use super::attributes::handle;
use super::beneath;
use super::parents::Place;
use super::root::Root;
use super::stat::{Kind, Stat};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
/// The version of the format (`linux/posix_acl_xattr.h`).
const VERSION: u32 = 2;
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
/// The id of an entry without one.
const NO_ID: u32 = u32::MAX;

/// What a file or directory has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listed {
    /// These lists, and no others.
    Has(Acls),
    /// Its file system has no POSIX lists.
    Unsupported,
    /// A list with more entries than are kept, or one that is not understood.
    Unusable,
}

impl Root {
    /// The lists of a regular file or directory; a link in the last component is not followed, unless
    /// the root follows links.
    ///
    /// # Errors
    /// I/O errors.
    pub fn read_acls(&self, rel: &RelPath) -> io::Result<Listed> {
        let fd = self.open_handle(rel)?;
        let is_dir = Stat::from(&rustix::fs::fstat(&fd)?).kind == Kind::Directory;
        Ok(read(&fd, is_dir)?)
    }

    /// How many times lists could not be set.
    pub fn not_listed(&self) -> u64 {
        self.not_listed.load(Ordering::Relaxed)
    }
}

fn read(fd: &OwnedFd, is_dir: bool) -> Result<Listed, Errno> {
    let path = handle(fd.as_fd());
    let mut lists = Acls::default();
    for (name, list) in [(ACCESS, &mut lists.access), (DEFAULT, &mut lists.default)] {
        if name == DEFAULT && !is_dir {
            continue;
        }
        match get(&path, name) {
            Ok(None) => {}
            Ok(Some(bytes)) => match decode(&bytes) {
                Some(found) => *list = Some(found),
                None => return Ok(Listed::Unusable),
            },
            // Without /proc there is no path to a handle.
            Err(Errno::OPNOTSUPP | Errno::NOENT) => return Ok(Listed::Unsupported),
            Err(Errno::RANGE) => return Ok(Listed::Unusable),
            Err(error) => return Err(error),
        }
    }
    Ok(Listed::Has(lists))
}

fn get(path: &str, name: &str) -> Result<Option<Vec<u8>>, Errno> {
    let mut bytes = vec![0; HEADER_BYTES + ENTRY_BYTES * MAX_ENTRIES];
    match rustix::fs::getxattr(path, name, &mut bytes[..]) {
        Ok(len) => {
            bytes.truncate(len);
            Ok(Some(bytes))
        }
        Err(Errno::NODATA) => Ok(None),
        Err(error) => Err(error),
    }
}

fn decode(bytes: &[u8]) -> Option<Acl> {
    let (header, rest) = bytes.split_at_checked(HEADER_BYTES)?;
    if u32::from_le_bytes(header.try_into().ok()?) != VERSION || rest.len() % ENTRY_BYTES != 0 {
        return None;
    }
    let entry = |entry: &[u8]| {
        let half = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
        let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
        let tag = match half(0) {
            0x01 => AclTag::Owner,
            0x02 => AclTag::User(id),
            0x04 => AclTag::OwningGroup,
            0x08 => AclTag::Group(id),
            0x10 => AclTag::Mask,
            0x20 => AclTag::Other,
            _ => return None,
        };
        Some((tag, u8::try_from(half(2)).ok()?))
    };
    let mut entries = rest.chunks_exact(ENTRY_BYTES).map(entry).collect::<Option<Vec<_>>>()?;
    entries.sort_unstable();
    Acl::new(entries).ok()
}

fn encode(list: &Acl) -> Vec<u8> {
    let mut bytes = VERSION.to_le_bytes().to_vec();
    for (tag, permissions) in list.iter() {
        let (tag, id): (u16, u32) = match tag {
            AclTag::Owner => (0x01, NO_ID),
            AclTag::User(id) => (0x02, id),
            AclTag::OwningGroup => (0x04, NO_ID),
            AclTag::Group(id) => (0x08, id),
            AclTag::Mask => (0x10, NO_ID),
            AclTag::Other => (0x20, NO_ID),
        };
        bytes.extend(tag.to_le_bytes());
        bytes.extend(u16::from(permissions).to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// Gives an open file or directory exactly these lists. False if that is not possible there: the file
/// system has none or no room for them, or a user or group is not mapped.
pub(super) fn apply(fd: impl AsFd, is_dir: bool, wanted: &Acls) -> Result<bool, Errno> {
    let path = handle(fd.as_fd());
    let mut all = true;
    for (name, list) in [(ACCESS, &wanted.access), (DEFAULT, &wanted.default)] {
        if name == DEFAULT && !is_dir {
            continue;
        }
        // What is there already is not written again.
        let is_there = match (get(&path, name), list) {
            (Ok(None), None) => true,
            (Ok(Some(bytes)), Some(list)) => decode(&bytes).as_ref() == Some(list),
            _ => false,
        };
        if is_there {
            continue;
        }
        let set = match list {
            Some(list) => rustix::fs::setxattr(&*path, name, &encode(list), XattrFlags::empty()),
            None => match rustix::fs::removexattr(&*path, name) {
                // There is none to remove.
                Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
                removed => removed,
            },
        };
        match set {
            Ok(()) => {}
            Err(
                Errno::OPNOTSUPP
                | Errno::PERM
                | Errno::INVAL
                | Errno::NOSPC
                | Errno::DQUOT
                | Errno::NOENT,
            ) => all = false,
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// Like [`apply`], for a name.
pub(super) fn apply_at(place: &Place<'_>, stat: &Stat, wanted: &Acls) -> Result<bool, Errno> {
    if !matches!(stat.kind, Kind::File | Kind::Directory) {
        return Ok(true);
    }
    let fd = beneath::open_no_follow(place.dir.as_fd(), place.name, OFlags::PATH)?;
    apply(fd, stat.kind == Kind::Directory, wanted)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::Meta;

    const TAG: &str = "0123456789abcdef";

    fn rel(path: &str) -> RelPath {
        RelPath::new(path.as_bytes().to_vec()).expect("a path")
    }

    fn list() -> Acl {
        let entries = vec![
            (AclTag::Owner, 6),
            (AclTag::User(1234), 4),
            (AclTag::OwningGroup, 4),
            (AclTag::Group(77), 0),
            (AclTag::Mask, 4),
            (AclTag::Other, 0),
        ];
        Acl::new(entries).expect("a list")
    }

    #[test]
    fn the_format_of_linux_is_written_and_read() {
        let bytes = encode(&list());
        assert_eq!(bytes[..12], [2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255]);
        assert_eq!(decode(&bytes), Some(list()));
        for bad in [&bytes[..bytes.len() - 1], &[3, 0, 0, 0], &[], &bytes[..4 + 8]] {
            assert_eq!(decode(bad), None, "{bad:?}");
        }
        let mut unknown = bytes.clone();
        unknown[4] = 0x40;
        assert_eq!(decode(&unknown), None);
    }

    #[test]
    fn lists_are_made_equal() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = Root::open(dir.path()).expect("open");
        fs::create_dir(dir.path().join("d")).expect("fine");
        fs::write(dir.path().join("f"), "text").expect("fine");
        symlink("f", dir.path().join("l")).expect("fine");
        if root.read_acls(&rel("d")).expect("readable") == Listed::Unsupported {
            packtrain_testkit::skip("this file system has no access control lists");
            return;
        }
        let access = Acls { access: Some(list()), default: None };
        let both = Acls { access: Some(list()), default: Some(list()) };
        let set = |path: &str, mode: u32, acls: &Acls| {
            let meta = Meta { mode: Some(mode), acls: Some(acls), ..Meta::default() };
            root.settle(&rel(path), &meta).expect("fine");
        };
        let has = |path: &str| root.read_acls(&rel(path)).expect("readable");
        let mode = |path: &str| {
            fs::metadata(dir.path().join(path)).expect("there").permissions().mode() & 0o777
        };
        set("d", 0o640, &both);
        assert_eq!((has("d"), mode("d")), (Listed::Has(both), 0o640));
        // Files that are made in it inherit a list, which they lose if they are to have none.
        let none = Acls::default();
        let plain = Meta { mode: Some(0o664), acls: Some(&none), ..Meta::default() };
        root.settle(&rel("d"), &Meta { mode: Some(0o750), ..Meta::default() }).expect("fine");
        root.write_ready(&rel("d/none"), TAG, b"x", 0o664, &plain).expect("fine");
        root.commit_ready(&rel("d/none"), TAG).expect("fine");
        assert_eq!((has("d/none"), mode("d/none")), (Listed::Has(none.clone()), 0o664));
        let listed = Meta { mode: Some(0o640), acls: Some(&access), ..Meta::default() };
        root.write_small(&rel("d/list"), TAG, b"x").expect("fine");
        root.commit(&rel("d/list"), TAG, &listed).expect("fine");
        assert_eq!((has("d/list"), mode("d/list")), (Listed::Has(access.clone()), 0o640));
        root.plan_dir(&rel("new"), 0o755, TAG);
        let fresh = rel("new/f");
        let id = packtrain_object::EntryId(1);
        assert!(root.write_fresh(id, &fresh, b"x", 0o640, &listed).expect("fine"));
        root.seal_trees();
        assert!(root.publish_trees(TAG, &[]).is_empty());
        assert_eq!((has("new/f"), mode("new/f")), (Listed::Has(access.clone()), 0o640));
        set("d", 0o755, &none);
        assert_eq!((has("d"), mode("d")), (Listed::Has(none.clone()), 0o755));
        // A symbolic link is not followed.
        set("l", 0o600, &access);
        assert_eq!(has("f"), Listed::Has(none));
        assert_eq!(root.not_listed(), 0);
    }
}

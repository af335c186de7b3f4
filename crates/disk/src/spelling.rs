//! Names on file systems that take two spellings for one name: FAT, exFAT, NTFS, network shares, and
//! directories of ext4 and F2FS that ignore case.

use std::io;

use packtrain_object::RelPath;
use rustix::fs::AtFlags;

use super::parents::Place;
use super::root::{Root, join, split};
use super::stat::Stat;

/// File systems that may ignore case: the magic numbers of FAT, exFAT, both drivers of NTFS, HFS and HFS+,
/// SMB, CIFS, SMB 2, 9p, FUSE and ZFS (statfs(2)).
const MAY_IGNORE_CASE: [u32; 12] = [
    0x4d44,
    0x2011_bab0,
    0x5346_544e,
    0x7366_746e,
    0x4244,
    0x482b,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x0102_1997,
    0x6573_5546,
    0x2fc1_2fc1,
];
/// Number of names of a directory that are looked up in another case.
const PROBES: usize = 8;

/// How a directory spells a name that is found in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// In the same way.
    Same,
    /// As this name.
    Other(Vec<u8>),
    /// As one of its names, nobody knows which.
    Unknown,
}

impl Root {
    /// Whether the directory `dir` may take two spellings for one name: by its file system, or because
    /// one of its names is found in another case.
    ///
    /// # Errors
    /// I/O errors.
    pub fn may_ignore_case(&self, dir: &RelPath) -> io::Result<bool> {
        let inside = join(dir.as_bytes(), b".");
        let found = self.with_place(&inside, |place| rustix::fs::fstatfs(&place.dir))?;
        if MAY_IGNORE_CASE.contains(&(found.f_type as u32)) {
            return Ok(true);
        }
        for item in self.list_at_most(dir, PROBES)? {
            let other = swapped(&item.name);
            if other == item.name {
                continue;
            }
            let both = self.with_place(&inside, |place| {
                Ok((status(place, &item.name).ok(), status(place, &other).ok()))
            })?;
            if let (Some(one), Some(two)) = both {
                return Ok(one.same_file(&two));
            }
        }
        Ok(false)
    }

    /// How the directory spells the existing name `rel`.
    ///
    /// # Errors
    /// I/O errors.
    pub fn spelling(&self, rel: &RelPath) -> io::Result<Spelling> {
        let (dir, name) = split(rel.as_bytes());
        let items = self.list_bytes(dir)?;
        if items.iter().any(|item| item.name == name) {
            return Ok(Spelling::Same);
        }
        self.with_place(rel.as_bytes(), |place| {
            let own = status(place, place.name)?;
            let is_same = |name: &[u8]| status(place, name).is_ok_and(|stat| stat.same_file(&own));
            let names = items.iter().map(|item| (&item.name[..], is_same(&item.name)));
            Ok(choose(name, names.collect()))
        })
    }

    /// Changes the spelling `from`, beside `rel`, to that of `rel`.
    ///
    /// # Errors
    /// I/O errors.
    pub fn respell(&self, rel: &RelPath, from: &[u8]) -> io::Result<()> {
        self.forget(rel.as_bytes());
        self.with_place(rel.as_bytes(), |place| {
            rustix::fs::renameat(&place.dir, from, &place.dir, place.name)
        })
    }
}

/// The name among `names` that is `name` in another spelling. Each comes with whether it has the inode
/// of `name`. Of several names with that inode some are hard links, and FUSE may give each spelling an
/// inode of its own.
fn choose(name: &[u8], names: Vec<(&[u8], bool)>) -> Spelling {
    let folded = fold(name);
    let only = |chosen: Vec<&[u8]>| match chosen[..] {
        [one] => Some(Spelling::Other(one.to_vec())),
        _ => None,
    };
    let alike = names.iter().filter(|(other, _)| fold(other) == folded).map(|(other, _)| *other);
    let same = names.iter().filter(|(_, is_same)| *is_same).map(|(other, _)| *other);
    only(alike.collect()).or_else(|| only(same.collect())).unwrap_or(Spelling::Unknown)
}

fn status(place: &Place<'_>, name: &[u8]) -> Result<Stat, rustix::io::Errno> {
    rustix::fs::statat(&place.dir, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| Stat::from(&stat))
}

/// The name with its ASCII letters in the other case.
fn swapped(name: &[u8]) -> Vec<u8> {
    let swap = |byte: &u8| match byte.is_ascii_uppercase() {
        true => byte.to_ascii_lowercase(),
        false => byte.to_ascii_uppercase(),
    };
    name.iter().map(swap).collect()
}

fn fold(name: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(name) {
        Ok(text) => text.to_uppercase().to_lowercase().into_bytes(),
        Err(_) => name.to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_spelling_is_the_name_that_is_alike_or_has_the_inode() {
        let other = |name: &[u8]| Spelling::Other(name.to_vec());
        let of = |names: &[(&str, bool)]| {
            choose(b"README", names.iter().map(|(name, same)| (name.as_bytes(), *same)).collect())
        };
        assert_eq!(of(&[("a", false), ("Readme", true)]), other(b"Readme"));
        // A hard link, and a file system with a number for each spelling.
        assert_eq!(of(&[("link", true), ("Readme", true)]), other(b"Readme"));
        assert_eq!(of(&[("a", false), ("Readme", false)]), other(b"Readme"));
        // Spelled in a way that only the file system knows, such as with combining characters.
        assert_eq!(of(&[("a", false), ("README~1", true)]), other(b"README~1"));
        assert_eq!(of(&[("a", true), ("b", true)]), Spelling::Unknown);
        assert_eq!(of(&[("a", false)]), Spelling::Unknown);
        assert_eq!(
            (fold("\u{c9}T".as_bytes()), fold(b"\xffT")),
            (fold("\u{e9}t".as_bytes()), b"\xfft".to_vec())
        );
    }

    #[test]
    fn a_directory_that_tells_case_apart_is_recognised() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let root = Root::open(dir.path()).expect("a directory");
        std::fs::write(dir.path().join("a"), "").expect("a file");
        std::fs::write(dir.path().join("A"), "").expect("a file");
        let path = |name: &[u8]| RelPath::new(name.to_vec()).expect("a path");
        assert!(!root.may_ignore_case(&RelPath::root()).expect("it is there"));
        assert_eq!(root.spelling(&path(b"a")).expect("it is there"), Spelling::Same);
        // A name that is found and not listed is as if the file system had put it together.
        std::fs::remove_file(dir.path().join("A")).expect("it is there");
        std::fs::hard_link(dir.path().join("a"), dir.path().join("A")).expect("a link");
        assert!(root.may_ignore_case(&RelPath::root()).expect("it is there"));
        root.respell(&path(b"b"), b"A").expect("a new name");
        assert!(dir.path().join("b").exists() && !dir.path().join("A").exists());
    }
}

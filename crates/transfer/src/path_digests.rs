//! Sets of paths that a peer names, kept as digests. A path of 4 KiB crosses the wire in a few bytes
//! after one like it, and takes 16 bytes here.

use std::collections::HashSet;
use std::hash::{BuildHasher, Hasher, RandomState};

use packtrain_object::{Entry, EntryKind};

/// Bytes kept of a path's digest. A collision takes about 2^64 attempts.
const KEY: usize = 16;

/// The digest of a path.
pub(crate) type PathKey = [u8; KEY];

/// The digest of `path`.
pub(crate) fn key_of(path: &[u8]) -> PathKey {
    let digest = packtrain_object::digest::root_of(path);
    std::array::from_fn(|at| digest.0[at])
}

/// The paths of the entries of a source, for `--delete`. Two paths with the same digest are kept
/// both.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeptPaths {
    /// The lowest bit tells directories.
    keys: Vec<PathKey>,
    has_root: bool,
    /// Directories directly in the destination.
    top: Vec<Vec<u8>>,
}

impl KeptPaths {
    /// Adds the path of an entry.
    pub(crate) fn add(&mut self, entry: &Entry) {
        let path = entry.path.as_bytes();
        self.keys.push(marked(path, entry.kind == EntryKind::Directory));
        if path.is_empty() {
            self.has_root = true;
        } else if entry.kind == EntryKind::Directory && !path.contains(&b'/') {
            self.top.push(path.to_vec());
        }
    }

    /// Number of paths.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Makes it fit for [`KeptPaths::contains`].
    pub(crate) fn sort(&mut self) {
        self.keys.sort_unstable();
    }

    /// Whether the source has an entry with this path relative to the destination.
    pub fn contains(&self, path: &[u8]) -> bool {
        self.contains_directory(path) || self.keys.binary_search(&marked(path, false)).is_ok()
    }

    /// Whether the source has a directory with this path. What a directory of the target contains is
    /// not the source's if the source has a file of that name, which an option may leave out.
    pub fn contains_directory(&self, path: &[u8]) -> bool {
        self.keys.binary_search(&marked(path, true)).is_ok()
    }

    /// The highest directories of the source: the destination itself, with an empty path, or those
    /// directly in it.
    pub fn highest(&self) -> Vec<Vec<u8>> {
        if self.has_root { vec![Vec::new()] } else { self.top.clone() }
    }
}

/// The digest of `path`, with the lowest bit for a directory.
fn marked(path: &[u8], is_directory: bool) -> PathKey {
    let mut key = key_of(path);
    key[KEY - 1] = key[KEY - 1] & !1 | u8::from(is_directory);
    key
}

/// The directories above some paths. Together these directories can be much longer than the paths,
/// so each is kept as 16 bytes. Adding a path takes time in proportion to its length.
#[derive(Clone, Debug, Default)]
pub(crate) struct ParentPaths {
    keys: HashSet<u128>,
    /// Secret, so that a peer cannot search for paths of the same digest.
    states: [RandomState; 2],
}

impl ParentPaths {
    /// Adds the directories above `path`.
    pub(crate) fn add_above(&mut self, path: &[u8]) {
        let mut hashers = self.hashers();
        for &byte in path {
            if byte == b'/' {
                self.keys.insert(value(&hashers));
            }
            hashers.iter_mut().for_each(|hasher| hasher.write_u8(byte));
        }
    }

    /// Whether `path` is one of them.
    pub(crate) fn contains(&self, path: &[u8]) -> bool {
        let mut hashers = self.hashers();
        for &byte in path {
            hashers.iter_mut().for_each(|hasher| hasher.write_u8(byte));
        }
        self.keys.contains(&value(&hashers))
    }

    fn hashers(&self) -> [impl Hasher + use<>; 2] {
        self.states.each_ref().map(BuildHasher::build_hasher)
    }
}

fn value(hashers: &[impl Hasher; 2]) -> u128 {
    let [high, low] = hashers.each_ref().map(|hasher| u128::from(hasher.finish()));
    high << 64 | low
}

#[cfg(test)]
mod tests {
    use packtrain_object::{Mtime, RelPath};

    use super::*;

    fn entry(path: &str, kind: EntryKind) -> Entry {
        Entry {
            path: match path {
                "" => RelPath::root(),
                _ => RelPath::new(path.as_bytes().to_vec()).unwrap(),
            },
            kind,
            mode: 0o755,
            mtime: Mtime { secs: 1, nanos: 0 },
            uid: 0,
            gid: 0,
            extras: Default::default(),
        }
    }

    #[test]
    fn kept_paths_are_those_that_were_added() {
        let mut kept = KeptPaths::default();
        let file = EntryKind::File { size: 1 };
        for (path, kind) in [("b", EntryKind::Directory), ("b/f", file.clone()), ("a", file)] {
            kept.add(&entry(path, kind));
        }
        kept.sort();
        assert!(["a", "b", "b/f"].iter().all(|path| kept.contains(path.as_bytes())));
        assert!(!["", "b/", "f", "b/f/g"].iter().any(|path| kept.contains(path.as_bytes())));
        assert_eq!(kept.highest(), [b"b"], "nothing is removed from a file");
        assert!(kept.contains_directory(b"b") && !kept.contains_directory(b"a"));
        kept.add(&entry("", EntryKind::Directory));
        assert_eq!(kept.highest(), [b""]);
    }

    #[test]
    fn a_long_path_takes_16_bytes() {
        let mut kept = KeptPaths::default();
        for i in 0..100 {
            let path = format!("{}/{i}", vec!["d".repeat(250); 15].join("/"));
            kept.add(&entry(&path, EntryKind::Directory));
        }
        assert_eq!(size_of_val(&kept.keys[..]), 1_600);
        assert!(kept.top.is_empty());
    }

    #[test]
    fn parents_are_the_directories_above() {
        let mut parents = ParentPaths::default();
        parents.add_above(b"a/bc/d");
        assert!(parents.contains(b"a") && parents.contains(b"a/bc"));
        assert!(!["", "a/b", "a/bc/d", "bc"].iter().any(|path| parents.contains(path.as_bytes())));
        let deep = ["x"; 2_000].join("/");
        parents.add_above(deep.as_bytes());
        assert_eq!(parents.keys.len(), 2 + 1_999);
        assert!(parents.contains(["x"; 1_999].join("/").as_bytes()));
    }
}

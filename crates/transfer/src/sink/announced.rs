//! Checks that each entry of a manifest lies below directories that the same manifest announced,
//! and never below a symbolic link that it sent.

use std::collections::HashSet;

use packtrain_object::{Entry, EntryKind};

use crate::failure::{Failure, protocol};
use crate::limits::{MAX_DIRECTORIES, MAX_DIRECTORY_PATHS};
use crate::path_digests::{PathKey, key_of};
use crate::requested::unrequested;

/// The announced directories and symbolic links, by digests of their paths.
#[derive(Debug, Default)]
pub(super) struct Announced {
    directories: HashSet<PathKey>,
    links: HashSet<PathKey>,
    /// Announcements of directories. Sources that are merged announce the same ones, and the sink
    /// keeps each announcement to the end.
    announcements: usize,
    /// Bytes of the paths and attributes of these announcements.
    paths: u64,
    /// The parent of the last entry; entries of one directory follow each other.
    parent: Vec<u8>,
}

impl Announced {
    /// Adds an entry. Returns the digest of its path, and whether a directory or link with its path was announced that cannot be
    /// merged with it. Files are not kept here: there may be any number of them.
    ///
    /// # Errors
    /// A protocol failure if the entry does not lie in an announced directory, or if it is a
    /// directory where a link was announced or the reverse.
    pub(super) fn add(&mut self, entry: &Entry) -> Result<(PathKey, bool), Failure> {
        let path = entry.path.as_bytes();
        let parent = path.iter().rposition(|&b| b == b'/').map_or(&[][..], |at| &path[..at]);
        if !parent.is_empty() && parent != self.parent {
            if !self.directories.contains(&key_of(parent)) {
                return Err(unrequested(entry, "it lies below what is no directory of this copy"));
            }
            parent.clone_into(&mut self.parent);
        }
        let key = key_of(path);
        let (same, other) = match entry.kind {
            EntryKind::Directory => (&mut self.directories, &self.links),
            EntryKind::Symlink { .. } => (&mut self.links, &self.directories),
            EntryKind::File { .. } | EntryKind::Stream => {
                let is_taken = self.directories.contains(&key) || self.links.contains(&key);
                return Ok((key, is_taken));
            }
        };
        if other.contains(&key) {
            return Err(unrequested(entry, "it is both a directory and a symbolic link"));
        }
        let is_new = same.insert(key);
        if entry.kind == EntryKind::Directory {
            self.announcements += 1;
            self.paths += (path.len() + entry.extras.bytes()) as u64;
        }
        let count = self.announcements + self.links.len();
        if count > MAX_DIRECTORIES || self.paths > MAX_DIRECTORY_PATHS {
            return Err(protocol("more directories and links than fit in one copy"));
        }
        Ok((key, !is_new && entry.kind != EntryKind::Directory))
    }
}

#[cfg(test)]
mod tests {
    use packtrain_object::{Mtime, RelPath};

    use super::*;

    #[test]
    fn a_directory_that_is_announced_again_and_again_counts_each_time() {
        let entry = Entry {
            path: RelPath::new(vec![b'd'; 250]).unwrap(),
            kind: EntryKind::Directory,
            mode: 0o755,
            mtime: Mtime { secs: 1, nanos: 0 },
            uid: 0,
            gid: 0,
            extras: Default::default(),
        };
        let mut announced = Announced::default();
        for count in 1..4 {
            announced.add(&entry).unwrap();
            assert_eq!((announced.announcements, announced.paths), (count, 250 * count as u64));
        }
        announced.paths = MAX_DIRECTORY_PATHS - 249;
        assert!(announced.add(&entry).is_err());
    }
}

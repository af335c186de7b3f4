//! Checks that each entry of a manifest lies below directories that the same manifest announced,
//! and never below a symbolic link that it sent.

use std::collections::HashSet;

use packtrain_object::{Entry, EntryKind};

use crate::failure::{Failure, protocol};
use crate::limits::{MAX_DIRECTORIES, MAX_DIRECTORY_PATHS};
use crate::requested::unrequested;

/// Bytes kept of a path's digest. A collision takes about 2^64 attempts.
const KEY: usize = 16;

/// The announced directories and symbolic links, by digests of their paths.
#[derive(Debug, Default)]
pub(super) struct Announced {
    directories: HashSet<[u8; KEY]>,
    links: HashSet<[u8; KEY]>,
    /// Bytes of the paths and attributes of directories.
    paths: u64,
    /// The parent of the last entry; entries of one directory follow each other.
    parent: Vec<u8>,
}

impl Announced {
    /// Adds an entry.
    ///
    /// # Errors
    /// A protocol failure if the entry does not lie in an announced directory, or if it is a
    /// directory where a link was announced or the reverse.
    pub(super) fn add(&mut self, entry: &Entry) -> Result<(), Failure> {
        let path = entry.path.as_bytes();
        let parent = path.iter().rposition(|&b| b == b'/').map_or(&[][..], |at| &path[..at]);
        if !parent.is_empty() && parent != self.parent {
            if !self.directories.contains(&key(parent)) {
                return Err(unrequested(entry, "it lies below what is no directory of this copy"));
            }
            parent.clone_into(&mut self.parent);
        }
        let (same, other) = match entry.kind {
            EntryKind::Directory => (&mut self.directories, &self.links),
            EntryKind::Symlink { .. } => (&mut self.links, &self.directories),
            EntryKind::File { .. } | EntryKind::Stream => return Ok(()),
        };
        let key = key(path);
        if other.contains(&key) {
            return Err(unrequested(entry, "it is both a directory and a symbolic link"));
        }
        if same.insert(key) && entry.kind == EntryKind::Directory {
            self.paths += (path.len() + entry.extras.bytes()) as u64;
        }
        let count = self.directories.len() + self.links.len();
        if count > MAX_DIRECTORIES || self.paths > MAX_DIRECTORY_PATHS {
            return Err(protocol("more directories and links than fit in one copy"));
        }
        Ok(())
    }
}

fn key(path: &[u8]) -> [u8; KEY] {
    let digest = packtrain_object::digest::root_of(path);
    std::array::from_fn(|at| digest.0[at])
}

//! Which fresh trees there are, and the names on disk of what is in them.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use packtrain_object::{EntryId, RelPath};
use parking_lot::{Mutex, MutexGuard, RwLock};
use rustix::io::Errno;

/// The fresh trees of one run.
#[derive(Default)]
pub(crate) struct FreshTrees {
    /// Held for reading while names are made or used, for writing while they change.
    pub(super) gate: RwLock<()>,
    state: Mutex<State>,
    /// Whether there is a tree without its name.
    pub(super) any: AtomicBool,
    /// Whether there is a directory that is not made yet.
    pub(super) any_planned: AtomicBool,
    /// Held while planned directories are made, before the gate.
    pub(super) making: Mutex<()>,
}

#[derive(Default)]
pub(super) struct State {
    /// The trees without their names, by the path of their top.
    pub(super) trees: HashMap<Box<[u8]>, Tree>,
    /// The directories that are made at their first use.
    pub(super) planned: BTreeMap<Box<[u8]>, Plan>,
    /// The directories of trees that are not sealed.
    pub(super) open: HashMap<Box<[u8]>, Modes>,
    /// Files of these directories.
    pub(super) files: HashMap<EntryId, RelPath>,
    /// Files of sealed trees.
    pub(super) sealed: HashMap<EntryId, RelPath>,
    /// Files of published trees until the caller asks for them.
    pub(super) named: HashSet<EntryId>,
    /// Paths that could not get their names, with all beneath them.
    pub(super) failed: Vec<(Box<[u8]>, Errno)>,
}

#[derive(Clone)]
pub(super) struct Tree {
    /// The name of its top on disk.
    pub(super) hidden: Arc<[u8]>,
    /// Device and inode of its top.
    pub(super) file: (u64, u64),
    /// The mode with which the kernel made its top.
    pub(super) mode: u32,
    pub(super) is_sealed: bool,
}

/// How to make a directory.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) mode: u32,
    pub(super) tag: Arc<str>,
}

/// The modes that files were created with, and whether the kernel kept them: umask and default ACL
/// may change them. The answer is the same for all files of one directory.
pub(super) type Modes = Vec<(u32, bool)>;

impl FreshTrees {
    /// The state, locked.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The name on disk of the directory `rel`, if it is the top of a tree.
    pub(super) fn hidden_name(&self, rel: &[u8]) -> Option<Arc<[u8]>> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        self.state().trees.get(rel).map(|tree| Arc::clone(&tree.hidden))
    }

    /// The path of `rel` on disk.
    pub(super) fn on_disk<'a>(&self, rel: &'a [u8]) -> Cow<'a, [u8]> {
        if !self.any.load(Ordering::Acquire) {
            return Cow::Borrowed(rel);
        }
        let state = self.state();
        let slashes = rel.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
        let (mut out, mut start) = (Vec::with_capacity(rel.len() + 32), 0);
        for end in slashes.chain([rel.len()]) {
            match state.trees.get(&rel[..end]) {
                Some(tree) => out.extend_from_slice(&tree.hidden),
                None => out.extend_from_slice(&rel[start..end]),
            }
            out.extend_from_slice(&rel[end..rel.len().min(end + 1)]);
            start = end + 1;
        }
        Cow::Owned(out)
    }
}

impl State {
    /// Why `path` cannot get its name.
    pub(super) fn error(&self, path: &[u8]) -> Option<Errno> {
        let above = |top: &[u8]| {
            path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        };
        self.failed.iter().find(|(top, _)| above(top)).map(|(_, error)| *error)
    }
}

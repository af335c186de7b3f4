//! The temporaries of this run: their names if they are not the default ones, and their device and
//! inode numbers, so that no other file is taken for one of them.

use std::collections::HashMap;

use packtrain_object::RelPath;
use parking_lot::Mutex;

use crate::stat::Stat;

/// What is known of the temporaries of this run, by target.
#[derive(Default)]
pub(crate) struct TempTable(Mutex<HashMap<Box<[u8]>, Temp>>);

#[derive(Default)]
struct Temp {
    /// The tag in its name, if it is not the transfer's.
    tag: Option<String>,
    /// Device and inode.
    file: Option<(u64, u64)>,
    /// Opened for writing by this run; otherwise only its status was read.
    open: bool,
    /// A later run can resume it.
    kept: bool,
}

/// What is known of one temporary.
#[derive(Clone, Copy)]
pub(crate) enum TempIdentity {
    /// This run did not create it.
    Nothing,
    /// This run created it.
    Name,
    /// Its device and inode.
    File(u64, u64),
}

impl TempTable {
    /// Adds a temporary that this run created, with its own tag if the transfer's could not be
    /// used.
    pub(crate) fn insert(&self, target: &RelPath, tag: Option<String>) {
        let key = target.as_bytes();
        let mut made = self.0.lock();
        // If it is created again, it keeps its tag.
        let tag = tag.or_else(|| made.get_mut(key).and_then(|temp| temp.tag.take()));
        made.insert(key.into(), Temp { tag, file: None, open: true, kept: false });
    }

    /// Adds the tag of a temporary of an earlier run.
    pub(crate) fn named(&self, target: &RelPath, tag: String) {
        self.0.lock().entry(target.as_bytes().into()).or_default().tag = Some(tag);
    }

    /// Adds the file of a temporary of an earlier run whose status was read.
    pub(crate) fn seen(&self, target: &RelPath, stat: &Stat) {
        let mut made = self.0.lock();
        made.entry(target.as_bytes().into()).or_default().file = Some((stat.dev, stat.ino));
    }

    /// Marks it as open for writing; `kept` if a later run can resume it.
    pub(crate) fn opened(&self, target: &RelPath, stat: &Stat, kept: bool) {
        let mut made = self.0.lock();
        let temp = made.entry(target.as_bytes().into()).or_default();
        temp.file = Some((stat.dev, stat.ino));
        temp.open = true;
        temp.kept |= kept;
    }

    pub(crate) fn tag(&self, target: &RelPath) -> Option<String> {
        self.0.lock().get(target.as_bytes()).and_then(|temp| temp.tag.clone())
    }

    pub(crate) fn file(&self, target: &RelPath) -> Option<(u64, u64)> {
        self.0.lock().get(target.as_bytes()).and_then(|temp| temp.file)
    }

    pub(crate) fn is_open(&self, target: &RelPath) -> bool {
        self.0.lock().get(target.as_bytes()).is_some_and(|temp| temp.open)
    }

    pub(crate) fn known(&self, target: &RelPath) -> TempIdentity {
        match self.0.lock().get(target.as_bytes()) {
            Some(Temp { file: Some((dev, ino)), .. }) => TempIdentity::File(*dev, *ino),
            Some(Temp { open: true, .. }) => TempIdentity::Name,
            _ => TempIdentity::Nothing,
        }
    }

    /// Removes a temporary that was renamed to its target or removed.
    pub(crate) fn forget(&self, target: &RelPath) {
        self.0.lock().remove(target.as_bytes());
    }

    /// Whether this run has no temporary left.
    pub(crate) fn is_empty(&self) -> bool {
        !self.0.lock().values().any(|temp| temp.open)
    }

    /// The temporaries that no later run can resume.
    pub(crate) fn unfinished(&self) -> Vec<RelPath> {
        let made = self.0.lock();
        let left = made.iter().filter(|(_, temp)| temp.open && !temp.kept);
        left.filter_map(|(target, _)| RelPath::new(target.to_vec()).ok()).collect()
    }
}

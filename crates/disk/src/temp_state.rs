//! The temporaries of this run: their names, where these are not the usual ones, and which files
//! they are, so that no other file is ever taken for one of them.

use std::collections::HashMap;

use packtrain_object::RelPath;
use parking_lot::Mutex;

use crate::stat::Stat;

/// What is known of the temporaries of this run, by target.
#[derive(Default)]
pub(crate) struct Made(Mutex<HashMap<Box<[u8]>, Temp>>);

#[derive(Default)]
struct Temp {
    /// The tag that its name has instead of the transfer's.
    tag: Option<String>,
    /// File system and number.
    file: Option<(u64, u64)>,
    /// Made or opened for writing by this run, not only looked at.
    open: bool,
    /// A later run goes on from it.
    kept: bool,
}

/// What is known of one temporary.
#[derive(Clone, Copy)]
pub(crate) enum Known {
    /// Nothing: this run did not make it.
    Nothing,
    /// This run made it.
    Name,
    /// It is this file: file system and number.
    File(u64, u64),
}

impl Made {
    /// This run made it, by a tag of its own if the transfer's could not be used.
    pub(crate) fn insert(&self, target: &RelPath, tag: Option<String>) {
        let key = target.as_bytes();
        let mut made = self.0.lock();
        // The name that it has already, if it is made once more.
        let tag = tag.or_else(|| made.get_mut(key).and_then(|temp| temp.tag.take()));
        made.insert(key.into(), Temp { tag, file: None, open: true, kept: false });
    }

    /// One that an earlier run left has a tag of its own.
    pub(crate) fn named(&self, target: &RelPath, tag: String) {
        self.0.lock().entry(target.as_bytes().into()).or_default().tag = Some(tag);
    }

    /// One that an earlier run left was looked at.
    pub(crate) fn seen(&self, target: &RelPath, stat: &Stat) {
        let mut made = self.0.lock();
        made.entry(target.as_bytes().into()).or_default().file = Some((stat.dev, stat.ino));
    }

    /// It is open for writing; `kept` if a later run goes on from it.
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

    pub(crate) fn known(&self, target: &RelPath) -> Known {
        match self.0.lock().get(target.as_bytes()) {
            Some(Temp { file: Some((dev, ino)), .. }) => Known::File(*dev, *ino),
            Some(Temp { open: true, .. }) => Known::Name,
            _ => Known::Nothing,
        }
    }

    /// It has its target's name, or is gone.
    pub(crate) fn forget(&self, target: &RelPath) {
        self.0.lock().remove(target.as_bytes());
    }

    /// Whether this run has a temporary that has not its target's name.
    pub(crate) fn is_empty(&self) -> bool {
        !self.0.lock().values().any(|temp| temp.open)
    }

    /// Those that no later run goes on from.
    pub(crate) fn unfinished(&self) -> Vec<RelPath> {
        let made = self.0.lock();
        let left = made.iter().filter(|(_, temp)| temp.open && !temp.kept);
        left.filter_map(|(target, _)| RelPath::new(target.to_vec()).ok()).collect()
    }
}

//! Finds the names of one file in a walk (`--hard-links`).

use std::collections::HashMap;

use packtrain_object::{EntryId, EntryKind, HardLink};
use packtrain_transfer::limits::{MAX_LINK_GROUPS, MAX_LINK_PATHS};

/// The files of which the walk has found a name and may find another one. A file is forgotten with
/// its last name.
#[derive(Debug, Default)]
pub(super) struct HardLinks {
    /// By device and inode.
    files: HashMap<(u64, u64), Known>,
    /// Bytes of the paths of their first names.
    paths: u64,
    /// Names of files that did not fit in the table.
    untracked: u64,
}

#[derive(Debug)]
struct Known {
    first: EntryId,
    path: u64,
    /// Maximum number of names that may follow.
    further: u32,
}

impl HardLinks {
    /// What the walk says of an entry with this number: a file with this many `names`, of which this
    /// one has `path` bytes.
    pub(super) fn find(
        &mut self,
        id: EntryId,
        kind: &EntryKind,
        identity: (u64, u64),
        names: u64,
        path: usize,
    ) -> HardLink {
        if !matches!(kind, EntryKind::File { .. }) || names < 2 {
            return HardLink::None;
        }
        if let Some(known) = self.files.get_mut(&identity) {
            let first = known.first;
            known.further -= 1;
            if known.further == 0 {
                self.paths -= known.path;
                self.files.remove(&identity);
            }
            return HardLink::To(first);
        }
        let path = path as u64;
        if self.files.len() >= MAX_LINK_GROUPS || self.paths + path > MAX_LINK_PATHS {
            self.untracked += 1;
            return HardLink::None;
        }
        let further = u32::try_from(names - 1).unwrap_or(u32::MAX);
        self.paths += path;
        self.files.insert(identity, Known { first: id, path, further });
        HardLink::First { further }
    }

    /// Number of names that did not fit in the table.
    pub(super) fn untracked(&self) -> u64 {
        self.untracked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_names_refer_to_the_first_and_complete_files_are_forgotten() {
        let mut links = HardLinks::default();
        let file = EntryKind::File { size: 3 };
        let mut find = |id, inode, names| links.find(EntryId(id), &file, (1, inode), names, 10);
        assert_eq!(find(0, 7, 1), HardLink::None);
        assert_eq!(find(1, 8, 3), HardLink::First { further: 2 });
        assert_eq!(find(2, 9, 2), HardLink::First { further: 1 });
        assert_eq!(find(3, 8, 3), HardLink::To(EntryId(1)));
        assert_eq!(find(4, 8, 3), HardLink::To(EntryId(1)));
        // A name that was added during the walk begins again.
        assert_eq!(find(5, 8, 4), HardLink::First { further: 3 });
        assert_eq!(find(6, 9, 2), HardLink::To(EntryId(2)));
        let link = EntryKind::Symlink { target: b"x".to_vec() };
        assert_eq!(links.find(EntryId(7), &link, (1, 8), 4, 10), HardLink::None);
        assert_eq!((links.files.len(), links.paths), (1, 10));
        assert_eq!(links.untracked(), 0);
    }

    #[test]
    fn paths_that_do_not_fit_become_files_of_their_own() {
        let mut links = HardLinks { paths: MAX_LINK_PATHS - 5, ..HardLinks::default() };
        let file = EntryKind::File { size: 3 };
        assert_eq!(links.find(EntryId(0), &file, (1, 1), 2, 10), HardLink::None);
        assert_eq!(links.find(EntryId(1), &file, (1, 1), 2, 10), HardLink::None);
        assert_eq!(links.find(EntryId(2), &file, (1, 2), 2, 5), HardLink::First { further: 1 });
        assert_eq!(links.untracked(), 2);
    }
}

//! `--xattrs` and `--acls`: extended attributes of users, access control lists.

use std::sync::atomic::Ordering;

use packtrain_disk::{Attributed, Listed};
use packtrain_object::{Entry, RelPath};

use super::Target;
use crate::not_kept::NotKept;

impl Target {
    /// Whether the file or directory at `place` has the attributes of the entry, if it states any.
    pub(super) fn has_attributes(&self, entry: &Entry, place: &RelPath) -> bool {
        let Some(wanted) = &entry.extras.attributes else { return true };
        match self.root.read_attributes(place) {
            Ok(Attributed::Has(found)) => found == **wanted,
            // It can have none, so there is nothing to set. Only a comparison calls that different.
            Ok(Attributed::Unsupported) if !self.options.verify => {
                if !wanted.is_empty() {
                    self.unattributed.fetch_add(1, Ordering::Relaxed);
                }
                true
            }
            Ok(Attributed::Unsupported) => wanted.is_empty(),
            // Something else has the name, or it cannot be read: setting them reports why.
            Ok(Attributed::TooLarge) | Err(_) => false,
        }
    }

    /// Whether the file or directory at `place` has the access control lists of the entry, if it
    /// states any.
    pub(super) fn has_acls(&self, entry: &Entry, place: &RelPath) -> bool {
        let Some(wanted) = entry.extras.acls.as_ref().filter(|_| !self.is_home(entry)) else {
            return true;
        };
        match self.root.read_acls(place) {
            Ok(Listed::Has(found)) => found == **wanted,
            Ok(Listed::Unsupported) if !self.options.verify => {
                if wanted.entries() > 0 {
                    self.unlisted.fetch_add(1, Ordering::Relaxed);
                }
                true
            }
            Ok(Listed::Unsupported) => wanted.entries() == 0,
            Ok(Listed::Unusable) | Err(_) => false,
        }
    }

    /// What could not be kept.
    pub(crate) fn not_kept(&self) -> NotKept {
        let unattributed = self.unattributed.load(Ordering::Relaxed);
        NotKept {
            links: self.unlinked.load(Ordering::Relaxed),
            attributes: unattributed + self.root.not_attributed(),
            metadata: self.unsettled.load(Ordering::Relaxed) + self.root.not_timed(),
            acls: self.unlisted.load(Ordering::Relaxed) + self.root.not_listed(),
            ..NotKept::default()
        }
    }
}

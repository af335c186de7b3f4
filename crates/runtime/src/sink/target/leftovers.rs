//! Leftovers of interrupted transfers beside the files of this one.

use std::collections::HashMap;

use packtrain_disk::{LeftoverKind, LeftoverName, Lock, LockError};
use packtrain_object::RelPath;
use packtrain_service::{Notice, NoticeLevel};
use packtrain_units::ByteCount;

use super::Target;

/// Maximum names of the destination that are examined for leftovers.
const MAX_EXAMINED_NAMES: usize = 20_000;

/// Files that interrupted transfers left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Number of files.
    pub files: u64,
    /// Their size in bytes.
    pub bytes: u64,
}

impl Leftovers {
    /// The notice for the user.
    pub fn notice(&self) -> Notice {
        let files = if self.files == 1 { "1 file" } else { &format!("{} files", self.files) };
        let text = format!(
            "interrupted transfers left {files} ({}) in the destination: `packtrain clean` lists \
             and removes such files",
            ByteCount(self.bytes)
        );
        Notice::new(NoticeLevel::Warning, text)
    }
}

impl Target {
    /// Removes the temporaries of these paths, which an earlier run of this transfer left.
    pub(crate) fn abandon(&self, paths: &[RelPath]) {
        for path in paths {
            let place = match &self.rename {
                Some(name) => Ok(name.clone()),
                None => self.below(path.as_bytes()),
            };
            // What cannot be removed is told as a leftover.
            if let Ok(place) = place {
                let _ = self.root.remove_left_temp(&place, &self.tag);
            }
        }
    }

    /// Whether this is the name of a temporary of this transfer.
    pub(crate) fn is_temporary(&self, name: &[u8]) -> bool {
        let own = LeftoverName::parse(name).filter(|name| name.kind == LeftoverKind::Temporary);
        own.is_some_and(|name| name.tag.as_deref() == Some(&self.tag))
    }

    /// Leftovers of interrupted transfers in the destination directory, without its subdirectories.
    pub(crate) fn leftovers(&self) -> Leftovers {
        let mut found = Leftovers::default();
        let tagged = |name: &[u8]| LeftoverName::parse(name).map(|it| (it.kind, it.tag));
        let mut held: HashMap<String, bool> = HashMap::new();
        for item in self.root.list_at_most(&self.prefix, MAX_EXAMINED_NAMES).unwrap_or_default() {
            let Some((LeftoverKind::Temporary, tag)) = tagged(&item.name) else { continue };
            let Ok(place) = self.below(&item.name) else { continue };
            let stat = self.root.stat(&place).ok().flatten().filter(packtrain_disk::Stat::is_own);
            let Some(stat) = stat else { continue };
            let in_use = match tag {
                // A temporary of this transfer, which is complete.
                Some(tag) if tag == self.tag => self.root.has_temps(),
                Some(tag) => *held.entry(tag).or_insert_with_key(|tag| {
                    let lock = self.below(LeftoverName::lock_of(tag).as_bytes());
                    lock.is_ok_and(|lock| {
                        matches!(
                            Lock::take_existing(&self.root, &lock),
                            Err(LockError::Held { .. })
                        )
                    })
                }),
                None => true,
            };
            if !in_use {
                found.files += 1;
                found.bytes += stat.space().get();
            }
        }
        found
    }
}

//! `--hard-links`: further names of files that are complete.

use std::sync::atomic::{AtomicU64, Ordering};

use packtrain_disk::{HardLinked, Trouble, classify};
use packtrain_service::{Notice, NoticeLevel};
use packtrain_transfer::{Failure, LinkPlan, Linked};

use super::Target;

/// Names that could not become names of another file, so that they are files of their own.
#[derive(Debug, Default)]
pub(crate) struct Unlinked(AtomicU64);

impl Unlinked {
    fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Their number.
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The notice for the user that this many names are files of their own.
pub fn unlinked_notice(names: u64) -> Notice {
    let (names, verb) = match names {
        1 => ("1 name".to_owned(), "is"),
        n => (format!("{n} names"), "are"),
    };
    let text = format!(
        "{names} of files with several names {verb} copied as a file, because the target allows no \
         hard link there"
    );
    Notice::new(NoticeLevel::Warning, text)
}

impl Target {
    /// Makes or checks a further name of a file.
    pub(crate) fn link(&self, plan: &LinkPlan) -> Result<Linked, Failure> {
        let (entry, place) = (&plan.entry, self.place(&plan.entry)?);
        let first = self.below(plan.first.as_bytes())?;
        let size = entry.size().unwrap_or_default();
        let failed = |e| self.failure(entry, "cannot make the hard link", &e);
        let state = self.root.is_hard_link(&first, size, &place).map_err(failed)?;
        if !plan.makes || state != HardLinked::Differs {
            return Ok(answer(state));
        }
        self.renamed.store(true, Ordering::Release);
        self.root.naming_error(&place).map_err(failed)?;
        self.back_up(&place)?;
        let link = || self.root.hard_link(&first, size, &place, &self.tag);
        let linked = match link() {
            Err(e) if classify(&e) == Trouble::IsDirectory => {
                self.make_room(entry, &place)?;
                link()
            }
            linked => linked,
        };
        let linked = linked.map_err(failed)?;
        if linked == HardLinked::Impossible {
            self.unlinked.add();
        }
        Ok(answer(linked))
    }
}

fn answer(linked: HardLinked) -> Linked {
    match linked {
        HardLinked::Made => Linked::Made,
        HardLinked::Same => Linked::Same,
        HardLinked::Differs => Linked::Differs,
        HardLinked::Gone => Linked::Gone,
        HardLinked::TooMany => Linked::TooMany,
        HardLinked::Impossible => Linked::Impossible,
    }
}

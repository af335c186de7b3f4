//! `--hard-links`: further names of files that are complete.

use std::sync::atomic::Ordering;

use packtrain_disk::{HardLinked, Trouble, classify};
use packtrain_transfer::{Failure, LinkPlan, Linked};
use rustix::process::geteuid;

use super::Target;

impl Target {
    /// Makes or checks a further name of a file.
    pub(crate) fn link(&self, plan: &LinkPlan) -> Result<Linked, Failure> {
        let (entry, place) = (&plan.entry, self.place(&plan.entry)?);
        let first = self.below(plan.first.as_bytes())?;
        let size = entry.size().unwrap_or_default();
        let failed = |e| self.failure(entry, "cannot make the hard link", &e);
        if !plan.makes {
            return Ok(answer(self.root.is_hard_link(&first, size, &place).map_err(failed)?));
        }
        self.root.naming_error(&place).map_err(failed)?;
        // What this transfer wrote has one of these owners.
        let own = geteuid().as_raw();
        let owners = [own, if self.options.preserve_owner { entry.uid } else { own }];
        if self.keeps_old().is_some() {
            // Without a link the old version stays where it is until the content is there.
            let tried = self.root.try_hard_link(&first, size, &place, owners).map_err(failed)?;
            if tried != HardLinked::Made {
                return Ok(self.note(tried));
            }
            self.renamed.store(true, Ordering::Release);
            self.back_up(&place)?;
        }
        let link = || self.root.hard_link(&first, size, &place, owners);
        let linked = match link() {
            Err(e) if classify(&e) == Trouble::IsDirectory => {
                self.renamed.store(true, Ordering::Release);
                self.make_room(entry, &place)?;
                link()
            }
            linked => linked,
        };
        Ok(self.note(linked.map_err(failed)?))
    }

    fn note(&self, linked: HardLinked) -> Linked {
        match linked {
            // The next sync of the journal covers the name.
            HardLinked::Made => self.renamed.store(true, Ordering::Release),
            HardLinked::Impossible => {
                self.unlinked.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
        answer(linked)
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

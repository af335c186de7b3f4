//! The walk through a list of names (`--files-from`).

use std::io;

use rustix::io::Errno;

use super::super::stat::Kind;
use super::list::{Part, is_within};
use super::{Place, Walker};

impl Walker {
    /// One step through a list of names.
    pub(super) fn step_listed(&mut self) -> bool {
        let place = match self.sources.first_place(0) {
            Ok(place) => place,
            Err(error) if self.next_source == 0 => {
                self.next_source = 1;
                self.fail_source(0, error);
                return true;
            }
            Err(_) => return false,
        };
        if self.device.is_none() {
            self.device = self.sources.stat(&place).ok().flatten().map(|stat| stat.dev);
            self.take_listed_rules(&place);
        }
        let Some(listed) = &mut self.listed else { return false };
        match listed.next() {
            None => false,
            Some(Err(bad)) => {
                let why = "the name leads out of the source directory";
                self.fail_listed(bad, io::Error::new(io::ErrorKind::InvalidInput, why));
                true
            }
            Some(Ok((path, listed))) => {
                self.visit_listed(place.child(&path), listed);
                true
            }
        }
    }

    fn visit_listed(&mut self, place: Place, part: Part) {
        while let Some(dir) = self.listed_rules.pop_if(|dir| !is_within(&place.to, &dir.to)) {
            self.leave_rules(&dir);
        }
        // Its directory has failed.
        if self.bad_rules.as_ref().is_some_and(|dir| is_within(&place.to, dir)) {
            return;
        }
        let kind = match self.sources.stat(&place) {
            Ok(stat) => stat.map(|stat| stat.kind),
            Err(_) if part == Part::Parent => None,
            Err(error) => return self.fail_place(&place, error),
        };
        // The name may lie in an excluded directory.
        if self.filters.excludes_within(&place.to, kind == Some(Kind::Directory)) {
            return;
        }
        match part {
            Part::Parent if kind == Some(Kind::Directory) => self.visit(place, kind, false),
            // A parent is not a directory, so the names beneath it fail.
            Part::Parent => self.no_parent = Some(place.to),
            Part::Name if self.lacks_parent(&place) => {
                self.fail_listed(self.sources.shown(&place), Errno::NOTDIR.into());
            }
            Part::Name if kind.is_none() => {
                self.fail_listed(self.sources.shown(&place), Errno::NOENT.into());
            }
            Part::Name => self.visit(place, kind, self.recursive),
        }
        if let (Some(listed), false) = (&mut self.listed, self.levels.is_empty()) {
            listed.took_all();
        }
    }

    /// Whether a listed name lies beneath something that exists but is not a directory, such as a
    /// link to one.
    fn lacks_parent(&self, place: &Place) -> bool {
        let no_parent = self.no_parent.as_ref().filter(|parent| is_within(&place.to, parent));
        no_parent.is_some_and(|parent| {
            let parent = Place { to: Vec::new(), from: parent.clone(), source: place.source };
            matches!(self.sources.stat(&parent), Ok(Some(_)))
        })
    }
}

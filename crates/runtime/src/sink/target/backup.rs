//! `--backup`: the old version of what is replaced or deleted gets another name.

use std::io;
use std::sync::atomic::Ordering;

use packtrain_disk::{Kept, Kind, Trouble};
use packtrain_object::{RelPath, directories_above};
use packtrain_transfer::message::Backup;
use packtrain_transfer::{Failure, FailureKind};

use super::{Target, kind_of};
use crate::traces::is_trace;
use packtrain_service::paths::show;

impl Target {
    /// Whether the old versions of files are kept.
    pub(crate) fn keeps_old(&self) -> Option<&Backup> {
        self.options.extra.backup.as_ref()
    }

    /// Keeps what has the name `place`, if `--backup` asks for it.
    pub(crate) fn back_up(&self, place: &RelPath) -> Result<Kept, Failure> {
        let Some(backup) = self.keeps_old() else { return Ok(Kept::Nothing) };
        let shown = || show(place.as_bytes());
        let to = self.backup_place(backup, place)?;
        let mut kept = self.root.keep_as(place, &to);
        let in_the_way = |error: &io::Error| {
            matches!(self.root.trouble(error), Trouble::IsDirectory | Trouble::NotDirectory)
        };
        if kept.as_ref().is_err_and(in_the_way) && self.remove_other_kind(backup, &to) {
            kept = self.root.keep_as(place, &to);
        }
        kept.map_err(|error| {
            let trouble = self.root.trouble(&error);
            let text = format!("{}: cannot keep the old version: {}", shown(), trouble.sentence());
            Failure::new(kind_of(trouble), text)
        })
    }

    /// Removes an earlier backup that is in the way of one at `to`, because the name was a directory
    /// then and is a file now, or the reverse. As with rsync, only in a directory for backups. Not
    /// if the source has names there too, or if a suffix makes names of this run alike. False if
    /// nothing was removed.
    fn remove_other_kind(&self, backup: &Backup, to: &RelPath) -> bool {
        let Some(dir) = &backup.dir else { return false };
        if !backup.suffix.is_empty() || self.fills_backups.load(Ordering::Relaxed) {
            return false;
        }
        let top = self.prefix.as_bytes().len() + dir.len() + 1;
        let kind = |path: &RelPath| self.root.stat(path).ok().flatten().map(|stat| stat.kind);
        // From the top: what is below another kind cannot be looked at.
        for dir in directories_above(to.as_bytes()).filter(|dir| dir.len() > top) {
            let Ok(place) = RelPath::new(dir.to_vec()) else { return false };
            match kind(&place) {
                Some(Kind::Directory) => {}
                Some(Kind::File) => return self.root.remove(&place).is_ok(),
                _ => return false,
            }
        }
        kind(to) == Some(Kind::Directory) && self.root.remove_tree(to).is_ok()
    }

    /// Notes whether the source has a name in the directory for backups.
    pub(super) fn note_backup_name(&self, path: &[u8]) {
        let dir = self.keeps_old().and_then(|backup| backup.dir.as_deref());
        let below = dir.and_then(|dir| path.strip_prefix(dir));
        if below.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/")) {
            self.fills_backups.store(true, Ordering::Relaxed);
        }
    }

    fn backup_place(&self, backup: &Backup, place: &RelPath) -> Result<RelPath, Failure> {
        let path = place.as_bytes();
        let to = match &backup.dir {
            None => [path, &backup.suffix].concat(),
            Some(dir) => {
                let prefix = self.prefix.as_bytes();
                let below = path.strip_prefix(prefix).and_then(|path| path.strip_prefix(b"/"));
                let below = below.filter(|_| !prefix.is_empty()).unwrap_or(path);
                let parts = [prefix, dir, below].into_iter().filter(|part| !part.is_empty());
                [parts.collect::<Vec<_>>().join(&b'/'), backup.suffix.clone()].concat()
            }
        };
        let name = to.rsplit(|&b| b == b'/').next().unwrap_or_default();
        if is_trace(name) {
            let text = format!(
                "{}: its backup would have a name that packtrain uses for its own files; use another \
                 --suffix",
                show(path)
            );
            return Err(Failure::new(FailureKind::TargetRefused, text));
        }
        RelPath::new(to).map_err(|e| {
            let text = format!("{}: the name of its backup: {e}", show(path));
            Failure::new(FailureKind::TargetRefused, text)
        })
    }

    /// Whether `--delete` leaves this path, relative to the destination, because it is a backup.
    pub(crate) fn is_backup(&self, path: &[u8], is_dir: bool) -> bool {
        match self.keeps_old() {
            Some(Backup { dir: Some(dir), .. }) => {
                let dir = dir.strip_suffix(b"/").unwrap_or(dir);
                // The directory itself and those above it.
                is_dir && dir.starts_with(path) && matches!(dir.get(path.len()), None | Some(b'/'))
            }
            Some(Backup { suffix, dir: None }) => !is_dir && path.ends_with(suffix),
            None => false,
        }
    }
}

//! `--backup`: the old version of what is replaced or deleted gets another name.

use packtrain_disk::Kept;
use packtrain_object::RelPath;
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
        self.root.keep_as(place, &to).map_err(|error| {
            let trouble = self.root.trouble(&error);
            let text = format!("{}: cannot keep the old version: {}", shown(), trouble.sentence());
            Failure::new(kind_of(trouble), text)
        })
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

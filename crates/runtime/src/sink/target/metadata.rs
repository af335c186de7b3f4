//! Modes, times and owners of entries at the target.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;

use packtrain_disk::{Kind, Meta, Stat};
use packtrain_object::{Entry, EntryKind};
use packtrain_transfer::Failure;
use rustix::process::{getegid, geteuid};

use super::Target;

impl Target {
    /// The mode to set, if the mode of the source is kept: before the access control list is set it
    /// gives nobody more than the list does.
    pub(super) fn mode(&self, entry: &Entry) -> Option<u32> {
        self.kept_mode(entry).map(|mode| without_list(entry, mode))
    }

    /// The mode of the source, if it is kept.
    fn kept_mode(&self, entry: &Entry) -> Option<u32> {
        self.options.mode_of(entry).filter(|_| self.options.preserve_mode)
    }

    /// The metadata of the entry that is kept.
    pub(super) fn meta<'a>(&self, entry: &'a Entry) -> Meta<'a> {
        let own = || (geteuid().as_raw(), getegid().as_raw()) == (entry.uid, entry.gid);
        if !self.owners && !own() {
            self.not_owned.fetch_add(1, Ordering::Relaxed);
        }
        Meta {
            mode: self.mode(entry),
            mtime: self.options.preserve_times.then_some(entry.mtime),
            owner: self.options.preserve_owner.then_some((entry.uid, entry.gid)),
            attributes: entry.extras.attributes.as_deref(),
            acls: entry.extras.acls.as_deref(),
        }
    }

    /// Number of entries whose owner could not be set.
    pub(in crate::sink) fn not_owned(&self) -> u64 {
        self.not_owned.load(Ordering::Relaxed) + self.root.not_owned()
    }

    /// Counts an entry whose mode or time could not be set.
    pub(crate) fn note_unsettled(&self) {
        self.unsettled.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn settle(&self, entry: &Entry) -> Result<(), Failure> {
        let place = self.place(entry)?;
        self.renamed.store(true, Ordering::Release);
        let found = self.root.stat(&place).ok().flatten();
        let mut meta = self.meta(entry);
        // With an access control list this is the mode of both: without a change of the mode the list
        // stays as it is, and nobody loses access for an instant.
        let has_mode = |f: &Stat| Some(f.mode & 0o7777) == self.kept_mode(entry);
        if found.is_some_and(|f| has_mode(&f) && !loses_bits(&f, meta.owner)) {
            meta.mode = None;
        }
        if self.is_home(entry) {
            (meta.mode, meta.owner, meta.acls) = (None, None, None);
        }
        self.root
            .settle(&place, &meta)
            .map_err(|e| self.failure(entry, "cannot set mode and time", &e))
    }

    /// The mode that counts as that of the target when it is compared with the source.
    pub(super) fn mode_there(&self, entry: &Entry, found: u32) -> u32 {
        match self.kept_mode(entry) {
            Some(mode) if self.is_home(entry) => mode,
            _ => found,
        }
    }

    /// Whether the entry is the destination itself, and that is this user's home directory. It keeps
    /// its mode, access control list and owner: if others may write, sshd refuses the keys of the
    /// account and the user can no longer log in.
    pub(super) fn is_home(&self, entry: &Entry) -> bool {
        if entry.kind != EntryKind::Directory || !entry.path.is_root() || self.is_renamed() {
            return false;
        }
        let Some(home) = std::env::var_os("HOME").filter(|home| !home.is_empty()) else {
            return false;
        };
        let prefix = std::ffi::OsStr::from_bytes(self.prefix.as_bytes());
        let place = self.root.path().join(prefix);
        let identity = |path: &std::path::Path| {
            fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
        };
        let home = identity(home.as_ref());
        home.is_some() && home == identity(&place)
    }
}

/// Whether the kernel takes the set-user-id and set-group-id bits from this file when it gets the owner.
/// A directory keeps its bits.
fn loses_bits(found: &Stat, owner: Option<(u32, u32)>) -> bool {
    found.kind == Kind::File
        && found.mode & 0o6000 != 0
        && owner.is_some_and(|owner| owner != (found.uid, found.gid))
}

/// What of `mode` may be set before the access control list of the entry.
pub(super) fn without_list(entry: &Entry, mode: u32) -> u32 {
    entry.extras.acls.as_ref().map_or(mode, |acls| acls.mode_without_list(mode))
}

//! The journal's file, as the driver of the sink uses it.

use std::sync::Arc;

use packtrain_disk::{JournalFile, Root};
use packtrain_object::RelPath;
use packtrain_os::clock;
use packtrain_service::paths::show;
use packtrain_transfer::Failure;

use super::{Runner, target};

/// The journal, created when it is first written.
pub(super) struct Journal {
    root: Arc<Root>,
    place: RelPath,
    pub(super) file: Option<JournalFile>,
    /// A write failed: what follows it would stand without what it needs, such as the header.
    failed: bool,
}

impl Journal {
    pub(super) fn new(root: Arc<Root>, place: RelPath) -> Self {
        Self { root, place, file: None, failed: false }
    }

    fn open(&mut self) -> std::io::Result<&mut JournalFile> {
        if self.file.is_none() {
            let (file, _) = JournalFile::open(&self.root, &self.place)?;
            self.file = Some(file);
        }
        self.file.as_mut().ok_or_else(|| std::io::ErrorKind::NotFound.into())
    }
}

impl Runner<'_> {
    pub(super) fn journal_append(&mut self, bytes: &[u8]) {
        self.journal_write(|file| file.append(bytes));
    }

    pub(super) fn journal_rewrite(&mut self, bytes: &[u8]) {
        self.journal_write(|file| file.replace(bytes));
    }

    pub(super) fn journal_remove(&mut self) {
        let removed = match self.journal.file.take() {
            Some(file) => file.remove(),
            None => JournalFile::discard(&self.journal.root, &self.journal.place),
        };
        // The result does not matter: the next run drops a journal of complete files.
        let _ = removed;
    }

    fn journal_write(&mut self, write: impl FnOnce(&mut JournalFile) -> std::io::Result<()>) {
        if self.journal.failed {
            return;
        }
        if let Err(error) = self.journal.open().and_then(write) {
            self.journal.failed = true;
            let trouble = self.target.root.trouble(&error);
            let place = show(self.journal.place.as_bytes());
            let text = format!("the journal {place}: {}", trouble.sentence());
            self.sink.cancel(clock::now(), Failure::new(target::kind_of(trouble), text));
        }
    }
}

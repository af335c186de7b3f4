//! The target as the writer threads see it: parts of files.

use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use packtrain_disk::{SourceFile, write};
use packtrain_object::{Entry, EntryId};
use packtrain_transfer::Failure;
use packtrain_units::ByteCount;
use rustix::process::geteuid;

use super::Target;
use crate::assembly::PieceTarget;

/// The target, shared with the writer threads.
#[derive(Clone)]
pub(crate) struct SharedTarget(pub(crate) Arc<Target>);

impl PieceTarget for SharedTarget {
    fn write(&self, id: EntryId, entry: &Entry, at: u64, bytes: &[u8]) -> Result<(), Failure> {
        let file = self.0.file(id, entry)?;
        let written = file.write_all_at(bytes, at);
        // After the write: a sync that runs meanwhile must leave it to the next.
        self.0.mark_dirty(id, &file);
        written.map_err(|e| self.0.failure(entry, "cannot write", &e))
    }

    fn zero(&self, id: EntryId, entry: &Entry, at: u64, len: u64) -> Result<(), Failure> {
        let file = self.0.file(id, entry)?;
        let punched = write::punch(&file, at, ByteCount(len));
        self.0.mark_dirty(id, &file);
        punched.map_err(|e| self.0.failure(entry, "cannot write", &e))
    }

    fn read(&self, id: EntryId, entry: &Entry, at: u64, out: &mut [u8]) -> bool {
        self.0.file(id, entry).is_ok_and(|file| {
            // What an earlier run wrote and this one vouches for has to be synced by this one.
            self.0.mark_dirty(id, &file);
            file.read_exact_at(out, at).is_ok()
        })
    }

    fn read_old(&self, entry: &Entry, at: u64, out: &mut [u8]) -> bool {
        let Ok(place) = self.0.place(entry) else { return false };
        let Ok(file) = self.0.root.open_read(&place) else { return false };
        let is_own = file.metadata().is_ok_and(|meta| meta.uid() == geteuid().as_raw());
        is_own && file.read_exact_at(out, at).is_ok()
    }

    fn write_old(&self, id: EntryId, entry: &Entry, at: u64, bytes: &[u8]) -> Result<(), Failure> {
        // In place too, where they are already: perhaps only in the page cache, since a write-back that
        // failed in an earlier run. What is written now is covered by the sync of this run.
        match bytes.iter().all(|byte| *byte == 0) {
            true => self.zero(id, entry, at, bytes.len() as u64),
            false => self.write(id, entry, at, bytes),
        }
    }

    fn share(
        &self,
        id: EntryId,
        entry: &Entry,
        at: u64,
        (from, from_at): (&SourceFile, u64),
        len: u64,
    ) -> bool {
        // A file that cannot be opened fails the write that comes next.
        let Ok(file) = self.0.file(id, entry) else { return false };
        let shared = write::clone_range(from, from_at, &file, at, ByteCount(len));
        self.0.mark_dirty(id, &file);
        shared.is_ok()
    }

    fn write_small(&self, id: EntryId, entry: &Entry, bytes: &[u8]) -> Result<(), Failure> {
        let target = &self.0;
        if target.in_place(entry) {
            self.write(id, entry, 0, bytes)?;
            target.close(id);
            return Ok(());
        }
        let place = target.place(entry)?;
        let (root, tag) = (&target.root, &target.tag);
        let written = match target.mode_when_written(entry) {
            Some(mode) => {
                let meta = target.meta(entry);
                match root.write_fresh(id, &place, bytes, mode, &meta) {
                    Ok(false) => root.write_ready(&place, tag, bytes, mode, &meta),
                    written => written.map(|_| ()),
                }
            }
            None => root.write_small(&place, tag, bytes),
        };
        // After the write: a sync that runs meanwhile must leave it to the next.
        target.dirty.lock().many = true;
        written.map_err(|e| target.failure(entry, "cannot write", &e))
    }
}

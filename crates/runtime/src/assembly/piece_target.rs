//! The destination of pieces, as the assembly sees it.

use packtrain_disk::SourceFile;
use packtrain_object::{Entry, EntryId};
use packtrain_transfer::Failure;

/// The destination of pieces.
pub(crate) trait PieceTarget: Send + Sync + 'static {
    /// Writes part of a file of more than one chunk.
    fn write(&self, id: EntryId, entry: &Entry, at: u64, bytes: &[u8]) -> Result<(), Failure>;
    /// Makes part of a file read as zeros, without allocating space where possible.
    fn zero(&self, id: EntryId, entry: &Entry, at: u64, len: u64) -> Result<(), Failure>;
    /// Reads written data; false if the file is too short.
    fn read(&self, id: EntryId, entry: &Entry, at: u64, out: &mut [u8]) -> bool;
    /// Writes a whole small file.
    fn write_small(&self, id: EntryId, entry: &Entry, bytes: &[u8]) -> Result<(), Failure>;
    /// Makes part of a file share the blocks of another from `from_at` on; false if that cannot be
    /// done, and then nothing changed.
    fn share(&self, _: EntryId, _: &Entry, _at: u64, _from: (&SourceFile, u64), _len: u64) -> bool {
        false
    }
    /// Reads bytes of the old version of the entry's file, which has its final name; false if there is
    /// no regular file of this user or it is too short.
    fn read_old(&self, _: &Entry, _at: u64, _out: &mut [u8]) -> bool {
        false
    }
    /// Writes bytes that [`PieceTarget::read_old`] read at the same place.
    fn write_old(&self, id: EntryId, entry: &Entry, at: u64, bytes: &[u8]) -> Result<(), Failure> {
        self.write(id, entry, at, bytes)
    }
}

//! The journal: what of which file is safe at the receiving end, on disk as it becomes so.
//!
//! It is only appended to. Each record is: tag (1 byte), length of the body, the body, and the
//! first 6 bytes of the BLAKE3 digest of all that. A journal starts with eight magic bytes and
//! a `Begin` record; each later run appends a further one before anything else: what an earlier
//! run left unsynced is then not taken for durable. A record that is torn or wrong ends
//! what is believed: everything before it stands. A chunk takes 45 bytes or so, which is
//! 11.3 MiB for a file of 1 TiB.
//!
//! Only files larger than one chunk are journalled: a smaller one is either there or it is not.

use packtrain_units::ByteCount;

use crate::entry::Mtime;
use crate::path::RelPath;

mod record;
mod state;

pub use record::{MAX_NOTE, Record, encode};
pub use state::{ChunkState, FileState, JournalState};

/// The journal format that this build writes, and the newest it reads.
pub const FORMAT: u16 = 1;

/// What a file must have in common with its journalled self for its chunks to count.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileKey {
    /// Where it goes, below the destination.
    pub path: RelPath,
    /// Its size in bytes.
    pub size: u64,
    /// Its modification time at the source.
    pub mtime: Mtime,
}

/// Why a journal is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// It does not start as a journal does: this is somebody's file, leave it alone.
    #[error("this file is not a packtrain journal")]
    Foreign,
    /// A newer program wrote it.
    #[error("the journal has format {0}, this build reads up to {FORMAT}")]
    Newer(u16),
}

/// What a journal says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// What is known of each file.
    pub state: JournalState,
    /// How many bytes of the journal were good: cut it there before appending.
    pub valid_len: u64,
    /// Whether anything followed the good bytes.
    pub torn: bool,
}

impl Replay {
    /// How many bytes of the journal were good.
    pub const fn valid(&self) -> ByteCount {
        ByteCount(self.valid_len)
    }
}

/// Reads a journal. No bytes are an empty journal; a torn or wrong record ends the reading and
/// is no error. Memory is in proportion to the journal's length.
pub fn replay(bytes: &[u8]) -> Result<Replay, JournalError> {
    let head = &bytes[..bytes.len().min(record::MAGIC.len())];
    if !record::MAGIC.starts_with(head) {
        return Err(JournalError::Foreign);
    }
    let mut state = JournalState::default();
    let mut rest = bytes;
    while let Some((record, after)) = record::next(rest) {
        // Nothing comes before the first `Begin`.
        if rest.len() == bytes.len() && !matches!(record, Record::Begin { .. }) {
            break;
        }
        if let Record::Begin { format, .. } = record
            && format > FORMAT
        {
            return Err(JournalError::Newer(format));
        }
        state.apply(&record);
        rest = after;
    }
    let valid_len = (bytes.len() - rest.len()) as u64;
    Ok(Replay { state, valid_len, torn: !rest.is_empty() })
}

#[cfg(test)]
mod tests;

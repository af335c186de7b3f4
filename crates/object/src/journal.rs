//! The journal: a file on disk at the receiving end that records which data of which file is
//! durable.
//!
//! The journal is only appended to. Each record is: tag (1 byte), length of the body, the body, and
//! the first 6 bytes of the BLAKE3 digest of all that. A journal starts with eight magic bytes and
//! a `Begin` record. Each later run appends a further `Begin` first: data that an earlier run left
//! unsynced then does not count as durable. Reading stops at a torn or corrupt record; all records
//! before it are valid. A chunk takes about 45 bytes, which is 11.3 MiB for a file of 1 TiB.
//!
//! Only files larger than one chunk are journalled; a smaller file is either complete or absent.

use packtrain_units::ByteCount;

use crate::entry::Mtime;
use crate::path::RelPath;

mod record;
mod state;

pub(crate) use record::MAX_NOTE;
pub use record::{Record, encode};
pub use state::{ChunkState, FileState, JournalState};

/// The journal format that this build writes, and the newest that it reads.
pub const FORMAT: u16 = 1;

/// The properties that must equal those of the journalled file for its chunks to count.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileKey {
    /// Its path below the destination.
    pub path: RelPath,
    /// Its size in bytes.
    pub size: u64,
    /// Its modification time at the source.
    pub mtime: Mtime,
}

/// Why a journal cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// It does not start like a journal: the file belongs to someone else and must not be changed.
    #[error("this file is not a packtrain journal")]
    Foreign,
    /// A newer program wrote it.
    #[error("the journal has format {0}, this build reads up to {FORMAT}")]
    Newer(u16),
}

/// The contents of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// The state of each file.
    pub state: JournalState,
    /// Number of valid bytes: truncate the journal to this length before appending.
    pub valid_len: u64,
    /// Whether anything followed the valid bytes.
    pub torn: bool,
}

impl Replay {
    /// Number of valid bytes.
    pub const fn valid(&self) -> ByteCount {
        ByteCount(self.valid_len)
    }
}

/// Reads a journal. An empty input is an empty journal; a torn or corrupt record ends the reading
/// and is no error. Memory is proportional to the journal's length.
pub fn replay(bytes: &[u8]) -> Result<Replay, JournalError> {
    let head = &bytes[..bytes.len().min(record::MAGIC.len())];
    if !record::MAGIC.starts_with(head) {
        return Err(JournalError::Foreign);
    }
    let mut state = JournalState::default();
    let mut rest = bytes;
    while let Some((record, after)) = record::next(rest) {
        // The first record must be `Begin`.
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

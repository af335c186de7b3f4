//! Collects all entries of a source, for senders without a sink at the other end.

use std::sync::Arc;

use crossbeam_channel::unbounded;
use packtrain_object::{Entry, EntryId, Piece};
use packtrain_transfer::Failure;
use packtrain_transfer::message::Options;
use packtrain_units::{ByteCount, Offset};

use super::SourceEvent;
use super::table::{Files, Table};
use super::walk::{self, Credit, SourceSpec};
use crate::meters::Meters;
use crate::reader::PieceSource as _;

/// The result of a walk.
pub struct Collected {
    /// All entries in manifest order.
    pub entries: Vec<Entry>,
    /// Paths that could not be listed.
    pub failed: Vec<(Vec<u8>, Failure)>,
    files: Files,
}

/// Walks to the end.
pub fn collect(spec: SourceSpec, options: &Options) -> Result<Collected, Failure> {
    let (news, inbox) = unbounded();
    let (table, credit) = (Arc::<Table>::default(), Arc::<Credit>::default());
    let meters = Arc::<Meters>::default();
    credit.set(usize::MAX);
    let files = Files::new(Arc::clone(&table), Arc::clone(&meters));
    walk::start(spec, options.clone(), table, credit, meters, news);
    let mut entries = Vec::new();
    let mut failed = Vec::new();
    for item in inbox {
        match item {
            SourceEvent::Entries(some) => entries.extend(some),
            SourceEvent::WalkEnd(some, _) => failed = some,
            SourceEvent::Refuse(failure) => return Err(failure),
            SourceEvent::Read(_)
            | SourceEvent::Hole(..)
            | SourceEvent::Root(..)
            | SourceEvent::StreamEnd(..)
            | SourceEvent::Warn(_)
            | SourceEvent::NotKept(_)
            | SourceEvent::Rules(..)
            | SourceEvent::Skipped(_)
            | SourceEvent::Compared(..)
            | SourceEvent::Removed(..)
            | SourceEvent::Wake => {}
        }
    }
    Ok(Collected { entries, failed, files })
}

impl Collected {
    /// Reads the piece at `at` of a file of `size` bytes, if the file did not change since the
    /// walk.
    pub fn read(
        &self,
        entry: EntryId,
        (at, size): (u64, u64),
        out: &mut [u8],
    ) -> Result<(), Failure> {
        let range = Offset(0)..Offset(0) + ByteCount(out.len() as u64);
        let whole = out.len() as u64 == size;
        self.files.read(&Piece { entry, file_offset: at, range, whole }, out)?;
        Ok(())
    }
}

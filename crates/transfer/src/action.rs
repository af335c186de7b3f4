//! Actions that the state machines request from their driver (`packtrain-runtime`), and their data
//! types.

use std::ops::Range;

use packtrain_object::{ChunkIndex, Digest, Entry, EntryId, Piece, RelPath};
use packtrain_units::{ByteCount, Offset};

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::message::{Message, Summary};
use crate::path_digests::KeptPaths;
use crate::transport::TransportId;

/// Actions of a source.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceAction {
    /// Send this message to the peer.
    Send(Message),
    /// Assign this range to the transport. The driver reports the digests of the chunks it touches.
    Assign(TransportId, Range<Offset>),
    /// Ask the transport to return this range. It answers with `Returned` or `Placed` for all of
    /// it.
    Revoke(TransportId, Range<Offset>),
    /// This range failed verification and will be assigned again. Read it from the file again and
    /// report the digests of its chunks again.
    Reread(Range<Offset>),
    /// Compute the root digest of this file and report it with `on_root`.
    HashFile(EntryId),
    /// The sink has this file or link durable. Remove it, if it is still what was read, and report the
    /// result with `on_removed`.
    Remove(EntryId),
    /// Read this piece and report its digest with `on_compared`, exactly once.
    Compare(Piece),
    /// The sink verified these bytes. Read-ahead and caches may drop them.
    Forget(Range<Offset>),
    /// The transfer is over.
    Finished(Outcome),
}

/// Actions of a sink. The driver starts them in the order in which they are returned.
#[derive(Clone, Debug, PartialEq)]
pub enum SinkAction {
    /// Send this message to the peer.
    Send(Message),
    /// Examine the targets of these entries. Answer with `on_examined`, with one state per entry.
    Examine(EntryId, Vec<Entry>),
    /// Make this directory if it does not exist; answer with `on_made`. `Settle` sets its mode and
    /// mtime later.
    MakeDirectory(EntryId, Entry),
    /// Make this symbolic link, replacing an existing target; answer with `on_made`.
    MakeSymlink(EntryId, Entry),
    /// Make this empty file (size 0) as a temporary, which a later `Commit` renames; answer with
    /// `on_made`.
    MakeEmpty(EntryId, Entry),
    /// Accept these pieces of a chunk from now on. Write each into the temporary of its entry,
    /// which is created on first use with the length of the file. Answer with `on_written` when all
    /// pieces are written, or with `on_write_failed`.
    Expect(ChunkPlan),
    /// This expected range is a hole. Make it read as zeros; it counts as received.
    Zero(Range<Offset>),
    /// This stream ended at this size. Truncate its temporary and its expected pieces.
    EndStream(EntryId, ByteCount),
    /// The content of a file of rules at the source: rule `number` applies it below `dir`. Checked by
    /// the driver, which ends the transfer if it is invalid.
    AddRules {
        /// The number of its rule among those of such files.
        number: u32,
        /// The path of the directory at the target.
        dir: Vec<u8>,
        /// The content.
        text: Vec<u8>,
    },
    /// Drop these expected pieces; they are no longer needed.
    Unexpect(Range<Offset>),
    /// Read this piece from the temporary of the entry (`Piece::file_offset`, its length) and
    /// answer with `on_rehashed`.
    Rehash(ChunkIndex, Piece, Entry),
    /// Read this piece from the old version of the entry, which is still under its final name
    /// (`Piece::file_offset`, its length), and answer with `on_old_hashed`.
    HashOld(ChunkIndex, Piece, Entry),
    /// Copy this expected piece from the old version of the entry to its temporary and answer with
    /// `on_copied`. No transport places bytes of it before the answer.
    CopyOld(ChunkIndex, Piece, Entry),
    /// Make the entry a further name of a file that is complete, and answer with `on_linked`.
    Link(LinkPlan),
    /// Hash the file at the entry's target and answer with `on_target_root`.
    HashTarget(EntryId, Entry),
    /// Replace or create the journal with these bytes, atomically: write a temporary, sync it,
    /// rename it.
    RewriteJournal(Vec<u8>),
    /// Append these bytes to the journal, without syncing it.
    Journal(Vec<u8>),
    /// Sync all data written to temporaries before this action; answer with `on_synced`.
    Sync(u64),
    /// Set the metadata of each temporary and rename it to its final name. Answer with
    /// `on_committed` for each. A link, which only a source that removes its files has here, was
    /// made before; it fails if the directory that it was made in did not get its name.
    Commit(Vec<(EntryId, Entry)>),
    /// Set the metadata of directories, and of files whose content did not change. This action has
    /// no answer. It is complete before the driver answers a later `JournalSync`.
    Settle(Vec<(EntryId, Entry)>),
    /// Make the journal, and the renames and every `Settle` before this action, durable; answer
    /// with `on_journal_synced`. The sink sends `Finished` only after the last of these.
    JournalSync {
        /// For the answer.
        token: u64,
        /// Also the names that this run did not make: an earlier one may have been killed before it
        /// synced them.
        names: bool,
    },
    /// Remove the temporary of a failed entry. The sink requests this only if no later run can use
    /// it.
    Discard(EntryId, Entry),
    /// Remove the temporaries of these paths, if there are any: an earlier run began these files, and
    /// this run, of which only metadata and syncs are left, did not need them. The journal is removed
    /// later.
    Abandon(Vec<RelPath>),
    /// Remove everything at the target that is not in this list; answer with `on_deleted`.
    Delete(DeletePlan),
    /// Remove the journal, which is no longer needed.
    RemoveJournal,
    /// Remove the lock of the transfer. Only metadata is written after this.
    RemoveLock,
    /// Report the result of the entry with this path to the user. Requested only with
    /// `report_files`, `dry_run` or `verify`.
    Report(Vec<u8>, FileReport),
    /// The transfer is over.
    Finished(Outcome),
}

/// Expected pieces of one chunk.
#[derive(Clone, Debug, PartialEq)]
pub struct ChunkPlan {
    /// The chunk index.
    pub chunk: ChunkIndex,
    /// The needed pieces in offset order, with their entries.
    pub pieces: Vec<(Piece, Entry)>,
}

/// A further name of a file (`--hard-links`).
#[derive(Clone, Debug, PartialEq)]
pub struct LinkPlan {
    /// The entry that becomes it.
    pub id: EntryId,
    /// The same. Its size and time are those of the file.
    pub entry: Entry,
    /// The path of an earlier entry, which has its final name.
    pub first: RelPath,
    /// Whether to make the name; otherwise nothing changes, and the answer is `Same` or `Differs`.
    pub makes: bool,
}

/// What became of a further name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linked {
    /// It was made, and what had the name was replaced.
    Made,
    /// It was the same file already.
    Same,
    /// It is another file, and nothing was to be made.
    Differs,
    /// The first name does not exist any more, or is another file.
    Gone,
    /// The file has as many names as it can have.
    TooMany,
    /// The file can have no further name at this place.
    Impossible,
}

/// Input of `--delete`: everything at the target that is kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeletePlan {
    /// Paths of all entries, relative to the destination.
    pub keep: KeptPaths,
    /// Paths below which nothing is removed, because their source has no file.
    pub spared: Vec<Vec<u8>>,
    /// Maximum number of names to remove, if there is a limit.
    pub limit: Option<u64>,
    /// Only report what would be removed.
    pub dry_run: bool,
}

/// State of an entry's target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetState {
    /// The target itself, if it exists.
    pub target: Option<Found>,
    /// Size of the temporary of an earlier run, if it exists.
    pub temporary: Option<u64>,
}

/// An existing file, directory or link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its kind.
    pub kind: FoundKind,
    /// Its size in bytes.
    pub size: u64,
    /// Its modification time; that of the entry if its file system cannot keep that one better.
    pub mtime: packtrain_object::Mtime,
    /// Its permission bits.
    pub mode: u32,
    /// For a symbolic link: whether it points to the target named in the entry.
    pub same_link: bool,
    /// Whether it has the extended attributes and access control lists of the entry, if the entry
    /// states any.
    pub same_attributes: bool,
    /// For a directory: whether an entry of another kind may replace it, because it is empty or
    /// because `--delete` removes its contents.
    pub makes_way: bool,
}

/// Kinds of existing files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A device, socket or pipe.
    Other,
}

/// Result of an entry, for the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileReport {
    /// Its content was moved (or would be moved).
    Moved,
    /// It already matched the source.
    Unchanged,
    /// It differs from the source (`verify`).
    Differs,
    /// It is missing at the target (`verify`).
    Missing,
    /// It was (or would be) deleted; with `verify`: the source does not have it.
    Deleted,
    /// It failed.
    Failed(Failure),
    /// Its content matches; its mode or time would be set (a dry run).
    Metadata,
}

/// Result of a transfer.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The counts. The source receives them from the sink.
    pub summary: Summary,
    /// The failure that ended the transfer early, if any.
    pub failure: Option<Failure>,
    /// Failures of single entries, found at this end or reported by the peer: the first hundred.
    pub failed: Vec<(Vec<u8>, Failure)>,
}

/// A digest that the driver computed for a piece of this entry.
pub type PieceHash = (EntryId, Digest);

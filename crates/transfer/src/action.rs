//! What the state machines ask their driver (`packtrain-runtime`) to do, and the plain types that
//! go with it.

use std::ops::Range;

use packtrain_object::{ChunkIndex, Digest, Entry, EntryId, Piece};
use packtrain_units::{ByteCount, Offset};

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::message::{Message, Summary};
use crate::transport::TransportId;

/// What a source asks of its driver.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceAction {
    /// Send this to the peer.
    Send(Message),
    /// Let the transport move this range. Digests of the chunks it touches are to be reported.
    Assign(TransportId, Range<Offset>),
    /// Ask the transport for this range back; it answers `Returned` or `Placed` for all of it.
    Revoke(TransportId, Range<Offset>),
    /// This range failed verification and will be assigned again: read it anew from the file and
    /// report the digests of its chunks again.
    Reread(Range<Offset>),
    /// Compute the root digest of this file and report it with `on_root`.
    HashFile(EntryId),
    /// The sink has these bytes verified: read-ahead and caches may forget them.
    Forget(Range<Offset>),
    /// Over.
    Finished(Outcome),
}

/// What a sink asks of its driver. Actions are to be begun in the order they come.
#[derive(Clone, Debug, PartialEq)]
pub enum SinkAction {
    /// Send this to the peer.
    Send(Message),
    /// Look at the targets of these entries; answer with `on_examined`, one state an entry.
    Examine(EntryId, Vec<Entry>),
    /// Make this directory, if it is not there (mode and mtime come with `Settle`); answer with
    /// `on_made`.
    MakeDirectory(EntryId, Entry),
    /// Make this symbolic link, replacing what is there; answer with `on_made`.
    MakeSymlink(EntryId, Entry),
    /// Make this empty file (size 0) as a temporary that a later `Commit` names; answer
    /// with `on_made`.
    MakeEmpty(EntryId, Entry),
    /// These pieces of a chunk may arrive from now on; write each into its entry's temporary
    /// (made on first use, its length set to the file's) and answer with `on_written` when
    /// every one of them is written, or `on_write_failed`.
    Expect(ChunkPlan),
    /// This expected range is a hole: make it read as zeros; it counts as arrived.
    Zero(Range<Offset>),
    /// This stream ended at this size: cut its temporary and what is expected of it there.
    EndStream(EntryId, ByteCount),
    /// Forget these pieces; they will not be needed.
    Unexpect(Range<Offset>),
    /// Read this piece from the entry's temporary (`Piece::file_offset`, its length) and answer
    /// with `on_rehashed`.
    Rehash(ChunkIndex, Piece, Entry),
    /// Hash the file at the entry's target and answer with `on_target_root`.
    HashTarget(EntryId, Entry),
    /// Replace or make the journal with these bytes, atomically: aside, synced, renamed.
    RewriteJournal(Vec<u8>),
    /// Append these bytes to the journal, without syncing it.
    Journal(Vec<u8>),
    /// Write all data of temporaries written before this to stable storage; answer `on_synced`.
    Sync(u64),
    /// Give each temporary its metadata and its final name; answer with `on_committed` for each.
    Commit(Vec<(EntryId, Entry)>),
    /// Set metadata of directories, and of files that were unchanged in content. It has no answer
    /// of its own: it is done before a `JournalSync` that comes after it is answered.
    Settle(Vec<(EntryId, Entry)>),
    /// Make the journal (and the renames and every `Settle` before this) durable; answer with
    /// `on_journal_synced`. The last one is waited for before the source hears of the end.
    JournalSync(u64),
    /// Remove the temporary of a failed entry, unless its journal makes it worth keeping.
    Discard(EntryId, Entry),
    /// Remove what is at the target and not in this list; answer with `on_deleted`.
    Delete(DeletePlan),
    /// The journal is no longer needed: remove it.
    RemoveJournal,
    /// Nothing more is written but metadata: remove the transfer's lock.
    RemoveLock,
    /// The entry of this path is done (only with `report_files`, `dry_run` or `verify`): for the
    /// user.
    Report(Vec<u8>, FileReport),
    /// Over.
    Finished(Outcome),
}

/// Pieces of one chunk that are expected.
#[derive(Clone, Debug, PartialEq)]
pub struct ChunkPlan {
    /// The chunk.
    pub chunk: ChunkIndex,
    /// Its needed pieces in offset order, with their entries.
    pub pieces: Vec<(Piece, Entry)>,
}

/// Everything that stays when `--delete` cleans the target.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeletePlan {
    /// Paths of all entries, relative to the destination, sorted.
    pub keep: Vec<Vec<u8>>,
    /// Paths below which nothing is removed, because their source brought no file.
    pub spared: Vec<Vec<u8>>,
    /// The most names that are removed, if there is a limit.
    pub limit: Option<u64>,
    /// Only say what would go.
    pub dry_run: bool,
}

/// What there is at an entry's target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetState {
    /// The target itself, if there is one.
    pub target: Option<Found>,
    /// Size of the temporary of an earlier run, if there is one.
    pub temporary: Option<u64>,
}

/// What something on disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its kind.
    pub kind: FoundKind,
    /// Its size in bytes.
    pub size: u64,
    /// Its modification time.
    pub mtime: packtrain_object::Mtime,
    /// Its permission bits.
    pub mode: u32,
    /// For a symbolic link: whether it points where the entry says.
    pub same_link: bool,
    /// For a directory: whether something else may take its place, because it is empty or
    /// because `--delete` removes what is in it.
    pub makes_way: bool,
}

/// Kinds of what is on disk.
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

/// What became of a file, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileReport {
    /// Its content moved (or would move).
    Moved,
    /// It was already right.
    Unchanged,
    /// It differs (verify).
    Differs,
    /// It is missing at the target (verify).
    Missing,
    /// It was (or would be) deleted.
    Deleted,
    /// It failed.
    Failed(Failure),
}

/// How a transfer ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The counts; the source learns them from the sink.
    pub summary: Summary,
    /// The failure that ended it early, if one did.
    pub failure: Option<Failure>,
    /// Failures of single entries seen at this end or told by the peer, the first hundred.
    pub failed: Vec<(Vec<u8>, Failure)>,
}

/// A digest the driver computed for a piece.
pub type PieceHash = (EntryId, Digest);

//! Every limit of a transfer in one place.

use packtrain_object::{CHUNK, Entry, EntryKind};
use packtrain_units::{Backoff, ByteCount, Duration};

/// Entries that may be between the walk and their end at once.
pub const MAX_OUTSTANDING: usize = 128 << 10;
/// Entries of which a sink takes notice before it calls the source a flood: those outstanding at
/// the source and those that wait here for stable storage.
pub(crate) const MAX_HELD: usize = 3 * MAX_OUTSTANDING;
/// Bytes of paths and link targets that a source has between the walk and their end at once.
pub const MAX_OUTSTANDING_PATHS: ByteCount = ByteCount(64 << 20);
/// The same at a sink, before it calls the source a flood: what is outstanding at the source,
/// what waits here for stable storage, and a walk that ran ahead.
pub(crate) const MAX_HELD_PATHS: u64 = 4 * MAX_OUTSTANDING_PATHS.get();
/// Bytes of path and link target that a single entry has at most.
pub(crate) const MAX_ENTRY_PATHS: u64 = 8 << 10;
/// Directories and symbolic links of one manifest: the sink remembers all of them to its end.
pub(crate) const MAX_DIRECTORIES: usize = 16 << 20;
/// Bytes of the paths of these directories.
pub(crate) const MAX_DIRECTORY_PATHS: u64 = 1 << 30;
/// Bytes of paths of complete files that may wait for stable storage before the source has to
/// wait too.
pub(crate) const MAX_UNSYNCED_PATHS: u64 = 64 << 20;
/// Complete files that may wait for stable storage before the source has to wait too.
pub(crate) const MAX_UNSYNCED_FILES: usize = 64 << 10;
/// Complete files after which a sync is due.
pub(crate) const SYNC_FILES: usize = 16 << 10;
/// Verified bytes after which a sync is due.
pub(crate) const SYNC_BYTES: u64 = 64 << 20;
/// Time after which verified bytes are synced.
pub(crate) const SYNC_EVERY: Duration = Duration::from_secs(1);
/// Bytes that a sink has asked for and not verified yet, at most: twice what 50 Gbit/s over
/// 300 ms hold.
pub(crate) const NEED_WINDOW: u64 = 4 << 30;
/// Chunks in the same state, at most; bounds the plans of many small files.
pub(crate) const NEED_CHUNKS: usize = 1024;
/// Ranges in one message, at most.
pub(crate) const MAX_RANGES: usize = 8192;
/// Pieces in one message of digests, at most.
pub(crate) const MAX_DIGESTS: usize = 8192;
/// Journalled chunks that are being read back at once.
pub(crate) const REHASH_WINDOW: usize = 16;
/// Files whose roots are being compared at once.
pub(crate) const ROOTS_WINDOW: usize = 4096;
/// Times a piece may fail verification before its entry fails.
pub(crate) const MAX_TRIES: u8 = 3;
/// Files in one `Commit`, at most.
pub(crate) const COMMIT_BATCH: usize = 512;
/// Entries in one `Settle`, at most.
pub(crate) const SETTLE_BATCH: usize = 1024;
/// Failures of single entries kept with their paths.
pub(crate) const MAX_FAILED: usize = 100;
/// The most sources without a file that a source names.
pub(crate) const MAX_EMPTY_SOURCES: usize = 4096;
/// Bytes of a failure's text that are kept.
pub(crate) const MAX_TEXT: usize = 512;
/// Paths of released entries that a source remembers, for failures told late.
pub(crate) const MAX_RECENT: usize = 16 << 10;
/// How long entries wait for company in a segment.
pub(crate) const SEGMENT_DELAY: Duration = Duration::from_millis(20);
/// How long verified ranges wait for company in a message.
pub(crate) const VERIFIED_DELAY: Duration = Duration::from_millis(30);
/// How often a sink tells its progress while there is any.
pub(crate) const PROGRESS_EVERY: Duration = Duration::from_millis(500);

/// Bytes assigned to a new transport at once.
pub const WINDOW_START: ByteCount = ByteCount(64 << 20);
/// Bytes assigned to any transport at once, at most.
pub const WINDOW_MAX: ByteCount = ByteCount(1 << 30);
/// Bytes assigned to a transport that stalled and is tried again.
pub(crate) const WINDOW_PROBE: u64 = 4 << 20;
/// How much of its measured rate a transport has assigned at least.
pub(crate) const WINDOW_SPAN: Duration = Duration::from_secs(2);
/// The longest range in one `Assign`.
pub(crate) const MAX_GRANT: u64 = 32 << 20;
/// A transport with less assigned than this much of its window is given more: with a whole chunk
/// of room a range can always be cut at the end of a chunk.
pub(crate) const GRANT_ROOM: u64 = CHUNK.get();
/// A victim must have this much left for a range to be stolen from it.
pub(crate) const MIN_STEAL: u64 = 512 << 10;
/// A transport that placed nothing for so long loses its ranges to another one.
pub const STALL_AFTER: Duration = Duration::from_secs(3);
/// How long a transport is not used after stalls in a row.
pub(crate) const STALL_PENALTY: Backoff =
    Backoff::new(Duration::from_secs(10), Duration::from_secs(80));
/// How long a transport that was policed again stays behind the others.
pub(crate) const POLICED_PENALTY: Backoff =
    Backoff::new(Duration::from_secs(60), Duration::from_secs(960));
/// How long a transport must be busy before its rate is compared.
pub(crate) const POLICED_AFTER: Duration = Duration::from_secs(5);
/// How often rates and stalls are looked at.
pub(crate) const HEALTH_EVERY: Duration = Duration::from_millis(250);

/// Bytes of path and link target that are held as long as this entry is.
pub(crate) fn path_bytes(entry: &Entry) -> u64 {
    let target = match &entry.kind {
        EntryKind::Symlink { target } => target.len(),
        EntryKind::Directory | EntryKind::File { .. } | EntryKind::Stream => 0,
    };
    (entry.path.as_bytes().len() + target) as u64
}

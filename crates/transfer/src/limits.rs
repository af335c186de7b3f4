//! All limits of a transfer.

use packtrain_object::{CHUNK, Entry, EntryKind};
use packtrain_units::{Backoff, ByteCount, Duration};

/// Maximum entries between the walk and their completion.
pub const MAX_OUTSTANDING: usize = 128 << 10;
/// Maximum entries that a sink holds before it fails the source for a protocol violation: those
/// outstanding at the source and those that wait here for a sync.
pub(crate) const MAX_HELD: usize = 3 * MAX_OUTSTANDING;
/// Maximum bytes of paths and link targets of a source's outstanding entries.
pub const MAX_OUTSTANDING_PATHS: ByteCount = ByteCount(64 << 20);
/// The same limit at a sink, above which it fails the source. It covers entries outstanding at the
/// source, entries that wait here for a sync, and a walk that ran ahead.
pub(crate) const MAX_HELD_PATHS: u64 = 4 * MAX_OUTSTANDING_PATHS.get();
/// Maximum files of a chunk that are planned together. The source pauses at [`MAX_OUTSTANDING`], so a
/// chunk with more files would never be complete.
pub(crate) const MAX_PART_FILES: u32 = 16 << 10;
/// Maximum bytes of their paths, for the same reason.
pub(crate) const MAX_PART_PATHS: u64 = MAX_OUTSTANDING_PATHS.get() / 4;
/// Maximum bytes of the path and link target of a single entry.
pub(crate) const MAX_ENTRY_PATHS: u64 = 8 << 10;
/// Maximum bytes of an entry's extended attributes and access control lists, as [`path_bytes`] counts
/// them.
pub(crate) const MAX_ENTRY_ATTRIBUTES: u64 = 150 << 10;
/// Maximum directories and symbolic links of one manifest. The sink keeps all of them to the end.
pub(crate) const MAX_DIRECTORIES: usize = 16 << 20;
/// Maximum bytes of the paths of these directories.
pub(crate) const MAX_DIRECTORY_PATHS: u64 = 1 << 30;
/// Maximum entries of a copy with `--delete`. The sink keeps 16 bytes of each to the end.
pub(crate) const MAX_KEPT: usize = 64 << 20;
/// Bytes of paths of complete files that may wait for a sync before the source must pause.
pub(crate) const MAX_UNSYNCED_PATHS: u64 = 64 << 20;
/// Complete files that may wait for a sync before the source must pause.
pub(crate) const MAX_UNSYNCED_FILES: usize = 64 << 10;
/// Maximum files in a journal. The sink keeps their paths, in two copies, until they are complete, and
/// to the end if they fail. Further files are copied without a journal: a later run begins them anew.
pub(crate) const MAX_JOURNALLED: usize = 1 << 20;
/// Maximum bytes of the paths of these files.
pub(crate) const MAX_JOURNALLED_PATHS: u64 = 256 << 20;
/// Maximum files with several names of which not all were found, at a source. Each takes about 40
/// bytes there, and about 150 bytes and its path at the sink. Further ones become files of their own.
pub const MAX_LINK_GROUPS: usize = 4 << 20;
/// Maximum bytes of the paths of their first names.
pub const MAX_LINK_PATHS: u64 = 512 << 20;
/// Number of complete files that triggers a sync.
pub(crate) const SYNC_FILES: usize = 16 << 10;
/// Number of verified bytes that triggers a sync.
pub(crate) const SYNC_BYTES: u64 = 64 << 20;
/// Maximum time between the verification of bytes and the start of their sync.
pub(crate) const SYNC_EVERY: Duration = Duration::from_secs(1);
/// Maximum bytes that a sink has requested and not verified: about twice the product of 50 Gbit/s
/// and 300 ms.
pub(crate) const NEED_WINDOW: u64 = 4 << 30;
/// Maximum chunks in the same state; limits the memory for plans of many small files.
pub(crate) const NEED_CHUNKS: usize = 1024;
/// Maximum ranges in one message.
pub(crate) const MAX_RANGES: usize = 8192;
/// Maximum digests in one message.
pub(crate) const MAX_DIGESTS: usize = 8192;
/// Maximum journalled chunks that are read back at once.
pub(crate) const REHASH_WINDOW: usize = 16;
/// Maximum entries in one `Stored`.
pub(crate) const MAX_STORED: usize = 8192;
/// Maximum pieces of old versions that are hashed at once.
pub(crate) const OLD_WINDOW: usize = 16;
/// Maximum pieces that a sink may ask a source to compare before the source has answered. A sink
/// requests at most [`NEED_CHUNKS`] at once.
pub(crate) const MAX_COMPARED: usize = 2 * NEED_CHUNKS;
/// Maximum files whose root digests are compared at once.
pub(crate) const ROOTS_WINDOW: usize = 4096;
/// Number of failed verifications of a piece after which its entry fails.
pub(crate) const MAX_TRIES: u8 = 3;
/// Maximum files in one `Commit`.
pub(crate) const COMMIT_BATCH: usize = 512;
/// Maximum entries in one `Settle`.
pub(crate) const SETTLE_BATCH: usize = 1024;
/// Maximum failures of single entries that are kept with their paths.
pub(crate) const MAX_FAILED: usize = 100;
/// Maximum sources without a file that a source lists in `ManifestEnd`.
pub(crate) const MAX_EMPTY_SOURCES: usize = 4096;
/// Maximum bytes of a failure's text from a peer.
pub const MAX_TEXT: usize = 512;
/// Maximum paths of released entries that a source keeps, for failures that the sink reports later.
pub(crate) const MAX_RECENT: usize = 16 << 10;
/// Maximum time that entries wait for more entries in a segment.
pub(crate) const SEGMENT_DELAY: Duration = Duration::from_millis(20);
/// Maximum time that verified ranges wait for more ranges in a message.
pub(crate) const VERIFIED_DELAY: Duration = Duration::from_millis(30);
/// Maximum time between a change of a sink's progress and its report.
pub(crate) const PROGRESS_EVERY: Duration = Duration::from_millis(500);

/// Bytes assigned to a new transport.
pub const WINDOW_START: ByteCount = ByteCount(64 << 20);
/// Maximum bytes assigned to any transport.
pub const WINDOW_MAX: ByteCount = ByteCount(1 << 30);
/// Bytes assigned to a transport that stalled and is tried again.
pub(crate) const WINDOW_PROBE: u64 = 4 << 20;
/// A transport has at least this much of its measured rate assigned.
pub(crate) const WINDOW_SPAN: Duration = Duration::from_secs(2);
/// Maximum range in one `Assign`.
pub(crate) const MAX_GRANT: u64 = 32 << 20;
/// A transport receives more ranges when at least this much of its window is free. With room for a
/// whole chunk, a range can always end at a chunk boundary.
pub(crate) const GRANT_ROOM: u64 = CHUNK.get();
/// Minimum bytes that a transport must have left for a range to be stolen from it.
pub(crate) const MIN_STEAL: u64 = 512 << 10;
/// A transport that placed nothing for this time loses its ranges to another transport.
pub const STALL_AFTER: Duration = Duration::from_secs(3);
/// The same for a transport that never placed anything, while another one works: its path may carry
/// packets in one direction only.
pub const FIRST_WITHIN: Duration = Duration::from_millis(1_500);
/// How long a transport is not used after stalls in a row.
pub(crate) const STALL_PENALTY: Backoff =
    Backoff::new(Duration::from_secs(10), Duration::from_secs(80));
/// How long a transport that was policed again stays behind the others.
pub(crate) const POLICED_PENALTY: Backoff =
    Backoff::new(Duration::from_secs(60), Duration::from_secs(960));
/// How long a transport must be busy before its rate is compared.
pub(crate) const POLICED_AFTER: Duration = Duration::from_secs(5);
/// Interval of the checks of rates and stalls.
pub(crate) const HEALTH_EVERY: Duration = Duration::from_millis(250);

/// Bytes of path, link target and attributes that are held while this entry is held.
pub(crate) fn path_bytes(entry: &Entry) -> u64 {
    let target = match &entry.kind {
        EntryKind::Symlink { target } => target.len(),
        EntryKind::Directory | EntryKind::File { .. } | EntryKind::Stream => 0,
    };
    (entry.path.as_bytes().len() + target + entry.extras.bytes()) as u64
}

//! The request and the reports of `clean`.

use std::path::PathBuf;

pub use packtrain_disk::LeftoverKind;
use packtrain_units::ByteCount;

/// The request to remove what interrupted transfers left.
#[derive(Clone, Debug)]
pub struct CleanRequest {
    /// The directory, and everything below it.
    pub place: PathBuf,
    /// Only report.
    pub dry_run: bool,
    /// Remove files of other users too.
    pub all_owners: bool,
}

/// A file that a transfer left.
#[derive(Clone, Debug)]
pub struct Leftover {
    /// Its path, beginning with the place as it was given.
    pub path: Vec<u8>,
    /// Its kind.
    pub kind: LeftoverKind,
    /// Its allocated space.
    pub bytes: ByteCount,
    /// The result for this file.
    pub status: LeftoverStatus,
}

/// The result for a file that a transfer left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeftoverStatus {
    /// It was removed, or would be.
    Removed,
    /// A running transfer uses it.
    InUse {
        /// The description of that transfer.
        who: String,
    },
    /// It belongs to another user.
    Foreign {
        /// The owner.
        uid: u32,
    },
    /// It could not be removed, or it is unknown whether it is in use.
    Failed {
        /// The reason.
        why: String,
    },
}

/// The totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanSummary {
    /// Files that were removed, or would be.
    pub removed: u64,
    /// Their allocated space.
    pub bytes: ByteCount,
    /// Files of running transfers.
    pub in_use: u64,
    /// Files of other users.
    pub foreign: u64,
    /// Files and directories that failed.
    pub failed: u64,
}

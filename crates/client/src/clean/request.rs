//! What `clean` is asked and what it tells.

use std::path::PathBuf;

pub use packtrain_disk::LeftoverKind;
use packtrain_units::ByteCount;

/// Removes what interrupted transfers left.
#[derive(Clone, Debug)]
pub struct CleanRequest {
    /// The directory, and everything below it.
    pub place: PathBuf,
    /// Only tell.
    pub dry_run: bool,
    /// Files of other users too.
    pub all_owners: bool,
}

/// One file that a transfer left.
#[derive(Clone, Debug)]
pub struct Leftover {
    /// Where it is, beginning with the place as it was named.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: LeftoverKind,
    /// The space it takes.
    pub bytes: ByteCount,
    /// What became of it.
    pub fate: LeftoverFate,
}

/// What became of one file that a transfer left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeftoverFate {
    /// It is removed, or would be.
    Removed,
    /// A transfer that runs has it.
    InUse {
        /// What that transfer says of itself.
        who: String,
    },
    /// It belongs to another user.
    Foreign {
        /// That user.
        uid: u32,
    },
    /// It could not be removed, or nobody can tell whether it is in use.
    Failed {
        /// Why.
        why: String,
    },
}

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanSummary {
    /// Files removed, or that would be.
    pub removed: u64,
    /// The space they took.
    pub bytes: ByteCount,
    /// Files of transfers that run.
    pub in_use: u64,
    /// Files of other users.
    pub foreign: u64,
    /// Files and directories that failed.
    pub failed: u64,
}

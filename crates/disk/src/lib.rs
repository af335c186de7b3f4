//! Disk access: directories that are held open and confined by the kernel, reads and writes at
//! offsets, the journal's file, the walk over sources.
//!
//! A path from a peer is never trusted: every [`RelPath`](packtrain_object::RelPath) is resolved
//! beneath a [`Root`], and neither `..` nor a symbolic link leads out of it. Names are bytes. All
//! calls block, so they belong on reader, writer and walk threads.

pub mod glob;
pub mod journal;
pub mod lock;
pub mod read;
pub mod walk;
pub mod write;

mod acls;
mod attributes;
mod backup;
mod beneath;
mod file_systems;
mod fresh;
mod fresh_state;
mod hard_link;
mod leftover;
mod meta;
mod mode;
mod own;
mod parents;
mod remove;
mod root;
mod spelling;
mod stat;
mod sync;
mod temp;
mod temp_name;
mod temp_state;
mod trouble;

pub use acls::Listed;
pub use attributes::Attributed;
pub use backup::Kept;
pub use hard_link::HardLinked;
pub use journal::JournalFile;
pub use leftover::{LeftoverKind, LeftoverName};
pub use lock::{Lock, LockError};
pub use meta::Meta;
pub use read::{ReadError, SmallSource, SourceFile};
pub use remove::RemovalDir;
pub use root::{DirItem, Follow, Root};
pub use spelling::Spelling;
pub use stat::{Kind, Stat};
pub use sync::Space;
pub use trouble::{Trouble, classify};
pub use walk::{WalkFailure, WalkItem, WalkOptions, Walker};

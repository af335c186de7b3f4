//! The object of a transfer: the data structures that both ends must agree on, without I/O.
//!
//! Files are laid out in one offset space ([`Layout`]) in the order of the [`manifest`], a stream
//! of bounded segments. The space is divided into chunks of [`CHUNK`] bytes. A chunk belongs to one
//! big file or to a run of small ones, and the part of a file in one chunk is a [`Piece`]. A
//! piece's [`Digest`] is its BLAKE3 subtree, so the digests of a file's pieces give the digest that
//! `b3sum` prints. The [`journal`] records durable data per file, not per offset, so that unchanged
//! files of a tree that changed between two runs remain valid.
//!
//! ```
//! use packtrain_object::{CHUNK, ChunkIndex, EntryId, EntryKind, Layout, digest};
//!
//! let file = vec![7u8; CHUNK.get() as usize + 5];
//! let mut layout = Layout::new();
//! layout.push(EntryId(0), &EntryKind::File { size: file.len() as u64 });
//! let chunks = [ChunkIndex(0), ChunkIndex(1)].map(|chunk| {
//!     let piece = &layout.pieces(chunk)[0];
//!     let at = piece.file_offset as usize;
//!     let bytes = &file[at..at + piece.size().get() as usize];
//!     digest::piece(piece.file_offset, piece.whole, bytes)
//! });
//! assert_eq!(digest::file_root(file.len() as u64, &chunks).0, *blake3::hash(&file).as_bytes());
//! ```

pub mod acl;
pub mod attributes;
pub mod digest;
pub mod filter;
pub mod journal;
pub mod layout;
pub mod manifest;

mod chunk;
mod entry;
mod path;
mod source_name;
mod wire;

pub use acl::Acls;
pub use attributes::{Attributes, AttributesError};
pub use chunk::{BLOCK, CHUNK, ChunkIndex, EntryId, SPACE_END};
pub use digest::{Digest, FileHasher};
pub use entry::{Entry, EntryKind, Extras, HardLink, Mtime, NO_MODE};
pub use filter::per_directory::TreeFilter;
pub use filter::{FilterError, Filters, NamePattern};
pub use journal::{ChunkState, FileKey, FileState, JournalError, JournalState, Record, Replay};
pub use layout::{Layout, LayoutError, Piece};
pub use manifest::{
    MAX_SEGMENT_BYTES, MAX_SEGMENT_ENTRIES, ManifestError, decode_segment, encode_segment,
};
pub use path::{MAX_PATH, PATH_TAKEN, PathError, RelPath, directories_above};
pub use source_name::SourceName;

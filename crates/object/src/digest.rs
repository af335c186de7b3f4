//! Digests of pieces that combine to the digest of the file.
//!
//! BLAKE3 is a binary tree over 1 KiB leaves whose left subtrees are complete (BLAKE3 paper,
//! section 2.1). Chunks and blocks are powers of two, so each full one is a subtree of its
//! file's tree and its chaining value can be computed alone, given its position in the file. Only
//! the root of the tree is hashed differently: a piece that is the whole file has the file's own
//! digest, any other piece the non-root chaining value of its subtree.

use std::fmt;
use std::str::FromStr;

use blake3::Hasher;
use blake3::hazmat::{HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};
use serde::{Deserialize, Serialize};

use crate::chunk::{BLOCK_LEN, CHUNK_LEN};

mod file;

pub use file::FileHasher;

/// A BLAKE3 digest or chaining value. Serialises as 32 raw bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Digest(pub [u8; 32]);

/// The digest of one piece of a file: its bytes start at `file_offset` (a multiple of
/// [`crate::CHUNK`]) and are at most one chunk. `whole` means that they are the entire file, as in
/// [`crate::Piece::whole`].
///
/// # Panics
/// If the offset is not on the grid or there is more than a chunk; the layout guarantees both.
pub fn piece(file_offset: u64, whole: bool, bytes: &[u8]) -> Digest {
    assert!(file_offset.is_multiple_of(CHUNK_LEN) && bytes.len() as u64 <= CHUNK_LEN);
    if whole { root_of(bytes) } else { subtree(file_offset, bytes) }
}

/// The chaining value of one block: at most [`crate::BLOCK`] bytes at a multiple of it. For the
/// only block of a whole file use [`only_block`].
///
/// # Panics
/// If the offset is not on the grid or there is more than a block.
pub fn block(file_offset: u64, bytes: &[u8]) -> Digest {
    assert!(file_offset.is_multiple_of(BLOCK_LEN) && bytes.len() as u64 <= BLOCK_LEN);
    subtree(file_offset, bytes)
}

/// The digest of a block that is a whole file, for [`piece_from_blocks`].
pub fn only_block(bytes: &[u8]) -> Digest {
    root_of(bytes)
}

/// The digest of a piece from those of its blocks, in order. A piece of one block has that block's
/// digest: made by [`only_block`] if `whole`, else by [`block`]. `None` if the number of blocks
/// does not match `piece_len` bytes.
pub fn piece_from_blocks(whole: bool, blocks: &[Digest], piece_len: u64) -> Option<Digest> {
    if piece_len > CHUNK_LEN || blocks.len() as u64 != piece_len.div_ceil(BLOCK_LEN) {
        return None;
    }
    Some(merge(blocks, whole))
}

/// The digest of a file of `size` bytes (as `b3sum` prints it) from those of its pieces, in order.
///
/// # Panics
/// If the number of digests does not match `size` bytes.
pub fn file_root(size: u64, chunks: &[Digest]) -> Digest {
    assert!(chunks.len() as u64 == size.div_ceil(CHUNK_LEN), "one digest a chunk");
    merge(chunks, true)
}

/// The digest of a file in memory.
pub fn root_of(bytes: &[u8]) -> Digest {
    Digest(*blake3::hash(bytes).as_bytes())
}

/// The digest of a piece of `len` zero bytes that is not a whole file.
///
/// # Panics
/// As [`piece`].
pub fn zeros(file_offset: u64, len: u64) -> Digest {
    assert!(file_offset.is_multiple_of(CHUNK_LEN) && len <= CHUNK_LEN);
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    let mut hasher = at(file_offset);
    let mut left = len;
    while left > 0 {
        let now = left.min(ZEROS.len() as u64);
        hasher.update(&ZEROS[..now as usize]);
        left -= now;
    }
    finish(&hasher, len)
}

/// A hasher for a subtree that starts at `file_offset`.
fn at(file_offset: u64) -> Hasher {
    let mut hasher = Hasher::new();
    hasher.set_input_offset(file_offset);
    hasher
}

/// The subtree's chaining value. Zero bytes have none; they get the digest of the empty input.
fn finish(hasher: &Hasher, len: u64) -> Digest {
    if len == 0 { root_of(&[]) } else { Digest(hasher.finalize_non_root()) }
}

fn subtree(file_offset: u64, bytes: &[u8]) -> Digest {
    finish(at(file_offset).update(bytes), bytes.len() as u64)
}

/// Merges the digests of equal subtrees, of which the last may be short. A single digest is
/// returned unchanged.
fn merge(parts: &[Digest], root: bool) -> Digest {
    match parts {
        [] => root_of(&[]),
        [only] => *only,
        _ => {
            // The largest power of two below the count: the left subtree is complete.
            let left = parts.len().div_ceil(2).next_power_of_two();
            let (left, right) = parts.split_at(left);
            pair(merge(left, false), merge(right, false), root)
        }
    }
}

fn pair(left: Digest, right: Digest, root: bool) -> Digest {
    if root {
        Digest(*merge_subtrees_root(&left.0, &right.0, Mode::Hash).as_bytes())
    } else {
        Digest(merge_subtrees_non_root(&left.0, &right.0, Mode::Hash))
    }
}

/// Text that is not 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a digest is 64 hexadecimal digits")]
pub struct DigestError;

impl FromStr for Digest {
    type Err = DigestError;
    fn from_str(text: &str) -> Result<Self, DigestError> {
        blake3::Hash::from_hex(text).map(|h| Self(*h.as_bytes())).map_err(|_| DigestError)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("..")
    }
}

#[cfg(test)]
mod tests;

//! Computes the digest of a file while it is read, chunk by chunk.

use blake3::Hasher;
use blake3::hazmat::HasherExt;

use super::{Digest, at, pair, root_of};
use crate::chunk::CHUNK_LEN;

/// Computes a file's root digest from consecutive bytes, from digests of its pieces, or from a
/// mixture of both. Needs O(log n) memory; the size need not be known.
#[derive(Clone, Debug, Default)]
pub struct FileHasher {
    /// Roots of complete subtrees, largest first. The last one is not merged until more data
    /// follows, because it may be a child of the root.
    stack: Vec<Digest>,
    /// Number of chunks on the stack.
    chunks: u64,
    /// The digest of the file if its first chunk is the only one.
    alone: Option<Digest>,
    /// The current chunk, and the bytes of it hashed so far.
    current: Option<(Hasher, u64)>,
}

impl FileHasher {
    /// A hasher without input.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next bytes; slices may be split anywhere.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (mut hasher, had) =
                self.current.take().unwrap_or_else(|| (at(self.chunks * CHUNK_LEN), 0));
            let now = bytes.len().min((CHUNK_LEN - had) as usize);
            hasher.update(&bytes[..now]);
            bytes = &bytes[now..];
            self.current = Some((hasher, had + now as u64));
            if had + now as u64 == CHUNK_LEN {
                self.close();
            }
        }
    }

    /// Adds a chunk by its piece's digest ([`super::piece`]). If the first chunk is the last one,
    /// its piece must be `whole`: the root of a one-chunk stream cannot be computed from its
    /// digest.
    ///
    /// # Panics
    /// If [`FileHasher::update`] stopped inside a chunk.
    pub fn push(&mut self, chunk: Digest) {
        assert!(self.current.is_none(), "a digest stands for a whole chunk");
        if self.chunks == 0 {
            self.alone = Some(chunk);
        }
        self.add(chunk);
    }

    /// The digest of what was added so far, as if the file ended here.
    pub fn root(&self) -> Digest {
        let mut all = self.clone();
        all.close();
        if let (Some(alone), 1) = (all.alone, all.chunks) {
            return alone;
        }
        let Some(mut right) = all.stack.pop() else { return root_of(&[]) };
        while let Some(left) = all.stack.pop() {
            right = pair(left, right, all.stack.is_empty());
        }
        right
    }

    /// Ends the current chunk.
    fn close(&mut self) {
        if let Some((hasher, _)) = self.current.take() {
            if self.chunks == 0 {
                self.alone = Some(Digest(*hasher.finalize().as_bytes()));
            }
            self.add(Digest(hasher.finalize_non_root()));
        }
    }

    /// BLAKE3 paper, section 5.1.2: after n chunks the stack holds one subtree for each bit set
    /// in n; merging waits until a further chunk shows that the result is not the root.
    fn add(&mut self, chunk: Digest) {
        while self.stack.len() > self.chunks.count_ones() as usize {
            if let (Some(right), Some(left)) = (self.stack.pop(), self.stack.pop()) {
                self.stack.push(pair(left, right, false));
            }
        }
        self.stack.push(chunk);
        self.chunks += 1;
    }
}

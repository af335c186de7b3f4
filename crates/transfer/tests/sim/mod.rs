//! Both ends of a transfer over simulated disks, pipes and transports, all from one seed.
//!
//! Contents are symbolic: the content of a file is a number, which gives each of its chunks a number
//! ([`chunk_content`]), and the digest of a piece is a function of that number and the position of
//! the piece. So large trees cost little to move, and a wrong byte shows as a wrong number.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

pub mod disk;
pub mod run;
pub mod tree;

use packtrain_object::{CHUNK, Digest};

/// The number of a chunk of a file with this content. The low byte of the content is a set of bits,
/// of which each chunk has one: a new content with another bit changes every eighth chunk.
pub fn chunk_content(content: u64, index: u64) -> u64 {
    (content & !0xff) | ((content >> (index % 8)) & 1) << 4
}

/// The numbers of all chunks of a file.
pub fn chunk_contents(content: u64, size: u64) -> Vec<u64> {
    (0..size.div_ceil(CHUNK.get())).map(|index| chunk_content(content, index)).collect()
}

/// The digest of a piece whose chunk has this number.
pub fn digest(content: u64, file_offset: u64, len: u64) -> Digest {
    let mut bytes = [0; 32];
    let mut state = content ^ file_offset.rotate_left(17) ^ len.rotate_left(41);
    for word in bytes.chunks_mut(8) {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes());
    }
    Digest(bytes)
}

/// The digest of a whole file whose chunks have these numbers, as for `HashFile` and `HashTarget`.
pub fn root(contents: &[u64], size: u64) -> Digest {
    let all = contents.iter().fold(0u64, |all, content| {
        all.rotate_left(9).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ content
    });
    digest(all, u64::MAX, size)
}

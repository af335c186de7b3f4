//! Both ends of a transfer over simulated disks, pipes and transports, all from one seed.
//!
//! Contents are symbolic: the content of a file is a number, and the digest of a piece is a
//! function of that number and the position of the piece. So large trees cost little to move, and a
//! wrong byte shows as a wrong number.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

pub mod disk;
pub mod run;
pub mod tree;

use packtrain_object::Digest;

/// The digest of a piece of a file with this content.
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

/// The digest of a whole file, as for `HashFile` and `HashTarget`.
pub fn root(content: u64, size: u64) -> Digest {
    digest(content, u64::MAX, size)
}

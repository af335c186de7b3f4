use packtrain_units::Rng;
use proptest::prelude::*;

use super::*;

const B: u64 = BLOCK_LEN;
const C: u64 = CHUNK_LEN;

/// Every size at which the shape of the tree changes, and its neighbours.
const SIZES: &[u64] = &[
    0,
    1,
    63,
    64,
    65,
    1023,
    1024,
    1025,
    2048,
    2049,
    B - 1,
    B,
    B + 1,
    2 * B,
    3 * B - 7,
    C - B - 1,
    C - 1,
    C,
    C + 1,
    C + 1024,
    C + B + 3,
    2 * C - 1,
    2 * C,
    2 * C + 1,
    3 * C,
    3 * C + 5,
    4 * C,
    5 * C + 1025,
    7 * C + B,
];

fn bytes(len: u64) -> Vec<u8> {
    let mut rng = Rng::new(len);
    let mut out: Vec<u8> =
        (0..len.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
    out.truncate(len as usize);
    out
}

fn pieces(data: &[u8]) -> Vec<Digest> {
    let whole = data.len() as u64 <= C;
    data.chunks(C as usize)
        .enumerate()
        .map(|(i, chunk)| piece(i as u64 * C, whole, chunk))
        .collect()
}

fn b3sum(data: &[u8]) -> Digest {
    Digest(*blake3::hash(data).as_bytes())
}

#[test]
fn the_root_of_the_pieces_is_what_b3sum_prints() {
    for &size in SIZES {
        let data = bytes(size);
        let digests = pieces(&data);
        assert_eq!(file_root(size, &digests), b3sum(&data), "{size}");
        let mut hasher = FileHasher::new();
        digests.iter().for_each(|d| hasher.push(*d));
        assert_eq!(hasher.root(), b3sum(&data), "{size}");
    }
}

#[test]
fn the_digests_of_its_blocks_give_the_piece() {
    for &size in SIZES.iter().filter(|s| **s > 0) {
        let data = bytes(size);
        let (whole, expected) = (size <= C, pieces(&data));
        for (i, chunk) in data.chunks(C as usize).enumerate() {
            let len = chunk.len() as u64;
            let at = |k: usize| i as u64 * C + k as u64 * B;
            let mut blocks: Vec<Digest> =
                chunk.chunks(B as usize).enumerate().map(|(k, b)| block(at(k), b)).collect();
            if whole && len <= B {
                blocks = vec![only_block(chunk)];
            }
            assert_eq!(piece_from_blocks(whole, &blocks, len), Some(expected[i]), "{size} {i}");
            assert_eq!(piece_from_blocks(whole, &blocks, len + B), None);
            assert_eq!(piece_from_blocks(whole, &blocks[1..], len), None);
        }
    }
    assert_eq!(piece_from_blocks(false, &[root_of(&[]); 17], 17 * B), None);
}

#[test]
fn consecutive_slices_give_the_root() {
    for &size in SIZES {
        let data = bytes(size);
        for step in [977, 65_536, B as usize, C as usize, 3 * C as usize + 1] {
            if data.len() / step > 10_000 {
                continue;
            }
            let mut hasher = FileHasher::new();
            data.chunks(step).for_each(|slice| hasher.update(slice));
            assert_eq!(hasher.root(), b3sum(&data), "{size} by {step}");
        }
    }
}

#[test]
fn bytes_and_digests_take_turns() {
    let data = bytes(5 * C + 77);
    let digests = pieces(&data);
    let mut hasher = FileHasher::new();
    for (i, chunk) in data.chunks(C as usize).enumerate() {
        if i % 2 == 0 {
            hasher.update(chunk)
        } else {
            hasher.push(digests[i])
        }
        let so_far = ((i as u64 + 1) * C).min(data.len() as u64);
        assert_eq!(hasher.root(), b3sum(&data[..so_far as usize]), "the root may be asked early");
    }
}

#[test]
fn a_stream_of_an_unknown_number_of_chunks_needs_no_more_than_a_stack() {
    let mut hasher = FileHasher::new();
    let digests: Vec<Digest> = (0..1000u32).map(|i| b3sum(&i.to_le_bytes())).collect();
    for (n, digest) in digests.iter().enumerate() {
        hasher.push(*digest);
        assert_eq!(hasher.root(), file_root((n as u64 + 1) * C, &digests[..=n]));
    }
}

#[test]
fn zeros_hash_as_zeros() {
    let data = vec![0u8; C as usize];
    for len in [1, 1024, B - 1, B, B + 1, C - 1, C] {
        let part = &data[..len as usize];
        for offset in [0, C, 6 * C, 1 << 50] {
            assert_eq!(zeros(offset, len), piece(offset, false, part));
        }
    }
}

#[test]
fn a_piece_is_bound_to_its_place() {
    let data = bytes(C);
    assert_ne!(piece(0, false, &data), piece(C, false, &data));
    assert_ne!(piece(0, false, &data), piece(0, true, &data));
    assert_eq!(piece(C, false, &[]), b3sum(&[]), "no bytes do not panic");
}

#[test]
fn digests_print_as_b3sum_does_and_read_back() {
    // The digest of no bytes, from the BLAKE3 test vectors.
    let hex = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
    let digest = root_of(&[]);
    assert_eq!(digest.to_string(), hex);
    assert_eq!(hex.parse(), Ok(digest));
    assert_eq!("af13".parse::<Digest>(), Err(DigestError));
    assert_eq!("é".repeat(32).parse::<Digest>(), Err(DigestError));
    let wire = postcard::to_stdvec(&digest).unwrap();
    assert_eq!(wire, digest.0);
    assert_eq!(postcard::from_bytes::<Digest>(&wire), Ok(digest));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_size_and_any_cuts(
        size in 0..4 * C,
        cuts in prop::collection::vec(1..3 * B as usize, 1..8),
    ) {
        let data = bytes(size);
        let mut hasher = FileHasher::new();
        let (mut rest, mut cuts) = (&data[..], cuts.iter().cycle());
        while !rest.is_empty() {
            let (now, after) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
            hasher.update(now);
            rest = after;
        }
        prop_assert_eq!(hasher.root(), b3sum(&data));
        prop_assert_eq!(file_root(size, &pieces(&data)), b3sum(&data));
    }
}

//! Bodies of fuzz targets for private parsers of this crate, and their seeds.
//!
//! Compiled only with the feature `fuzzing`. A body takes any bytes and must return: a panic, a
//! hang or unbounded memory is a finding.

use crate as perf;

/// A message of a perf test: what is parsed and written is parsed to the same again.
pub fn perf_word(data: &[u8]) {
    let Some(written) = perf::rewrite_message(data) else { return };
    assert!(written.len() <= data.len());
    assert_eq!(perf::rewrite_message(&written), Some(written));
}

/// Seeds: one message of each kind.
pub fn perf_word_seeds() -> Vec<Vec<u8>> {
    vec![
        vec![0, 2, 3, 1, 2, 3, 0],
        vec![1, 0x80, 0x80, 4, 7, 9, 1],
        vec![2, 5, 1, 0xff, 0xff, 3, 7, 9],
        vec![2, 0, 0, 0, 0],
    ]
}

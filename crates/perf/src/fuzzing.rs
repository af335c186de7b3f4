//! Bodies of fuzz targets for parsers that are private to this crate, and inputs to start from.
//!
//! Compiled with the feature `fuzzing` alone. A body takes any bytes and must return: a panic, a hang
//! or memory without bound is a finding.

use crate as perf;

/// A word between the two ends of a perf test: what is read is written and read again the same.
pub fn perf_word(data: &[u8]) {
    let Some(written) = perf::rewrite_word(data) else { return };
    assert!(written.len() <= data.len());
    assert_eq!(perf::rewrite_word(&written), Some(written));
}

/// One word of each kind.
pub fn perf_word_seeds() -> Vec<Vec<u8>> {
    vec![
        vec![0, 2, 3, 1, 2, 3, 0],
        vec![1, 0x80, 0x80, 4, 7, 9, 1],
        vec![2, 5, 1, 0xff, 0xff, 3, 7, 9],
        vec![2, 0, 0, 0, 0],
    ]
}

//! Entropy of the operating system: for keys through the cryptographic library.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Fills `N` bytes with entropy that is suitable for keys.
///
/// # Panics
/// If the operating system gives no entropy, because nothing is safe then.
#[allow(clippy::disallowed_methods)]
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut out = [0; N];
    aws_lc_rs::rand::fill(&mut out).expect("the operating system gives entropy");
    out
}

/// A seed for generators that are not used for keys. It comes from the keys of the standard library's
/// hash tables, because the first use of the cryptographic library in a process takes tens of
/// milliseconds, in which it measures jitter of the processor.
pub fn seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn seeds_of_one_thread_and_of_several_differ() {
        let draw = || (0..100).map(|_| seed()).collect::<Vec<_>>();
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(draw)).collect();
        let drawn = threads.into_iter().flat_map(|thread| thread.join().unwrap());
        let seeds: HashSet<u64> = drawn.collect();
        assert_eq!(seeds.len(), 400);
    }
}

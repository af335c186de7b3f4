//! Entropy of the operating system, through the cryptographic library.

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

/// A seed for generators that are not used for keys.
pub fn seed() -> u64 {
    u64::from_le_bytes(bytes())
}

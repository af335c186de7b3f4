//! The source of entropy: the operating system's, through the cryptographic library.

/// Fills `N` bytes with entropy fit for keys.
///
/// # Panics
/// When the operating system gives no entropy, which leaves nothing safe to do.
#[allow(clippy::disallowed_methods)]
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut out = [0; N];
    aws_lc_rs::rand::fill(&mut out).expect("the operating system gives entropy");
    out
}

/// A seed for the generators that are not for keys.
pub fn seed() -> u64 {
    u64::from_le_bytes(bytes())
}

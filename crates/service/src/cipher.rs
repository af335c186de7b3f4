//! The cipher that is fastest on this machine.

use packtrain_proto::Suite;

/// Whether this processor has instructions for AES.
#[cfg(target_arch = "x86_64")]
pub fn has_aes() -> bool {
    std::arch::is_x86_feature_detected!("aes")
}

/// Whether this processor has instructions for AES.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn has_aes() -> bool {
    cfg!(target_arch = "aarch64")
}

/// The cipher suite that this machine seals fastest with.
pub fn suite() -> Suite {
    if has_aes() { Suite::Aes128Gcm } else { Suite::ChaCha20Poly1305 }
}

//! Paths as text.

/// A path as text on one line. Bytes that are not UTF-8 and control characters are escaped.
pub fn show(path: &[u8]) -> String {
    packtrain_units::escape::name(path)
}

//! Paths for people.

/// A path as text on one line: what is not UTF-8 or would upset a terminal is escaped.
pub fn show(path: &[u8]) -> String {
    packtrain_units::escape::name(path)
}

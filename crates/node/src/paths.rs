//! Paths for people.

/// A path as text: what is not UTF-8 or would upset a terminal is escaped.
pub(crate) fn show(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(path);
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

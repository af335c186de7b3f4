//! Escapes foreign names and texts for a terminal or a log line, so that they cannot end the line,
//! move the cursor or change the order of characters.

use std::fmt::Write as _;

/// Whether a character must not be printed to a terminal: control characters (C0, DEL, C1), the
/// controls of bidirectional text (UAX 9), line and paragraph separators, and invisible characters
/// (byte order mark, interlinear marks, tags).
pub fn is_hostile(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            | '\u{2028}' | '\u{2029}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// A text on one line. Escapes are those of Rust: `\n`, `\u{202e}`.
pub fn text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    push(&mut out, text);
    out
}

/// A name of any bytes: those that are not UTF-8 are printed as `\xff`.
pub fn name(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        push(&mut out, chunk.valid());
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

/// Bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn push(out: &mut String, text: &str) {
    for letter in text.chars() {
        if is_hostile(letter) {
            out.extend(letter.escape_default());
        } else {
            out.push(letter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_line_in_the_order_of_its_letters() {
        assert_eq!(name("a/\u{f6} b".as_bytes()), "a/\u{f6} b");
        assert_eq!(name(b"\x1b[2Jx\xff\r"), "\\u{1b}[2Jx\\xff\\r");
        assert_eq!(text("one\nmoved two"), "one\\nmoved two");
        assert_eq!(text("gpj.\u{202e}exe"), "gpj.\\u{202e}exe");
        assert_eq!(text("a\u{9b}5m\u{2028}b\u{85}"), "a\\u{9b}5m\\u{2028}b\\u{85}");
        // Joiners belong to words of several scripts.
        assert_eq!(text("\u{645}\u{200c}\u{6cc}"), "\u{645}\u{200c}\u{6cc}");
        assert_ne!(name(b"x\xff"), name(b"x\xfe"));
        assert_eq!(hex(b"\x00\x0a\xff"), "000aff");
    }
}

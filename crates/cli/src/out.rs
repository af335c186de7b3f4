//! What people and programs are told. Data and JSON go to stdout, everything else to stderr.

pub(crate) mod clean;
pub(crate) mod date;
pub(crate) mod deposit;
pub(crate) mod depot;
pub(crate) mod diagnose;
pub(crate) mod done;
pub(crate) mod forecast;
pub(crate) mod history;
pub(crate) mod log;
pub(crate) mod loss;
pub(crate) mod perf;
pub(crate) mod predict;
pub(crate) mod progress;
pub(crate) mod quote;
pub(crate) mod route;
pub(crate) mod sim;
pub(crate) mod streams;
pub(crate) mod summary;
pub(crate) mod teller;
pub(crate) mod ticker;

use std::io::{self, Write as _};
use std::sync::OnceLock;

use serde::Serialize;

/// Why standard output does not take what it is given.
static LOST: OnceLock<io::Error> = OnceLock::new();

/// One line on stdout.
pub(crate) fn line(text: &str) {
    bytes(format!("{text}\n").as_bytes());
}

/// These bytes on stdout. A reader that went away is no failure of ours; a full disk is one, which
/// `lost` tells at the end.
pub(crate) fn bytes(bytes: &[u8]) {
    let mut stdout = io::stdout().lock();
    if let Err(error) = stdout.write_all(bytes).and_then(|()| stdout.flush())
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        let _ = LOST.set(error);
    }
}

/// Why something said on stdout did not get there, if so.
pub(crate) fn lost() -> Option<&'static io::Error> {
    LOST.get()
}

/// One JSON object on a line of stdout.
pub(crate) fn json_line(event: &impl Serialize) {
    if let Ok(text) = serde_json::to_string(event) {
        line(&text);
    }
}

/// A path for people: what is not UTF-8 and what a terminal would obey is escaped.
pub(crate) fn shown(path: &[u8]) -> String {
    let mut text = String::new();
    for chunk in path.utf8_chunks() {
        text.push_str(&clean(chunk.valid()));
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// Text of another's making without what a terminal would obey.
pub(crate) fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' => clean.push(letter),
            letter if letter.is_control() => clean.extend(letter.escape_default()),
            letter => clean.push(letter),
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_the_terminal_that_it_would_obey() {
        assert_eq!(shown("a/ö b".as_bytes()), "a/ö b");
        assert_eq!(shown(b"\x1b[2Jx\xff\r"), "\\u{1b}[2Jx\\xff\\r");
        assert_eq!(clean("line\nline\u{9b}5m"), "line\nline\\u{9b}5m");
    }
}

//! Output for people and programs. Data and JSON go to stdout, everything else to stderr.

pub(crate) mod clean;
pub(crate) mod console;
pub(crate) mod deposit;
pub(crate) mod depot;
pub(crate) mod diagnose;
pub(crate) mod done;
pub(crate) mod forecast;
pub(crate) mod history;
pub(crate) mod log;
#[cfg(feature = "laboratory")]
pub(crate) mod loss;
pub(crate) mod object;
pub(crate) mod perf;
#[cfg(feature = "laboratory")]
pub(crate) mod predict;
pub(crate) mod progress;
pub(crate) mod quote;
pub(crate) mod route;
#[cfg(feature = "laboratory")]
pub(crate) mod sim;
pub(crate) mod streams;
pub(crate) mod summary;
pub(crate) mod terminal;
pub(crate) mod ticker;

use std::io::{self, Write as _};
use std::sync::OnceLock;

use packtrain_service::Notice;
use packtrain_units::{date, escape};
use serde::Serialize;

use object::Object;

/// The first error of a write to standard output.
static LOST: OnceLock<io::Error> = OnceLock::new();

/// Prints one line to stdout.
pub(crate) fn line(text: &str) {
    bytes(format!("{text}\n").as_bytes());
}

/// Writes bytes to stdout. A closed pipe is not a failure. Other errors, such as a full disk, are
/// kept for `stdout_error`.
pub(crate) fn bytes(bytes: &[u8]) {
    if let Err(error) = write(bytes)
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        let _ = LOST.set(error);
    }
}

/// Prints a line that exists nowhere else, such as a ticket. A closed pipe is a failure too.
pub(crate) fn only_copy(text: &str) {
    if let Err(error) = write(format!("{text}\n").as_bytes()) {
        let _ = LOST.set(error);
    }
}

fn write(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = packtrain_os::process::stdout()?.lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}

/// The first error of a write to stdout.
pub(crate) fn stdout_error() -> Option<&'static io::Error> {
    LOST.get()
}

/// Prints one JSON object as a line on stdout.
pub(crate) fn json_line(event: &impl Serialize) {
    if let Ok(text) = serde_json::to_string(event) {
        line(&text);
    }
}

/// Prints one JSON object that exists nowhere else. A closed pipe is a failure too.
pub(crate) fn json_only_copy(event: &impl Serialize) {
    if let Ok(text) = serde_json::to_string(event) {
        only_copy(&text);
    }
}

/// Prints one JSON object with the time as a line on stdout, for commands that run for hours.
pub(crate) fn event_line(event: &impl Serialize) {
    json_line(&Stamped::now(event));
}

/// The event of a notice of a service.
pub(crate) fn notice_line(notice: &Notice) {
    event_line(&Object::event("notice").with("text", &notice.text));
}

/// An event and its time.
#[derive(Serialize)]
pub(crate) struct Stamped<'a, T> {
    /// RFC 3339, UTC.
    time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    direction: Option<&'static str>,
    #[serde(flatten)]
    event: &'a T,
}

impl<'a, T: Serialize> Stamped<'a, T> {
    pub(crate) fn now(event: &'a T) -> Self {
        let time = date::rfc3339(packtrain_os::clock::wall());
        Self { time, direction: None, event }
    }

    /// An event of a transfer in this direction.
    pub(crate) fn of(direction: Option<&'static str>, event: &'a T) -> Self {
        Self { direction, ..Self::now(event) }
    }
}

/// A name for programs. JSON strings hold only text, so `bytes` has the exact bytes of a name that
/// is not UTF-8.
pub(crate) struct JsonName {
    /// The name; U+FFFD replaces bytes that are not UTF-8.
    pub(crate) text: String,
    /// The bytes in base64, only if the name is not UTF-8.
    pub(crate) bytes: Option<String>,
}

impl JsonName {
    pub(crate) fn new(name: &[u8]) -> Self {
        use base64::Engine as _;
        let encode = || base64::engine::general_purpose::STANDARD.encode(name);
        let bytes = std::str::from_utf8(name).is_err().then(encode);
        Self { text: String::from_utf8_lossy(name).into_owned(), bytes }
    }
}

/// A path for people, on one line. Bytes that are not UTF-8 and control characters are escaped.
pub(crate) fn shown(path: &[u8]) -> String {
    if path.is_empty() { "./".to_owned() } else { escape::name(path) }
}

/// A failure of a path. Its text may begin with the path, as its end spells it.
pub(crate) fn named(path: &[u8], text: &str) -> String {
    let path = shown(path);
    let own = text.split(": ").next().unwrap_or_default();
    let is_named = own
        .strip_suffix(path.as_str())
        .is_some_and(|above| above.is_empty() || above.ends_with('/') || path.starts_with('/'));
    if is_named { text.to_owned() } else { format!("{path}: {text}") }
}

/// Untrusted text on one line, without control characters.
pub(crate) fn clean(text: &str) -> String {
    escape::text(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_not_utf_8_differ_in_json() {
        let (a, b) = (JsonName::new(b"x\xff"), JsonName::new(b"x\xfe"));
        assert_eq!((&a.text, &b.text), (&"x\u{fffd}".to_owned(), &a.text));
        assert_eq!((a.bytes.as_deref(), b.bytes.as_deref()), (Some("eP8="), Some("eP4=")));
        assert_eq!(JsonName::new("\u{f6}".as_bytes()).bytes, None);
    }

    #[test]
    fn a_failure_names_its_path_once() {
        for (path, text, shown) in [
            ("a/f2", "a/f2: no such file", "a/f2: no such file"),
            ("a/f2", "/srv/a/f2: no such file", "/srv/a/f2: no such file"),
            ("/root/", "/root/: may not be read", "/root/: may not be read"),
            ("f2", "xf2: no such file", "f2: xf2: no such file"),
            ("f2", "no space is left: make room", "f2: no space is left: make room"),
            ("", "there is no directory x", "./: there is no directory x"),
        ] {
            assert_eq!(named(path.as_bytes(), text), shown);
        }
    }

    #[test]
    fn events_begin_with_the_time() {
        let event = Object::event("x").with_some("n", Some(1)).with_some("none", None::<u8>);
        let text = serde_json::to_string(&Stamped::now(&event)).expect("JSON");
        let (head, tail) = text.split_at(9 + 24);
        assert!(head.starts_with("{\"time\":\"20") && head.ends_with('Z'), "{text}");
        assert_eq!(tail, "\",\"event\":\"x\",\"n\":1}");
    }
}

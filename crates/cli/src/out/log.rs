//! `--log-file`: the transfer's events as JSON lines, whatever the screen shows.

use parking_lot::Mutex;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use serde::Serialize;

/// A file that events are appended to.
pub(crate) struct Log(Mutex<File>);

impl Log {
    /// Opens the file at `path`, made if it is not there.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(Mutex::new(OpenOptions::new().create(true).append(true).open(path)?)))
    }

    /// Appends an event. A log that cannot be written (its disk may be full) must not end the
    /// transfer that it tells of.
    pub(crate) fn event(&self, event: &impl Serialize) {
        let Ok(mut line) = serde_json::to_vec(event) else { return };
        line.push(b'\n');
        let _ = self.0.lock().write_all(&line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_appended_line_by_line() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("log");
        for n in [1, 2] {
            let log = Log::open(&path).expect("the directory can be written");
            log.event(&n);
            log.event(&"x");
        }
        let text = std::fs::read_to_string(&path).expect("it is there");
        assert_eq!(text, "1\n\"x\"\n2\n\"x\"\n");
        assert!(Log::open(dir.path()).is_err(), "a directory is no log");
    }
}

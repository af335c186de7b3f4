//! `--log-file`: the events of a transfer as JSON lines, independent of the terminal output.

use parking_lot::Mutex;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use super::Stamped;

/// A file to which events are appended.
pub(crate) struct Log {
    file: Mutex<File>,
    path: PathBuf,
    /// An event could not be written.
    failed: AtomicBool,
    direction: OnceLock<&'static str>,
}

impl Log {
    /// Opens the file at `path`, and creates it if it does not exist.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let (path, failed) = (path.to_owned(), AtomicBool::new(false));
        Ok(Self { file: Mutex::new(file), path, failed, direction: OnceLock::new() })
    }

    /// Sets the direction of the transfer, which every later event contains.
    pub(crate) fn set_direction(&self, direction: &'static str) {
        let _ = self.direction.set(direction);
    }

    /// Appends an event. A write error, such as a full disk, must not end the transfer. Returns the
    /// warning for the user at the first of them.
    #[must_use]
    pub(crate) fn event(&self, event: &impl Serialize) -> Option<String> {
        let event = Stamped::of(self.direction.get().copied(), event);
        let mut line = serde_json::to_vec(&event).ok()?;
        line.push(b'\n');
        let error = self.file.lock().write_all(&line).err()?;
        let is_first = !self.failed.swap(true, Ordering::Relaxed);
        is_first.then(|| format!("--log-file {}: {error}: the log has gaps", self.path.display()))
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
            assert_eq!(log.event(&serde_json::json!({ "n": n })), None);
            log.set_direction("out");
            assert_eq!(log.event(&serde_json::json!({ "n": n + 10 })), None);
        }
        let text = std::fs::read_to_string(&path).expect("it is there");
        let events: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let found: Vec<_> =
            events.iter().map(|e| (e["n"].as_u64(), e["direction"].as_str())).collect();
        let wanted =
            [(1, None), (11, Some("out")), (2, None), (12, Some("out"))].map(|(n, d)| (Some(n), d));
        assert_eq!(found, wanted);
        let time = |event: &serde_json::Value| event["time"].as_str().map(str::len);
        assert!(events.iter().all(|event| time(event) == Some(24)), "{text}");
        assert!(Log::open(dir.path()).is_err(), "a directory is no log");
    }

    #[test]
    fn a_full_disk_is_told_once() {
        let log = Log::open(Path::new("/dev/full")).expect("Linux has it");
        let event = serde_json::json!({ "n": 1 });
        let told = log.event(&event).expect("it is full");
        assert!(told.starts_with("--log-file /dev/full: No space left"), "{told}");
        assert_eq!(log.event(&event), None);
    }
}

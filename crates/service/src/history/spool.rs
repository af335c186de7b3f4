//! Rows as files in the state directory: rows of running transfers, and rows that wait for the
//! database.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use packtrain_history::{Ended, Row};
use packtrain_os::clock;
use packtrain_units::Duration;
use serde::{Deserialize, Serialize};

use packtrain_identity::config::Dirs;

/// Maximum number of files; the oldest are removed.
const MAX_FILES: usize = 256;
/// Maximum size of a file, in bytes.
const MAX_ROW_BYTES: u64 = 512 << 10;
/// A running transfer writes its file every second, so an older file belongs to a dead process.
const STALE_AFTER: Duration = Duration::from_secs(60);
/// Maximum number of waiting rows that one transfer stores, so that its own end is not delayed.
const MAX_FLUSHED_ROWS: usize = 32;

/// The directory of the files.
#[derive(Clone, Debug)]
pub struct Spool {
    dir: PathBuf,
}

impl Spool {
    /// The directory in the state directory; `None` without a home directory.
    pub fn in_state() -> Option<Self> {
        Dirs::from_env().ok().map(|dirs| Self::at(dirs.state.join("transfers")))
    }

    pub(crate) const fn at(dir: PathBuf) -> Self {
        Self { dir }
    }

    fn path(&self, row: &Row) -> PathBuf {
        self.dir.join(format!("{}.json", row.id))
    }

    /// Replaces the file of a row. The file is not synced: after a crash of the machine an old
    /// version is sufficient.
    pub fn write(&self, row: &Row) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        let temporary = self.dir.join(format!(".{}.tmp", row.id));
        let writer = Process::of(row.pid);
        let text = serde_json::to_vec(&Kept { row, writer }).map_err(io::Error::other)?;
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&temporary);
        let written = file.and_then(|mut file| file.write_all(&text));
        let named = written.and_then(|()| fs::rename(&temporary, self.path(row)));
        if named.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        named
    }

    /// Whether the row has a file.
    pub(crate) fn has(&self, row: &Row) -> bool {
        self.path(row).exists()
    }

    /// Removes a row's file.
    pub fn remove(&self, row: &Row) {
        // Another process may have removed it already.
        let _ = fs::remove_file(self.path(row));
    }

    /// All rows. A row whose process has vanished is marked as killed.
    pub(crate) fn all(&self) -> Vec<Row> {
        self.files().into_iter().filter_map(|path| read(&path).ok()).collect()
    }

    /// Finished rows that wait for the database.
    pub(crate) fn waiting(&self) -> Vec<Row> {
        let mut rows = self.all();
        rows.retain(|row| row.ended != Ended::Running);
        rows.truncate(MAX_FLUSHED_ROWS);
        rows
    }

    /// Removes all files except the newest.
    pub fn prune(&self) {
        let mut found: Vec<_> = self
            .files()
            .into_iter()
            .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
            .collect();
        found.sort();
        let extra = found.len().saturating_sub(MAX_FILES);
        for (_, path) in found.drain(..extra) {
            let _ = fs::remove_file(path);
        }
    }

    fn files(&self) -> Vec<PathBuf> {
        let Ok(items) = fs::read_dir(&self.dir) else { return Vec::new() };
        items
            .flatten()
            .map(|item| item.path())
            .filter(|path| path.extension().is_some_and(|end| end == "json"))
            .collect()
    }
}

fn read(path: &Path) -> io::Result<Row> {
    let file = fs::File::open(path)?;
    let written = file.metadata()?.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut text = String::new();
    file.take(MAX_ROW_BYTES).read_to_string(&mut text)?;
    let Kept { mut row, writer } =
        serde_json::from_str::<Kept<Row>>(&text).map_err(io::Error::other)?;
    if row.id.is_empty() || row.key.is_empty() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let age = clock::wall().saturating_sub(Duration::from(written));
    let gone = writer.is_some_and(|writer| writer.is_gone(row.pid));
    if row.ended == Ended::Running && (gone || age > STALE_AFTER) {
        row.ended = Ended::Killed;
    }
    Ok(row)
}

/// The content of a file.
#[derive(Serialize, Deserialize)]
struct Kept<R> {
    #[serde(flatten)]
    row: R,
    /// The process that writes the file, if /proc has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    writer: Option<Process>,
}

/// Distinguishes a process from a later one with the same id.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Process {
    /// Its start, in clock ticks since the boot of the machine (proc_pid_stat(5), field 22).
    start: u64,
    /// The PID namespace of its id.
    namespace: String,
}

impl Process {
    /// The running process with this id, in the PID namespace of this process.
    fn of(pid: u32) -> Option<Self> {
        let namespace = fs::read_link("/proc/self/ns/pid").ok()?.to_str()?.to_owned();
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The process name before these fields is in parentheses and may contain any character.
        let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
        let state = fields.next()?;
        let start = fields.nth(18)?.parse().ok()?;
        // A zombie does not run any more.
        (!state.starts_with(['Z', 'X'])).then_some(Self { start, namespace })
    }

    /// Whether the process has ended; false also if that is unknown.
    fn is_gone(&self, pid: u32) -> bool {
        let Some(here) = Self::of(std::process::id()) else { return false };
        here.namespace == self.namespace && Self::of(pid).is_none_or(|now| now != *self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_a_process_that_ended_was_killed() {
        let dir = tempfile::tempdir().expect("a directory");
        let spool = Spool::at(dir.path().to_owned());
        let mut child = std::process::Command::new("sleep").arg("600").spawn().expect("it starts");
        let row = Row {
            key: "k".into(),
            id: "1".into(),
            pid: child.id(),
            ended: Ended::Running,
            ..Row::default()
        };
        spool.write(&row).expect("written");
        assert_eq!(spool.all()[0].ended, Ended::Running);
        child.kill().expect("it ends");
        child.wait().expect("it ended");
        assert_eq!(spool.all(), [Row { ended: Ended::Killed, ..row.clone() }]);
        // Another process has this id now.
        let own = Row { pid: std::process::id(), ..row };
        spool.write(&own).expect("written");
        let path = dir.path().join("1.json");
        let text = fs::read_to_string(&path).expect("there");
        let begun = Process::of(own.pid).expect("it runs").start;
        let later = text.replace(&format!("\"start\":{begun}"), "\"start\":1");
        assert_ne!(text, later);
        fs::write(&path, later).expect("written");
        assert_eq!(spool.all()[0].ended, Ended::Killed);
    }

    #[test]
    fn files_are_written_found_and_pruned() {
        let dir = tempfile::tempdir().expect("a directory");
        let spool = Spool::at(dir.path().join("transfers"));
        for n in 0..MAX_FILES as u64 + 5 {
            let id = format!("{n:04x}");
            let row = Row { key: id.clone(), id, ended: Ended::Running, ..Row::default() };
            spool.write(&row).expect("written");
        }
        spool.prune();
        assert_eq!(spool.all().len(), MAX_FILES);
        assert!(spool.waiting().is_empty(), "they run");
        fs::write(dir.path().join("transfers/x.json"), "{\"evidence\":3}").expect("a file");
        fs::write(dir.path().join("transfers/y.json"), "{}").expect("a file");
        assert_eq!(spool.all().len(), MAX_FILES);
    }

    #[test]
    fn a_row_that_nobody_writes_any_more_was_killed() {
        let dir = tempfile::tempdir().expect("a directory");
        let spool = Spool::at(dir.path().to_owned());
        let row = Row { key: "k".into(), id: "1".into(), ended: Ended::Running, ..Row::default() };
        spool.write(&row).expect("written");
        assert_eq!(spool.all()[0].ended, Ended::Running);
        let file = fs::File::options().write(true).open(dir.path().join("1.json"));
        let long_ago = UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        file.expect("there").set_modified(long_ago).expect("set");
        assert_eq!(spool.waiting()[0].ended, Ended::Killed);
        spool.remove(&row);
        assert!(!spool.has(&row) && spool.all().is_empty());
    }
}

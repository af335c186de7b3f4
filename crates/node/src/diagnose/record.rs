//! Records of transfers in the state directory: one file each, the newest kept.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use packtrain_transfer::FailureKind;

use super::evidence::{Part, Record};
use crate::api::NodeError;
use crate::config::Dirs;

/// Records kept.
const KEPT: usize = 64;
/// A record is never longer.
const LONGEST: u64 = 256 << 10;

/// Which transfer is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// The one that began last.
    Last,
    /// By its id, or the beginning of it.
    Id(String),
    /// By the process that runs it, or ran it.
    Pid(u32),
}

/// Where records are; none without a home.
pub(super) fn dir() -> Option<PathBuf> {
    Dirs::from_env().ok().map(|dirs| dirs.state.join("transfers"))
}

/// Finds a transfer's record.
///
/// # Errors
/// There is none, or it cannot be read.
pub fn find(which: &Which) -> Result<Record, NodeError> {
    let dir = dir().ok_or_else(|| {
        let text = "there is no home directory to look in: set HOME or XDG_STATE_HOME";
        NodeError::new(FailureKind::Usage, text)
    })?;
    let all = all(&dir);
    let fits = |record: &Record| match which {
        Which::Last => true,
        Which::Id(id) => record.id.starts_with(id.as_str()),
        Which::Pid(pid) => record.pid == *pid,
    };
    all.into_iter().filter(fits).max_by_key(|record| record.began).ok_or_else(|| {
        let what = match which {
            Which::Last => "no transfer is remembered".to_owned(),
            Which::Id(id) => format!("no transfer is remembered by the id {id}"),
            Which::Pid(pid) => format!("no transfer is remembered of process {pid}"),
        };
        let text = format!("{what} in {}: name one of this user's latest {KEPT}", dir.display());
        NodeError::new(FailureKind::SourceMissing, text)
    })
}

fn all(dir: &Path) -> Vec<Record> {
    let Ok(items) = fs::read_dir(dir) else { return Vec::new() };
    items.flatten().filter_map(|item| read(&item.path()).ok()).collect()
}

fn read(path: &Path) -> io::Result<Record> {
    let mut text = String::new();
    fs::File::open(path)?.take(LONGEST).read_to_string(&mut text)?;
    let record: Record = serde_json::from_str(&text).map_err(io::Error::other)?;
    if record.id.is_empty() { Err(io::ErrorKind::InvalidData.into()) } else { Ok(record) }
}

/// Writes a record in the place of its older self. Not synced: after a crash of the machine an
/// old one is as good.
pub(super) fn write(dir: &Path, record: &Record) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let path = dir.join(format!("{}.json", record.id));
    let temporary = dir.join(format!(".{}.tmp", record.id));
    let text = serde_json::to_vec(record).map_err(io::Error::other)?;
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(&temporary);
    let written = file.and_then(|mut file| file.write_all(&text));
    written.and_then(|()| fs::rename(&temporary, &path))
}

/// Removes all but the newest.
pub(super) fn prune(dir: &Path) {
    let Ok(items) = fs::read_dir(dir) else { return };
    let mut found: Vec<_> = items
        .flatten()
        .filter_map(|item| Some((item.metadata().ok()?.modified().ok()?, item.path())))
        .collect();
    found.sort();
    let extra = found.len().saturating_sub(KEPT);
    for (_, path) in found.drain(..extra) {
        // Another process may have been faster.
        let _ = fs::remove_file(path);
    }
}

/// The longest part that is taken from the other end.
const LONGEST_PART: usize = 64 << 10;

/// A part as it goes to the other end.
pub(crate) fn encode(part: &Part) -> Vec<u8> {
    serde_json::to_vec(part).unwrap_or_default()
}

/// Reads the other end's part; none if it is too long or unintelligible.
pub(crate) fn decode(bytes: &[u8]) -> Option<Part> {
    if bytes.len() > LONGEST_PART {
        return None;
    }
    serde_json::from_slice::<Part>(bytes).ok().map(Part::bound)
}

#[cfg(test)]
mod tests {
    use packtrain_units::Duration;

    use super::*;

    #[test]
    fn records_are_written_found_and_pruned() {
        let dir = tempfile::tempdir().expect("a directory");
        let place = dir.path().join("transfers");
        for n in 0..KEPT as u64 + 5 {
            let began = Duration::from_secs(n);
            let record = Record { id: format!("{n:04x}"), began, pid: 7, ..Record::default() };
            write(&place, &record).expect("written");
            assert_eq!(read(&place.join(format!("{n:04x}.json"))).expect("read"), record);
        }
        prune(&place);
        assert_eq!(all(&place).len(), KEPT);
        fs::write(place.join("x.json"), "{\"evidence\":3}").expect("a file");
        assert!(read(&place.join("x.json")).is_err());
        assert_eq!(all(&place).len(), KEPT);
    }

    #[test]
    fn foreign_parts_are_bounded() {
        let mut part = Part { path: Some(Default::default()), ..Part::default() };
        let path = part.path.as_mut().expect("there");
        path.controller = "ä\u{1b}".repeat(500);
        path.samples = vec![Default::default(); 300];
        let heard = decode(&encode(&part)).expect("a part");
        let path = heard.path.expect("there");
        assert!(path.controller.chars().all(|c| c == 'ä') && path.samples.len() == 160);
        assert_eq!(decode(&vec![b' '; LONGEST_PART + 1]), None);
        assert_eq!(decode(b"{}"), Some(Part::default()));
        assert_eq!(decode(b"[]x"), None);
    }
}

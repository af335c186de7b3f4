//! Compares files with the digests that their servers sent, once a fetch is complete.
//!
//! The state directory has a mark for each file that has data and was not compared yet. So a fetch
//! that is interrupted, and the next one finds its files unchanged, still compares them.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use packtrain_disk::{Meta, Root, SourceFile};
use packtrain_identity::config::Dirs;
use packtrain_identity::statefile;
use packtrain_object::{EntryId, Mtime, RelPath};
use packtrain_transfer::{Failure, FailureKind, Outcome};
use parking_lot::Mutex;

use super::checksums::Sum;

/// The file of an entry whose server sent a digest.
#[derive(Debug)]
pub(super) struct Expected {
    pub(super) path: RelPath,
    /// Its name in texts to the user.
    pub(super) name: String,
    pub(super) sum: Sum,
    /// The time that stands for its version.
    pub(super) mtime: Mtime,
}

/// The comparisons of a fetch.
#[derive(Debug)]
pub(super) struct Comparisons {
    target: PathBuf,
    /// Whether marks are kept for the next fetch to this target.
    keeps: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    expected: HashMap<EntryId, Expected>,
    /// Whether the target is a directory, whatever is there now.
    is_dir: bool,
    fetched: HashSet<EntryId>,
}

impl Comparisons {
    pub(super) fn new(target: PathBuf, keeps: bool) -> Self {
        Self { target, keeps, state: Mutex::default() }
    }

    /// The server sent digests of these files. `is_dir`: there are several entries.
    pub(super) fn expect(&self, expected: HashMap<EntryId, Expected>, is_dir: bool) {
        let mut state = self.state.lock();
        (state.expected, state.is_dir) = (expected, is_dir);
    }

    /// A piece of this entry was fetched. The mark is there before the file has its name.
    pub(super) fn fetched(&self, entry: EntryId) {
        let mut state = self.state.lock();
        if !state.fetched.insert(entry) || !self.keeps {
            return;
        }
        if let Some(expected) = state.expected.get(&entry) {
            let file = self.file(&expected.path, state.is_dir);
            tokio::task::block_in_place(|| mark(&file));
        }
    }

    fn file(&self, path: &RelPath, is_dir: bool) -> PathBuf {
        match is_dir || self.target.is_dir() {
            true => self.target.join(OsStr::from_bytes(path.as_bytes())),
            false => self.target.clone(),
        }
    }

    /// Compares what was fetched now, or earlier and not compared then. A file with another digest
    /// gets a time that its version does not have, so that the next fetch does not take it for
    /// unchanged.
    pub(super) fn check(&self, mut outcome: Outcome) -> Outcome {
        // The marks stay for the next fetch if it is not known which files are those of the server.
        if outcome.failure.is_some() || outcome.summary.failed > outcome.failed.len() as u64 {
            return outcome;
        }
        let failed: HashSet<&[u8]> = outcome.failed.iter().map(|(path, _)| &path[..]).collect();
        let state = self.state.lock();
        let mut wrong = None;
        for (entry, expected) in &state.expected {
            let Expected { path, name, sum, mtime } = expected;
            let file = self.file(path, state.is_dir);
            let is_due = state.fetched.contains(entry) || self.keeps && is_marked(&file);
            if !is_due || failed.contains(path.as_bytes()) {
                continue;
            }
            match compare(&file, sum, *mtime) {
                Ok(true) => unmark(&file),
                Ok(false) => {
                    let (kind, file) = (sum.name(), file.display());
                    let text = format!(
                        "{name}: {file} does not have the {kind} that the server says; the same \
                         command fetches it anew"
                    );
                    wrong = Some(Failure::new(FailureKind::Integrity, text));
                }
                // A file that cannot be read was removed, or cannot be read next time either.
                Err(_) => {}
            }
        }
        drop(failed);
        outcome.failure = wrong;
        outcome
    }
}

/// Whether the file has this digest. If not, it loses the time of its version.
fn compare(file: &Path, sum: &Sum, version: Mtime) -> std::io::Result<bool> {
    let name = file.file_name().unwrap_or_default().as_bytes().to_vec();
    let name = RelPath::new(name).map_err(std::io::Error::other)?;
    let parent = file.parent().filter(|dir| !dir.as_os_str().is_empty());
    let root = Root::open(parent.unwrap_or(Path::new(".")))?;
    if sum.matches(SourceFile::open(&root, &name)?.file())? {
        return Ok(true);
    }
    // Older than the version, for `--update`. If it cannot be set, the mark lets the next fetch
    // fail.
    let secs = if version.secs > 0 { 0 } else { version.secs - 1 };
    let meta = Meta { mtime: Some(Mtime { secs, nanos: 0 }), ..Meta::default() };
    let _ = root.settle(&name, &meta);
    Ok(false)
}

/// The mark of a file, if there is a state directory.
fn mark_of(file: &Path) -> Option<PathBuf> {
    let whole: PathBuf = std::path::absolute(file).ok()?.components().collect();
    let name = packtrain_object::digest::root_of(whole.as_os_str().as_bytes()).to_string();
    Some(Dirs::from_env().ok()?.state.join("uncompared").join(&name[..32]))
}

fn is_marked(file: &Path) -> bool {
    mark_of(file).is_some_and(|mark| mark.exists())
}

/// Marks a file. If this fails, only this fetch compares it.
fn mark(file: &Path) {
    if let Some(mark) = mark_of(file) {
        // The path is for people.
        let _ = statefile::replace(&mark, file.as_os_str().as_bytes());
    }
}

fn unmark(file: &Path) {
    if let Some(mark) = mark_of(file) {
        let _ = std::fs::remove_file(mark);
    }
}

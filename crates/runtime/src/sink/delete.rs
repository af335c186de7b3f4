//! `--delete`: removes files at the target that the source does not have and no filter protects.
//!
//! As with rsync, a filter that excludes a name at the source protects it at the target, at any
//! depth below a directory that the source does not have. Temporaries, journals and locks of other
//! transfers are kept; temporaries that an earlier run of the same transfer left are removed. A
//! directory is removed only if it is empty.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::sync::Arc;
use std::vec::IntoIter;

use packtrain_disk::{DirItem, Kept, Kind, RemovalDir, Trouble};
use packtrain_object::{RelPath, TreeFilter, directories_above};
use packtrain_transfer::message::Options;
use packtrain_transfer::{DeletePlan, Failure, FailureKind};

use super::target::Target;
use crate::traces::is_trace;
use packtrain_service::paths::show;

/// Paths that were removed, or would be, or could not be.
pub(super) type Gone = Vec<(Vec<u8>, Result<(), Failure>)>;

/// Executes a plan.
pub(super) fn delete(target: &Target, plan: &DeletePlan) -> Gone {
    if target.is_renamed() {
        // A single renamed file: the source has no directory here.
        return Vec::new();
    }
    let is_dry = target.options().dry_run && !target.options().verify;
    let mut remover = match Remover::new(target, plan.dry_run, plan.limit) {
        Ok(remover) => remover,
        Err(_) if is_dry && target.is_missing() => return Vec::new(),
        Err(failure) => return vec![(Vec::new(), Err(failure))],
    };
    (remover.removed, remover.at_end) = (target.room().removed, true);
    let scope = Scope::new(target.options());
    // If the manifest contains the root, the whole destination belongs to the source. Otherwise
    // only directories with the name of a source do.
    let mut todo = plan.keep.highest();
    let spared: HashSet<&[u8]> = plan.spared.iter().map(Vec::as_slice).collect();
    // The source lists the destination itself if it has more empty sources than it can list.
    let all_spared = spared.contains(&b""[..]) && !todo.iter().any(Vec::is_empty);
    while let Some(dir) = todo.pop() {
        let spared = all_spared || spared.contains(&dir[..]);
        let whole = scope.is_whole(&dir);
        let items = match remover.dir.list(&dir) {
            Ok(items) => items,
            // The source is a file or a link, or the directory was removed.
            Err(e) if matches!(e.kind(), ErrorKind::NotADirectory | ErrorKind::NotFound) => {
                continue;
            }
            Err(e) if rustix::io::Errno::from_io_error(&e) == Some(rustix::io::Errno::LOOP) => {
                continue;
            }
            Err(e) => {
                remover.fail(dir, &e);
                continue;
            }
        };
        let mut stray = Vec::new();
        for item in items {
            let path = join(&dir, &item.name);
            let kept = match plan.keep.contains(&path) {
                true => Some(path),
                false => target.respelled(&path),
            };
            match kept {
                // A directory where the source has a file is replaced with all its contents, or not
                // at all.
                Some(path) => {
                    let is_directory = item.kind == Kind::Directory && !spared;
                    if is_directory && plan.keep.contains_directory(&path) {
                        todo.push(path);
                    }
                }
                None if whole => stray.push(item),
                None => {}
            }
        }
        if spared {
            remover.spare(&dir, stray);
        } else if !target.knows_spellings(&dir) {
            remover.doubt(&dir, stray);
        } else {
            remover.remove_all(&dir, stray);
        }
    }
    remover.finish()
}

/// Names that were removed to make room for entries of the source, or would be in a dry run.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// Number of names.
    removed: u64,
    /// Removals that are not reported yet.
    gone: Gone,
}

impl Room {
    /// The removals since the last call.
    pub(super) fn take(&mut self) -> Gone {
        std::mem::take(&mut self.gone)
    }

    /// Records why there would be no room for the entry at `path`.
    pub(super) fn refuse(&mut self, path: &[u8], failure: Failure) {
        self.gone.push((path.to_vec(), Err(failure)));
    }
}

/// Removes the directory at `path` and its contents to make room for an entry of that name; a dry
/// run only records them. As with rsync, if a filter protects part of the directory, the rest is
/// removed and the directory stays. If `--max-delete` does not allow all of the removals, nothing
/// is removed.
pub(super) fn make_room(target: &Target, path: &[u8]) -> Result<(), Failure> {
    let options = target.options();
    let mut reserved = 0;
    if let Some(limit) = options.max_delete {
        let mut trial = Remover::new(target, true, None)?;
        trial.remove_directory(path.to_vec());
        let mut room = target.room();
        if room.removed + trial.removed > limit {
            let text = format!(
                "there is a directory in the way, and removing it would delete {} names: \
                 --max-delete {limit} does not allow that",
                trial.removed
            );
            return Err(Failure::new(FailureKind::TargetRefused, text));
        }
        reserved = trial.removed;
        room.removed += reserved;
    }
    let mut remover = Remover::new(target, options.dry_run, None)?;
    let done = remover.remove_directory(path.to_vec());
    let (removed, failed): (Gone, Gone) =
        remover.gone.into_iter().partition(|(_, result)| result.is_ok());
    let mut room = target.room();
    room.removed = room.removed - reserved + removed.len() as u64;
    room.gone.extend(removed);
    drop(room);
    if done { Ok(()) } else { Err(stays(failed)) }
}

/// The failure of a directory that cannot make room.
fn stays(gone: Gone) -> Failure {
    let failed = gone.into_iter().find_map(|(_, result)| result.err());
    failed.unwrap_or_else(|| {
        let text = "there is a directory in the way, and something in it is protected by a filter \
                    or belongs to another transfer";
        Failure::new(FailureKind::TargetRefused, text)
    })
}

/// The directories whose complete contents the source sent. With `--files-from` these are the
/// listed directories and those below them, but not the parents of a listed name.
struct Scope {
    listed: Option<Vec<Vec<u8>>>,
}

impl Scope {
    fn new(options: &Options) -> Self {
        let clean = |name: &Vec<u8>| -> Vec<u8> {
            let parts = name.split(|b| *b == b'/').filter(|part| !matches!(*part, b"" | b"."));
            parts.collect::<Vec<_>>().join(&b'/')
        };
        let mut listed: Option<Vec<Vec<u8>>> =
            options.files_from.as_ref().map(|names| names.iter().map(clean).collect());
        listed.iter_mut().for_each(|names| names.sort_unstable());
        Self { listed }
    }

    fn is_whole(&self, dir: &[u8]) -> bool {
        let Some(listed) = &self.listed else { return true };
        let has = |path: &[u8]| listed.binary_search_by(|name| name[..].cmp(path)).is_ok();
        has(b"") || has(dir) || directories_above(dir).any(has)
    }
}

struct Remover<'a> {
    target: &'a Target,
    filters: Arc<TreeFilter>,
    dir: RemovalDir<'a>,
    dry_run: bool,
    limit: Option<u64>,
    /// All files of this run have their names.
    at_end: bool,
    gone: Gone,
    removed: u64,
    /// Number of names that the limit kept, and the first of them.
    over: u64,
    first_over: Option<Vec<u8>>,
}

/// A directory that the source does not have, while it is emptied.
struct Level {
    path: Vec<u8>,
    items: IntoIter<DirItem>,
    /// Whether any of its contents stay.
    kept: bool,
}

impl<'a> Remover<'a> {
    fn new(target: &'a Target, dry_run: bool, limit: Option<u64>) -> Result<Self, Failure> {
        let filters = target.filters()?;
        let place = target.below(b"")?;
        let dir = target.root.removal_dir(&place).map_err(|e| refused(target, &place, &e))?;
        let (gone, first_over) = (Vec::new(), None);
        let (removed, over, at_end) = (0, 0, false);
        Ok(Self { target, filters, dir, dry_run, limit, at_end, gone, removed, over, first_over })
    }

    fn remove_all(&mut self, dir: &[u8], items: Vec<DirItem>) {
        for item in items {
            let path = join(dir, &item.name);
            if self.is_temporary(&item) {
                self.clear(&path);
                continue;
            }
            if self.is_protected(&path, &item) {
                continue;
            }
            if item.kind == Kind::Directory {
                self.remove_directory(path);
            } else {
                self.remove(path, item.kind);
            }
        }
    }

    /// Reports that nothing was removed below `dir`, if anything would have been.
    fn spare(&mut self, dir: &[u8], items: Vec<DirItem>) {
        let any = items.into_iter().any(|item| !self.is_protected(&join(dir, &item.name), &item));
        if any {
            let path = if dir.is_empty() { b".".to_vec() } else { dir.to_vec() };
            let text = "the source brought no file, so --delete removed nothing here; use \
                        --force-delete if that is meant";
            self.gone.push((path, Err(Failure::new(FailureKind::TargetRefused, text))));
        }
    }

    /// Reports that nothing was removed in `dir`, because one of the names may be the source's.
    fn doubt(&mut self, dir: &[u8], items: Vec<DirItem>) {
        let is_doubtful = |item: &&DirItem| {
            !self.is_temporary(item) && !self.is_protected(&join(dir, &item.name), item)
        };
        if let Some(item) = items.iter().find(is_doubtful) {
            let text = "not deleted: the file system takes two spellings for one name here, and this \
                        may be a name of the source in another spelling; rename it as it is there";
            let path = join(dir, &item.name);
            self.gone.push((path, Err(Failure::new(FailureKind::TargetRefused, text))));
        }
    }

    /// Removes a directory and its contents; false if it stays.
    fn remove_directory(&mut self, path: Vec<u8>) -> bool {
        let Some(top) = self.open(path) else { return false };
        // The stack holds paths and names instead of open directories, so depth costs no file
        // handles.
        let mut levels = vec![top];
        while let Some(level) = levels.last_mut() {
            let Some(item) = level.items.next() else {
                let Some(done) = levels.pop() else { break };
                let gone = !done.kept && self.remove(done.path, Kind::Directory);
                match levels.last_mut() {
                    Some(above) => above.kept |= !gone,
                    None => return gone,
                }
                continue;
            };
            let path = join(&level.path, &item.name);
            if self.is_temporary(&item) {
                level.kept |= !self.clear(&path);
            } else if self.is_protected(&path, &item) {
                level.kept = true;
            } else if item.kind == Kind::Directory {
                match self.open(path) {
                    Some(below) => levels.push(below),
                    None => level.kept = true,
                }
            } else {
                level.kept |= !self.remove(path, item.kind);
            }
        }
        false
    }

    fn open(&mut self, path: Vec<u8>) -> Option<Level> {
        match self.dir.list(&path) {
            Ok(items) => Some(Level { path, items: items.into_iter(), kept: false }),
            Err(error) => {
                self.fail(path, &error);
                None
            }
        }
    }

    /// Whether an earlier run of this transfer left this temporary. A hidden directory may be this
    /// run's, also at the end.
    fn is_temporary(&self, item: &DirItem) -> bool {
        self.at_end && item.kind == Kind::File && self.target.is_temporary(&item.name)
    }

    /// Removes such a temporary, which counts as no name of the target; false if it stays.
    fn clear(&mut self, path: &[u8]) -> bool {
        self.dry_run || self.dir.remove(path, Kind::File).is_ok()
    }

    fn is_protected(&self, path: &[u8], item: &DirItem) -> bool {
        // The parent directories were checked before.
        let is_dir = item.kind == Kind::Directory;
        is_trace(&item.name)
            || self.target.is_backup(path, is_dir)
            || self.filters.protects(path, is_dir)
    }

    /// Removes one name; false if it stays.
    fn remove(&mut self, path: Vec<u8>, kind: Kind) -> bool {
        if self.limit.is_some_and(|limit| self.removed >= limit) {
            self.over += 1;
            self.first_over.get_or_insert(path);
            return false;
        }
        let kept = match self.keep_old(&path, kind) {
            Ok(kept) => kept,
            Err(failure) => {
                self.gone.push((path, Err(failure)));
                return false;
            }
        };
        if !self.dry_run
            && kept != Kept::Renamed
            && let Err(error) = self.dir.remove(&path, kind)
        {
            match packtrain_disk::classify(&error) {
                Trouble::NotFound => return true,
                // Another process created a file in it meanwhile.
                Trouble::NotEmpty => {}
                _ => self.fail(path, &error),
            }
            return false;
        }
        self.removed += 1;
        self.gone.push((path, Ok(())));
        // A backup beside it keeps its directory.
        let is_beside = self.target.keeps_old().is_some_and(|backup| backup.dir.is_none());
        !(is_beside && kind != Kind::Directory)
    }

    /// Keeps the old version of a name, if that is wanted.
    fn keep_old(&self, path: &[u8], kind: Kind) -> Result<Kept, Failure> {
        if self.dry_run || kind == Kind::Directory || self.target.keeps_old().is_none() {
            return Ok(Kept::Nothing);
        }
        self.target.back_up(&self.target.below(path)?)
    }

    fn fail(&mut self, path: Vec<u8>, error: &std::io::Error) {
        let text = format!("cannot be deleted: {}", self.target.root.trouble(error).sentence());
        self.gone.push((path, Err(Failure::new(FailureKind::TargetRefused, text))));
    }

    fn finish(mut self) -> Gone {
        if let (Some(path), Some(limit)) = (self.first_over, self.limit) {
            let text = format!(
                "not deleted, and {} more names were not: --max-delete {limit} is reached",
                self.over - 1
            );
            self.gone.push((path, Err(Failure::new(FailureKind::TargetRefused, text))));
        }
        self.gone
    }
}

pub(super) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}

fn refused(target: &Target, place: &RelPath, error: &std::io::Error) -> Failure {
    let name = if place.is_root() { "./".to_owned() } else { show(place.as_bytes()) };
    let text = match target.root.trouble(error) {
        Trouble::NotFound => format!("there is no directory {name} at the target"),
        trouble => format!("{name}: {}", trouble.sentence()),
    };
    Failure::new(FailureKind::TargetRefused, text)
}

#[cfg(test)]
mod tests {
    use packtrain_disk::Root;

    use super::*;

    #[test]
    fn only_a_name_that_would_be_deleted_is_in_doubt() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = Arc::new(Root::open(dir.path()).expect("a directory"));
        let options = Options { filters: vec!["- *.log".to_owned()], ..Options::default() };
        let (shown, tag) = (b"d".to_vec(), "0a1b2c3d".to_owned());
        let target = Target::new((root, shown), RelPath::root(), None, tag, options, false);
        let item = |name: &str| DirItem { name: name.into(), kind: Kind::File };
        let own = [".packtrain-0a1b2c3d.lock", ".f.packtrain-0a1b2c3d", "kept.log"].map(item);
        let told = |names: Vec<DirItem>| {
            let mut remover = Remover::new(&target, false, None).expect("a directory");
            remover.at_end = true;
            remover.doubt(b"", names);
            remover.gone.into_iter().map(|(path, _)| path).collect::<Vec<_>>()
        };
        assert_eq!(told(own.to_vec()), [b""; 0]);
        assert_eq!(told([&own[..], &[item("F")]].concat()), [b"F"]);
    }
}

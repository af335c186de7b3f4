//! `clean`: finds and removes the files that interrupted transfers left below a directory.
//!
//! Every running transfer holds a lock in its destination directory, which is the directory of its
//! temporaries or one above. `clean` acquires the lock of a tag before it removes files with that
//! tag, and holds it while it is below that directory. Symbolic links are not followed.

mod request;

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use packtrain_disk::{Kind, LeftoverName, Lock, LockError, Root, Stat, classify};
use packtrain_object::RelPath;
use packtrain_transfer::FailureKind;
use packtrain_units::ByteCount;

use packtrain_identity::config::Dirs;
use packtrain_service::RequestError;

pub use request::{CleanRequest, CleanSummary, Leftover, LeftoverKind, LeftoverStatus};

/// Removes what interrupted transfers left, and reports each file.
///
/// # Errors
/// The place is not a directory or cannot be opened. Failures below it are reported and counted.
pub fn run(
    request: &CleanRequest,
    tell: &mut dyn FnMut(&Leftover),
) -> Result<CleanSummary, RequestError> {
    let place = &request.place;
    let root = Root::open(place).map_err(|e| {
        let text = format!("{}: {}", place.display(), classify(&e).sentence());
        RequestError::new(FailureKind::TargetMissing, text)
    })?;
    let above = std::fs::canonicalize(place).unwrap_or_else(|_| place.clone());
    let mut clean = Clean {
        request,
        root: Arc::new(root),
        above: above.ancestors().skip(1).map(Path::to_path_buf).collect(),
        scopes: Vec::new(),
        elsewhere: HashMap::new(),
        summary: CleanSummary::default(),
        tell,
    };
    if let Ok(dirs) = Dirs::from_env() {
        clean.above.push(dirs.state.join("locks"));
    }
    clean.walk();
    Ok(clean.summary)
}

struct Clean<'a> {
    request: &'a CleanRequest,
    root: Arc<Root>,
    /// Directories above the place, which may contain a lock.
    above: Vec<PathBuf>,
    /// The locks of the directories from the place down to the current one.
    scopes: Vec<HashMap<String, LockState>>,
    /// The locks above the place, by tag.
    elsewhere: HashMap<String, Busy>,
    summary: CleanSummary,
    tell: &'a mut dyn FnMut(&Leftover),
}

/// The state of a lock file.
enum LockState {
    /// Held by this process, so that its transfer cannot start meanwhile.
    Ours(Lock),
    /// Free, and it belongs to another user.
    Nobody,
    /// Held by a transfer, or its state is unknown.
    Busy(Busy),
}

impl LockState {
    fn busy(&self) -> Option<Busy> {
        match self {
            Self::Busy(busy) => Some(busy.clone()),
            Self::Ours(_) | Self::Nobody => None,
        }
    }
}

#[derive(Clone)]
enum Busy {
    By(String),
    Unknown(String),
}

impl Busy {
    fn status(&self) -> LeftoverStatus {
        match self {
            Self::By(who) => LeftoverStatus::InUse { who: who.clone() },
            Self::Unknown(why) => LeftoverStatus::Failed { why: why.clone() },
        }
    }
}

enum Step {
    Enter(Vec<u8>),
    /// Everything below this directory is done.
    Leave(Vec<u8>),
}

impl Clean<'_> {
    fn walk(&mut self) {
        let mut steps = vec![Step::Enter(Vec::new())];
        while let Some(step) = steps.pop() {
            match step {
                Step::Enter(dir) => self.enter(dir, &mut steps),
                Step::Leave(dir) => self.leave(&dir),
            }
        }
    }

    fn enter(&mut self, dir: Vec<u8>, steps: &mut Vec<Step>) {
        let items = below(&dir, b"").and_then(|rel| self.root.list(&rel));
        let items = match items {
            Ok(items) => items,
            Err(error) => {
                let why = classify(&error).sentence();
                return self.failed_directory(&dir, why);
            }
        };
        let mut scope = HashMap::new();
        let (mut files, mut dirs, mut trees) = (Vec::new(), Vec::new(), Vec::new());
        for item in items {
            match (LeftoverName::parse(&item.name), item.kind) {
                (Some(name), Kind::Directory) if name.kind == LeftoverKind::Output => {
                    self.output(&dir, &item.name);
                }
                (Some(name), Kind::Directory) if name.is_tree() => trees.push((name, item.name)),
                (_, Kind::Directory) => dirs.push(join(&dir, &item.name)),
                (Some(LeftoverName { kind: LeftoverKind::Lock, tag: Some(tag) }), Kind::File) => {
                    if let Ok(rel) = below(&dir, &item.name)
                        && let Some(held) = self.take(&self.root, &rel)
                    {
                        scope.insert(tag, held);
                    }
                }
                // Without a tag only links are packtrain's own: a file of that name belongs to a
                // user.
                (Some(name), Kind::File) if name.tag.is_none() => {}
                (Some(name), Kind::File | Kind::Symlink) if name.kind != LeftoverKind::Lock => {
                    files.push((name, item.name));
                }
                _ => {}
            }
        }
        self.scopes.push(scope);
        for (name, file) in files {
            self.file(&dir, &file, &name);
        }
        for (name, tree) in trees {
            self.tree(&dir, &tree, &name);
        }
        steps.push(Step::Leave(dir));
        steps.extend(dirs.into_iter().map(Step::Enter));
    }

    /// Leaves a directory; its lock files are removed last.
    fn leave(&mut self, dir: &[u8]) {
        for (tag, held) in self.scopes.pop().unwrap_or_default() {
            let name = LeftoverName::lock_of(&tag).into_bytes();
            let Some((rel, stat)) = self.stat_leftover(dir, &name) else { continue };
            let status = match held {
                LockState::Ours(mut lock) => {
                    if !self.request.dry_run {
                        lock.remove_file();
                    }
                    LeftoverStatus::Removed
                }
                LockState::Nobody => self.remove(&rel, &stat),
                LockState::Busy(busy) => busy.status(),
            };
            self.report(join(dir, &name), LeftoverKind::Lock, &stat, status);
        }
    }

    fn file(&mut self, dir: &[u8], name: &[u8], parsed: &LeftoverName) {
        let Some((rel, stat)) = self.stat_leftover(dir, name) else { return };
        let busy = match parsed.tag.as_deref() {
            Some(tag) => self.busy(dir, tag),
            // The file may belong to any transfer that runs here.
            None => self.scopes.iter().flat_map(HashMap::values).find_map(LockState::busy),
        };
        let status = match busy {
            _ if !self.is_mine(&stat) => LeftoverStatus::Foreign { uid: stat.uid },
            Some(busy) => busy.status(),
            None => self.remove(&rel, &stat),
        };
        self.report(join(dir, name), parsed.kind, &stat, status);
    }

    /// Handles a directory that a transfer filled under a hidden name.
    fn tree(&mut self, dir: &[u8], name: &[u8], parsed: &LeftoverName) {
        let Some((rel, stat)) = self.stat_leftover(dir, name) else { return };
        let busy = parsed.tag.as_deref().and_then(|tag| self.busy(dir, tag));
        // Its space before it is gone.
        let bytes = self.space(&join(dir, name));
        let status = match busy {
            _ if !self.is_mine(&stat) => LeftoverStatus::Foreign { uid: stat.uid },
            Some(busy) => busy.status(),
            None if self.request.dry_run => LeftoverStatus::Removed,
            None => done(self.root.remove_tree(&rel)),
        };
        let stat = Stat { blocks: bytes.get() / 512, ..stat };
        self.report(join(dir, name), parsed.kind, &stat, status);
    }

    /// The space of a directory with all that is in it.
    fn space(&self, dir: &[u8]) -> ByteCount {
        let mut space = ByteCount::ZERO;
        let mut waiting = vec![dir.to_vec()];
        while let Some(dir) = waiting.pop() {
            let items = below(&dir, b"").and_then(|rel| self.root.list(&rel));
            for item in items.unwrap_or_default() {
                if item.kind == Kind::Directory {
                    waiting.push(join(&dir, &item.name));
                } else if let Some((_, stat)) = self.stat_leftover(&dir, &item.name) {
                    space += stat.space();
                }
            }
        }
        space
    }

    /// Handles a directory of a copy to standard output.
    fn output(&mut self, dir: &[u8], name: &[u8]) {
        let Some((rel, stat)) = self.stat_leftover(dir, name) else { return };
        if stat.mode & 0o777 != 0o700 {
            // Not created by packtrain.
            return;
        }
        let path = join(dir, name);
        if !self.is_mine(&stat) {
            let status = LeftoverStatus::Foreign { uid: stat.uid };
            return self.report(path, LeftoverKind::Output, &stat, status);
        }
        let mut bytes = stat.space();
        let mut locks = Vec::new();
        for item in self.root.list(&rel).unwrap_or_default() {
            let Some((inner, stat)) = self.stat_leftover(&path, &item.name) else { continue };
            bytes += stat.space();
            let is_lock =
                LeftoverName::parse(&item.name).is_some_and(|name| name.kind == LeftoverKind::Lock);
            if is_lock && item.kind == Kind::File {
                locks.extend(self.take(&self.root, &inner));
            }
        }
        let busy = locks.iter().find_map(|held| match held {
            LockState::Busy(busy) => Some(busy.status()),
            LockState::Ours(_) | LockState::Nobody => None,
        });
        let status = busy.unwrap_or_else(|| match self.request.dry_run {
            true => LeftoverStatus::Removed,
            false => done(self.root.remove_tree(&rel)),
        });
        let stat = Stat { blocks: bytes.get() / 512, ..stat };
        self.report(path, LeftoverKind::Output, &stat, status);
    }

    /// Acquires a lock whose file exists; `None` if it is gone.
    fn take(&self, root: &Arc<Root>, rel: &RelPath) -> Option<LockState> {
        let unknown = |why: String| LockState::Busy(Busy::Unknown(why));
        match Lock::take_existing(root, rel) {
            Ok(Some(lock)) => Some(LockState::Ours(lock)),
            Ok(None) => None,
            Err(LockError::Held { who }) => Some(LockState::Busy(Busy::By(who))),
            Err(LockError::Foreign) if self.request.all_owners => match Lock::is_held(root, rel) {
                Ok(false) => Some(LockState::Nobody),
                Ok(true) => {
                    Some(LockState::Busy(Busy::By("a transfer of another user".to_owned())))
                }
                Err(error) => Some(unknown(error.to_string())),
            },
            // A foreign lock file does not concern transfers of this user.
            Err(LockError::Foreign) => None,
            Err(error) => Some(unknown(format!("{error}: wait until no transfer runs"))),
        }
    }

    /// The transfer that uses the files with this tag in `dir`, if any. A transfer may have started
    /// since its directories were listed. Only a busy state is cached.
    fn busy(&mut self, dir: &[u8], tag: &str) -> Option<Busy> {
        let known = self.scopes.iter().rev().find_map(|scope| scope.get(tag));
        match known {
            Some(LockState::Busy(busy)) => return Some(busy.clone()),
            Some(LockState::Ours(_) | LockState::Nobody) => return None,
            None => {}
        }
        if let Some(known) = self.elsewhere.get(tag) {
            return Some(known.clone());
        }
        let name = RelPath::new(LeftoverName::lock_of(tag).into_bytes()).ok();
        let busy = name.and_then(|name| {
            let slashes = dir.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
            let ends = std::iter::once(0).chain(slashes).chain([dir.len()]);
            let within = ends.filter_map(|end| below(&dir[..end], name.as_bytes()).ok());
            let mut within = within.filter_map(|rel| self.take(&self.root, &rel)?.busy());
            within.next().or_else(|| {
                self.above.iter().find_map(|dir| {
                    let root = Arc::new(Root::open(dir).ok()?);
                    self.take(&root, &name)?.busy()
                })
            })
        });
        if let Some(busy) = &busy {
            self.elsewhere.insert(tag.to_owned(), busy.clone());
        }
        busy
    }

    fn is_mine(&self, stat: &Stat) -> bool {
        self.request.all_owners || stat.is_own()
    }

    fn stat_leftover(&self, dir: &[u8], name: &[u8]) -> Option<(RelPath, Stat)> {
        let rel = below(dir, name).ok()?;
        let stat = self.root.stat(&rel).ok().flatten()?;
        Some((rel, stat))
    }

    fn remove(&self, rel: &RelPath, stat: &Stat) -> LeftoverStatus {
        if stat.kind == Kind::Directory {
            // A directory has replaced it since the directory was listed.
            return LeftoverStatus::Failed { why: "is a directory".to_owned() };
        }
        if self.request.dry_run { LeftoverStatus::Removed } else { done(self.root.remove(rel)) }
    }

    fn failed_directory(&mut self, dir: &[u8], why: &str) {
        self.summary.failed += 1;
        let path = self.shown(dir);
        (self.tell)(&Leftover {
            path,
            kind: LeftoverKind::Temporary,
            bytes: ByteCount::ZERO,
            status: LeftoverStatus::Failed { why: why.to_owned() },
        });
    }

    fn report(&mut self, path: Vec<u8>, kind: LeftoverKind, stat: &Stat, status: LeftoverStatus) {
        let bytes = stat.space();
        let summary = &mut self.summary;
        match &status {
            LeftoverStatus::Removed => {
                summary.removed += 1;
                summary.bytes += bytes;
            }
            LeftoverStatus::InUse { .. } => summary.in_use += 1,
            LeftoverStatus::Foreign { .. } => summary.foreign += 1,
            LeftoverStatus::Failed { .. } => summary.failed += 1,
        }
        let path = self.shown(&path);
        (self.tell)(&Leftover { path, kind, bytes, status });
    }

    fn shown(&self, rel: &[u8]) -> Vec<u8> {
        let path = self.request.place.join(std::ffi::OsStr::from_bytes(rel));
        path.into_os_string().as_bytes().to_vec()
    }
}

fn done(result: std::io::Result<()>) -> LeftoverStatus {
    match result {
        Ok(()) => LeftoverStatus::Removed,
        Err(error) => LeftoverStatus::Failed { why: classify(&error).sentence().to_string() },
    }
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    match (dir.is_empty(), name.is_empty()) {
        (true, _) => name.to_vec(),
        (false, true) => dir.to_vec(),
        (false, false) => [dir, b"/", name].concat(),
    }
}

fn below(dir: &[u8], name: &[u8]) -> std::io::Result<RelPath> {
    let path = join(dir, name);
    if path.is_empty() {
        return Ok(RelPath::root());
    }
    RelPath::new(path).map_err(|_| std::io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hidden_directory_goes_with_all_in_it_unless_its_transfer_runs() {
        const TAG: &str = "0a1b2c3d";
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("below").join(format!(".d.packtrain-{TAG}"));
        std::fs::create_dir_all(tree.join("sub")).unwrap();
        for file in ["f", "sub/f", &format!("sub/.big.packtrain-{TAG}")] {
            std::fs::write(tree.join(file), vec![1; 5000]).unwrap();
        }
        // A user's directory, whose name only looks like one.
        let other = dir.path().join(".d.packtrain-notes");
        std::fs::create_dir(&other).unwrap();
        let root = Arc::new(Root::open(dir.path()).unwrap());
        let lock = RelPath::new(LeftoverName::lock_of(TAG).into_bytes()).unwrap();
        let clean = |dry_run| {
            let mut left = Vec::new();
            let place = dir.path().to_path_buf();
            let request = CleanRequest { place, dry_run, all_owners: false };
            run(&request, &mut |it| left.push((it.kind, it.bytes, it.status.clone()))).unwrap();
            left
        };
        let running = Lock::take(&root, &lock, "the transfer").unwrap();
        let trees = clean(false).into_iter().filter(|(kind, ..)| *kind == LeftoverKind::Temporary);
        let in_use = LeftoverStatus::InUse { who: "the transfer".to_owned() };
        assert_eq!(trees.map(|(.., status)| status).collect::<Vec<_>>(), [in_use]);
        drop(running);
        for dry_run in [true, false] {
            assert!(tree.join("sub/f").exists());
            let left = clean(dry_run);
            assert_eq!(left.len(), 1, "{left:?}");
            let (kind, bytes, status) = &left[0];
            assert_eq!((*kind, status), (LeftoverKind::Temporary, &LeftoverStatus::Removed));
            assert!(*bytes >= ByteCount(15_000), "{bytes}");
        }
        assert!(!tree.exists() && other.exists());
    }

    #[test]
    fn a_transfer_that_begins_during_the_walk_keeps_its_files() {
        const TAG: &str = "0a1b2c3d";
        let dir = tempfile::tempdir().unwrap();
        let names = ["a", "b"].map(|sub| {
            std::fs::create_dir(dir.path().join(sub)).unwrap();
            let file = dir.path().join(sub).join(format!(".f.packtrain-{TAG}"));
            std::fs::write(&file, "left").unwrap();
            file
        });
        let root = Arc::new(Root::open(dir.path()).unwrap());
        let lock = RelPath::new(LeftoverName::lock_of(TAG).into_bytes()).unwrap();
        let mut transfer = None;
        let mut fates = Vec::new();
        let place = dir.path().to_path_buf();
        let request = CleanRequest { place, dry_run: false, all_owners: false };
        let summary = run(&request, &mut |left| {
            // The first file is from a dead run; now the same copy is started again.
            transfer.get_or_insert_with(|| Lock::take(&root, &lock, "the transfer").unwrap());
            fates.push(left.status.clone());
        });
        let in_use = LeftoverStatus::InUse { who: "the transfer".to_owned() };
        assert_eq!(fates, [LeftoverStatus::Removed, in_use]);
        let summary = summary.unwrap();
        assert_eq!((summary.removed, summary.in_use), (1, 1));
        assert_eq!(names.iter().filter(|name| name.exists()).count(), 1);
    }
}

//! `clean`: finds and removes what interrupted transfers left below a directory.
//!
//! Every transfer that runs holds a lock, which lies in its destination directory: beside its
//! temporaries or above them. `clean` takes the lock of a tag before it removes what bears the
//! tag, and keeps it while it is below that directory. Symbolic links are not followed.

mod request;

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use packtrain_disk::{Kind, LeftoverName, Lock, LockError, Root, Stat, classify};
use packtrain_object::RelPath;
use packtrain_transfer::FailureKind;

use packtrain_identity::config::Dirs;
use packtrain_service::RequestError;

pub use request::{CleanRequest, CleanSummary, Leftover, LeftoverFate, LeftoverKind};

/// Removes what interrupted transfers left, and tells of each file.
///
/// # Errors
/// The place is no directory or cannot be opened; what fails below it is told and counted.
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
    /// Directories outside the place where a lock may be.
    above: Vec<PathBuf>,
    /// The locks of the directories from the place down to the current one.
    scopes: Vec<HashMap<String, Held>>,
    /// The locks outside the place, by tag.
    elsewhere: HashMap<String, Busy>,
    summary: CleanSummary,
    tell: &'a mut dyn FnMut(&Leftover),
}

/// A lock file that was found.
enum Held {
    /// By us, so that its transfer does not begin meanwhile.
    Ours(Lock),
    /// Nobody holds it, and it is another user's.
    Nobody,
    /// Somebody holds it, or nobody can tell.
    Busy(Busy),
}

impl Held {
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
    fn fate(&self) -> LeftoverFate {
        match self {
            Self::By(who) => LeftoverFate::InUse { who: who.clone() },
            Self::Unknown(why) => LeftoverFate::Failed { why: why.clone() },
        }
    }
}

enum Step {
    Enter(Vec<u8>),
    /// Everything below it is done.
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
        let mut files = Vec::new();
        let mut dirs = Vec::new();
        for item in items {
            match (LeftoverName::parse(&item.name), item.kind) {
                (Some(name), Kind::Directory) if name.kind == LeftoverKind::Output => {
                    self.output(&dir, &item.name);
                }
                (_, Kind::Directory) => dirs.push(join(&dir, &item.name)),
                (Some(LeftoverName { kind: LeftoverKind::Lock, tag: Some(tag) }), Kind::File) => {
                    if let Ok(rel) = below(&dir, &item.name)
                        && let Some(held) = self.take(&self.root, &rel)
                    {
                        scope.insert(tag, held);
                    }
                }
                // Without a tag only links are ours: a file of that name is a user's.
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
        steps.push(Step::Leave(dir));
        steps.extend(dirs.into_iter().map(Step::Enter));
    }

    /// The locks of a directory go last.
    fn leave(&mut self, dir: &[u8]) {
        for (tag, held) in self.scopes.pop().unwrap_or_default() {
            let name = LeftoverName::lock_of(&tag).into_bytes();
            let Some((rel, stat)) = self.look(dir, &name) else { continue };
            let fate = match held {
                Held::Ours(mut lock) => {
                    if !self.request.dry_run {
                        lock.remove_file();
                    }
                    LeftoverFate::Removed
                }
                Held::Nobody => self.remove(&rel, &stat),
                Held::Busy(busy) => busy.fate(),
            };
            self.told(join(dir, &name), LeftoverKind::Lock, &stat, fate);
        }
    }

    fn file(&mut self, dir: &[u8], name: &[u8], parsed: &LeftoverName) {
        let Some((rel, stat)) = self.look(dir, name) else { return };
        let busy = match parsed.tag.as_deref() {
            Some(tag) => self.busy(dir, tag),
            // It may be of any transfer that runs here.
            None => self.scopes.iter().flat_map(HashMap::values).find_map(Held::busy),
        };
        let fate = match busy {
            _ if !self.is_mine(&stat) => LeftoverFate::Foreign { uid: stat.uid },
            Some(busy) => busy.fate(),
            None => self.remove(&rel, &stat),
        };
        self.told(join(dir, name), parsed.kind, &stat, fate);
    }

    /// A directory in which a copy to standard output was received.
    fn output(&mut self, dir: &[u8], name: &[u8]) {
        let Some((rel, stat)) = self.look(dir, name) else { return };
        if stat.mode & 0o777 != 0o700 {
            // Not made by us.
            return;
        }
        let path = join(dir, name);
        if !self.is_mine(&stat) {
            let fate = LeftoverFate::Foreign { uid: stat.uid };
            return self.told(path, LeftoverKind::Output, &stat, fate);
        }
        let mut bytes = stat.space();
        let mut locks = Vec::new();
        for item in self.root.list(&rel).unwrap_or_default() {
            let Some((inner, stat)) = self.look(&path, &item.name) else { continue };
            bytes += stat.space();
            let is_lock =
                LeftoverName::parse(&item.name).is_some_and(|name| name.kind == LeftoverKind::Lock);
            if is_lock && item.kind == Kind::File {
                locks.extend(self.take(&self.root, &inner));
            }
        }
        let busy = locks.iter().find_map(|held| match held {
            Held::Busy(busy) => Some(busy.fate()),
            Held::Ours(_) | Held::Nobody => None,
        });
        let fate = busy.unwrap_or_else(|| match self.request.dry_run {
            true => LeftoverFate::Removed,
            false => done(self.root.remove_tree(&rel)),
        });
        let stat = Stat { blocks: bytes.get() / 512, ..stat };
        self.told(path, LeftoverKind::Output, &stat, fate);
    }

    /// Takes a lock whose file exists; none if it is gone.
    fn take(&self, root: &Arc<Root>, rel: &RelPath) -> Option<Held> {
        let unknown = |why: String| Held::Busy(Busy::Unknown(why));
        match Lock::take_existing(root, rel) {
            Ok(Some(lock)) => Some(Held::Ours(lock)),
            Ok(None) => None,
            Err(LockError::Held { who }) => Some(Held::Busy(Busy::By(who))),
            Err(LockError::Foreign) if self.request.all_owners => match Lock::is_held(root, rel) {
                Ok(false) => Some(Held::Nobody),
                Ok(true) => Some(Held::Busy(Busy::By("a transfer of another user".to_owned()))),
                Err(error) => Some(unknown(error.to_string())),
            },
            // It says nothing of transfers of this user.
            Err(LockError::Foreign) => None,
            Err(error) => Some(unknown(format!("{error}: wait until no transfer runs"))),
        }
    }

    /// Who uses what bears this tag and lies in `dir`, if somebody does. A transfer may have begun
    /// since its directories were listed: only that somebody does is remembered.
    fn busy(&mut self, dir: &[u8], tag: &str) -> Option<Busy> {
        let known = self.scopes.iter().rev().find_map(|scope| scope.get(tag));
        match known {
            Some(Held::Busy(busy)) => return Some(busy.clone()),
            Some(Held::Ours(_) | Held::Nobody) => return None,
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

    fn look(&self, dir: &[u8], name: &[u8]) -> Option<(RelPath, Stat)> {
        let rel = below(dir, name).ok()?;
        let stat = self.root.stat(&rel).ok().flatten()?;
        Some((rel, stat))
    }

    fn remove(&self, rel: &RelPath, stat: &Stat) -> LeftoverFate {
        if stat.kind == Kind::Directory {
            // It has taken the file's name since the directory was listed.
            return LeftoverFate::Failed { why: "is a directory".to_owned() };
        }
        if self.request.dry_run { LeftoverFate::Removed } else { done(self.root.remove(rel)) }
    }

    fn failed_directory(&mut self, dir: &[u8], why: &str) {
        self.summary.failed += 1;
        let path = self.shown(dir);
        (self.tell)(&Leftover {
            path,
            kind: LeftoverKind::Temporary,
            bytes: packtrain_units::ByteCount::ZERO,
            fate: LeftoverFate::Failed { why: why.to_owned() },
        });
    }

    fn told(&mut self, path: Vec<u8>, kind: LeftoverKind, stat: &Stat, fate: LeftoverFate) {
        let bytes = stat.space();
        let summary = &mut self.summary;
        match &fate {
            LeftoverFate::Removed => {
                summary.removed += 1;
                summary.bytes += bytes;
            }
            LeftoverFate::InUse { .. } => summary.in_use += 1,
            LeftoverFate::Foreign { .. } => summary.foreign += 1,
            LeftoverFate::Failed { .. } => summary.failed += 1,
        }
        let path = self.shown(&path);
        (self.tell)(&Leftover { path, kind, bytes, fate });
    }

    fn shown(&self, rel: &[u8]) -> Vec<u8> {
        let path = self.request.place.join(std::ffi::OsStr::from_bytes(rel));
        path.into_os_string().as_bytes().to_vec()
    }
}

fn done(result: std::io::Result<()>) -> LeftoverFate {
    match result {
        Ok(()) => LeftoverFate::Removed,
        Err(error) => LeftoverFate::Failed { why: classify(&error).sentence().to_string() },
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
            // The first file was of a run that is dead; now the same copy is started again.
            transfer.get_or_insert_with(|| Lock::take(&root, &lock, "the transfer").unwrap());
            fates.push(left.fate.clone());
        });
        let in_use = LeftoverFate::InUse { who: "the transfer".to_owned() };
        assert_eq!(fates, [LeftoverFate::Removed, in_use]);
        let summary = summary.unwrap();
        assert_eq!((summary.removed, summary.in_use), (1, 1));
        assert_eq!(names.iter().filter(|name| name.exists()).count(), 1);
    }
}

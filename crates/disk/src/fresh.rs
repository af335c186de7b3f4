//! Fresh trees: directories that this run makes and fills under a hidden name.
//!
//! A directory that the destination does not have is made under the name of a temporary
//! (`.NAME.packtrain-TAG`) with mode 0700. Small files are created in it under their own names, and
//! directories made in it belong to the same tree. So a file costs neither a temporary nor a rename.
//! [`Root::seal_trees`], before a sync, ends this: a file that is written later gets a temporary.
//! After the sync [`Root::publish_trees`] gives the tree its name in one rename. Files that nobody
//! has verified become temporaries before that.
//!
//! A fresh directory is made when something is first put into it: a manifest is far ahead of its data,
//! and a directory that existed at a seal without any file would take no file under its own name.
//!
//! Paths are always those at the target; this module knows which of them have another name on disk.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use packtrain_object::{EntryId, RelPath};
use packtrain_os::entropy;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::attributes;
use super::beneath;
use super::fresh_state::{Modes, Plan, Tree};
use super::meta::{self, Meta};
use super::mode::{change_mode_at, change_mode_of};
use super::parents::{Parent, Place};
use super::root::{self, Root, split};
use super::stat::{Kind, Stat};
use super::temp_name::{name, random_tag};

/// The mode of a tree until it has its name.
const HIDDEN_MODE: u32 = 0o700;

impl Root {
    /// Plans the directory `rel`, which does not exist: it is made when something is first put into
    /// it, or by [`Root::make_planned`]. If its parent directory is then in a tree that is not sealed,
    /// it becomes part of it; otherwise it is the top of a new tree. Where a tree is not possible, the
    /// directory is made under its own name. `tag` identifies the transfer: what an earlier run of it
    /// left under the hidden name is removed.
    pub fn plan_dir(&self, rel: &RelPath, mode: u32, tag: &str) {
        let plan = Plan { mode, tag: tag.into() };
        let mut state = self.fresh.state();
        let is_known = state.trees.contains_key(rel.as_bytes())
            || state.open.contains_key(rel.as_bytes())
            || rel.is_root();
        if !is_known {
            state.planned.insert(rel.as_bytes().into(), plan);
            self.fresh.any_planned.store(true, Ordering::Release);
        }
    }

    /// Makes the directories that nothing was put into. Returns those that could not be made.
    pub fn make_planned(&self) -> Vec<(Vec<u8>, io::Error)> {
        let paths: Vec<_> = self.fresh.state().planned.keys().cloned().collect();
        let mut failed = Vec::new();
        // Parents come before what is in them.
        for path in paths {
            if let Err(error) = self.make_if_planned(&path) {
                failed.push((path.into_vec(), error));
            }
        }
        let mut state = self.fresh.state();
        state.planned.clear();
        self.fresh.any_planned.store(false, Ordering::Release);
        failed
    }

    /// Makes the directory `dir` and its parents as far as they are planned.
    pub(super) fn make_if_planned(&self, dir: &[u8]) -> io::Result<()> {
        if !self.fresh.any_planned.load(Ordering::Acquire)
            || !self.fresh.state().planned.contains_key(dir)
        {
            return Ok(());
        }
        let _making = self.fresh.making.lock();
        let slashes = dir.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
        for end in slashes.chain([dir.len()]) {
            let path = &dir[..end];
            let Some(plan) = self.fresh.state().planned.get(path).cloned() else { continue };
            self.make_fresh_dir(path, &plan)?;
            // Only now: others wait until it is there.
            let mut state = self.fresh.state();
            state.planned.remove(path);
            self.fresh.any_planned.store(!state.planned.is_empty(), Ordering::Release);
        }
        Ok(())
    }

    fn make_fresh_dir(&self, path: &[u8], plan: &Plan) -> io::Result<()> {
        let is_made = match self.make_inside(path, plan.mode) {
            Some(made) => made.is_ok(),
            None => self.make_top(path, plan.mode, &plan.tag)?,
        };
        if is_made {
            return Ok(());
        }
        let rel = RelPath::new(path.to_vec()).map_err(|_| Errno::INVAL)?;
        self.make_dir(&rel, plan.mode)
    }

    /// Makes a directory of a tree; none if its parent directory is in no tree that is not sealed.
    fn make_inside(&self, path: &[u8], mode: u32) -> Option<io::Result<()>> {
        // A tree that is sealed meanwhile gets no further open directory.
        let _gate = self.fresh.gate.read();
        if !self.fresh.state().open.contains_key(split(path).0) {
            return None;
        }
        let mode = Mode::from_raw_mode(mode & 0o777) | Mode::RWXU;
        let made = self.with_place_ungated(path, |p| rustix::fs::mkdirat(&p.dir, p.name, mode));
        if made.is_ok() {
            self.fresh.state().open.insert(path.into(), Modes::new());
        }
        Some(made)
    }

    /// Makes the top of a tree; false if that is not possible here.
    fn make_top(&self, path: &[u8], mode: u32, tag: &str) -> io::Result<bool> {
        let mode = Mode::from_raw_mode(mode & 0o777) | Mode::RWXU;
        let make = |tag: &str| {
            self.with_place(path, |place| {
                let hidden = name(place.name, tag, self.name_max);
                rustix::fs::mkdirat(&place.dir, &hidden, mode).map(|()| hidden)
            })
        };
        let is_taken = |e: &io::Error| Errno::from_io_error(e) == Some(Errno::EXIST);
        let mut made = make(tag);
        if made.as_ref().is_err_and(is_taken) {
            self.remove_earlier(path, tag);
            made = make(tag);
        }
        if made.as_ref().is_err_and(is_taken) {
            made = make(&random_tag(tag, entropy::seed()));
        }
        let hidden = made?;
        let top = self.with_place(path, |place| {
            let opened = open_top(place.dir.as_fd(), &hidden);
            if !matches!(opened, Ok(Some(_))) {
                let _ = rustix::fs::unlinkat(&place.dir, &hidden, AtFlags::REMOVEDIR);
            }
            opened
        })?;
        let Some((fd, stat)) = top else { return Ok(false) };
        let file = (stat.dev, stat.ino);
        let tree = Tree { hidden: hidden.into(), file, mode: stat.mode, is_sealed: false };
        self.parents.insert(path, fd);
        let mut state = self.fresh.state();
        state.open.insert(path.into(), Modes::new());
        state.trees.insert(path.into(), tree);
        self.fresh.any.store(true, Ordering::Release);
        Ok(true)
    }

    /// Removes what has the hidden name of a tree: a tree of an earlier run of this user, or a file.
    /// A directory of another user is removed only if it is empty. A tree of this run stays: where names
    /// differ only in case, or two paths lead to one directory, it may have the same hidden name.
    fn remove_earlier(&self, path: &[u8], tag: &str) {
        let (dir, last) = split(path);
        let Ok(hidden) = RelPath::new(root::join(dir, &name(last, tag, self.name_max))) else {
            return;
        };
        let stat = self.stat(&hidden).ok().flatten();
        let is_live = |stat: Stat| {
            self.fresh.state().trees.values().any(|tree| tree.file == (stat.dev, stat.ino))
        };
        if stat.is_some_and(is_live) {
            return;
        }
        let is_tree = stat.is_some_and(|stat| stat.kind == Kind::Directory && stat.is_own());
        // If it stays, the name is still taken, which the caller sees.
        let _ = if is_tree { self.remove_tree(&hidden) } else { self.remove(&hidden) };
    }

    /// Writes a whole small file under its own name in a tree that is not sealed, with its metadata.
    /// False, and nothing is written, if its directory is in no such tree or the name is taken.
    ///
    /// `id` identifies the file; one that was written before is written again.
    ///
    /// # Errors
    /// I/O errors; the file is removed then.
    pub fn write_fresh(
        &self,
        id: EntryId,
        target: &RelPath,
        bytes: &[u8],
        mode: u32,
        meta: &Meta<'_>,
    ) -> io::Result<bool> {
        let parent = split(target.as_bytes()).0;
        self.make_if_planned(parent)?;
        if !self.fresh.any.load(Ordering::Acquire) {
            return Ok(false);
        }
        let _gate = self.fresh.gate.read();
        let (is_known, is_kept) = {
            let state = self.fresh.state();
            let is_known = state.files.contains_key(&id) || state.sealed.contains_key(&id);
            let is_kept = state.open.get(parent).map(|modes| {
                modes.iter().find(|(known, _)| *known == mode).map(|(_, is_kept)| *is_kept)
            });
            (is_known, is_kept)
        };
        if is_known {
            self.discard_ungated(id);
        }
        let Some(is_kept) = is_kept else { return Ok(false) };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let at_first = Mode::from_raw_mode(mode & 0o777);
        // A file that its owner may not write gets no attributes, so the mode is set afterwards.
        let has_attributes = meta.attributes.is_some_and(|wanted| !wanted.is_empty());
        let needs_more = has_attributes && mode & 0o600 != 0o600;
        let (at_first, is_kept) = match needs_more {
            true => (attributes::writable(at_first), Some(false)),
            false => (at_first, is_kept),
        };
        let made = self.with_place_ungated(target.as_bytes(), |place| {
            rustix::fs::openat(&place.dir, place.name, flags | OFlags::CLOEXEC, at_first)
        });
        let mut file = match made {
            // Another entry of the source has the same path.
            Err(e) if Errno::from_io_error(&e) == Some(Errno::EXIST) => return Ok(false),
            made => File::from(made?),
        };
        let written = file.write_all(bytes);
        let ready = written.and_then(|()| Ok(meta::apply_to_new_file(&file, mode, meta, is_kept)?));
        let (applied, was_kept) = ready.inspect_err(|_| {
            let _ = self.with_place_ungated(target.as_bytes(), |place| {
                rustix::fs::unlinkat(&place.dir, place.name, AtFlags::empty())
            });
        })?;
        self.note(applied);
        let mut state = self.fresh.state();
        if is_kept.is_none()
            && let Some(modes) = state.open.get_mut(parent)
            && !modes.iter().any(|(known, _)| *known == mode)
        {
            modes.push((mode, was_kept));
        }
        state.files.insert(id, target.clone());
        Ok(true)
    }

    /// Seals all trees: files written from now on get temporaries. Waits for files that are being
    /// written. Call it before the sync that covers the trees; true if there are any.
    pub fn seal_trees(&self) -> bool {
        if !self.fresh.any.load(Ordering::Acquire) {
            return false;
        }
        let _gate = self.fresh.gate.write();
        let mut state = self.fresh.state();
        state.open.clear();
        state.trees.values_mut().for_each(|tree| tree.is_sealed = true);
        let files = std::mem::take(&mut state.files);
        state.sealed.extend(files);
        true
    }

    /// The files of sealed trees under their own names.
    pub fn sealed_files(&self) -> Vec<EntryId> {
        self.fresh.state().sealed.keys().copied().collect()
    }

    /// Whether a tree is sealed and has not its name.
    pub fn has_sealed_trees(&self) -> bool {
        self.fresh.any.load(Ordering::Acquire)
            && self.fresh.state().trees.values().any(|tree| tree.is_sealed)
    }

    /// Gives all sealed trees their names, after a sync that began after they were sealed. The files
    /// in `unverified` become temporaries before. If a directory has the name of a tree meanwhile,
    /// the content of the tree moves into it, name by name. Returns the trees that could not get
    /// their names, and what of a tree could not move; files of [`Root::write_fresh`] in both fail in
    /// [`Root::take_named`] and [`Root::naming_error`].
    pub fn publish_trees(&self, tag: &str, unverified: &[EntryId]) -> Vec<(Vec<u8>, io::Error)> {
        let mut remains = Vec::new();
        let failed = {
            let _gate = self.fresh.gate.write();
            for id in unverified {
                self.make_temporary(*id, tag);
            }
            let trees = self.fresh.state().trees.clone();
            let told = self.fresh.state().failed.len();
            for (path, tree) in trees.into_iter().filter(|(_, tree)| tree.is_sealed) {
                match self.publish(&path, &tree, &mut remains) {
                    Ok(()) => {
                        self.fresh.state().trees.remove(&path);
                    }
                    Err(error) if self.fresh.state().error(&path).is_none() => {
                        self.fresh.state().failed.push((path, error));
                    }
                    // Reported before.
                    Err(_) => {}
                }
            }
            let mut state = self.fresh.state();
            let sealed = std::mem::take(&mut state.sealed);
            let failed = without_files(&state.failed[told..], &sealed);
            state.named.extend(sealed.into_keys());
            self.fresh.any.store(!state.trees.is_empty(), Ordering::Release);
            failed
        };
        remains.into_iter().for_each(|hidden| self.remove_hidden(hidden));
        failed
    }

    /// Turns a file of a sealed tree into its temporary.
    fn make_temporary(&self, id: EntryId, tag: &str) {
        let Some(target) = self.fresh.state().sealed.remove(&id) else { return };
        let renamed = self.with_place_ungated(target.as_bytes(), |place| {
            let temp = name(place.name, tag, self.name_max);
            rustix::fs::renameat(&place.dir, place.name, &place.dir, &temp).inspect_err(|_| {
                let _ = rustix::fs::unlinkat(&place.dir, place.name, AtFlags::empty());
            })
        });
        match renamed {
            Ok(()) => self.made.insert(&target, None),
            Err(error) => {
                let error = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                self.fresh.state().failed.push((target.into_bytes().into(), error));
            }
        }
    }

    fn publish(&self, path: &[u8], tree: &Tree, remains: &mut Vec<Vec<u8>>) -> Result<(), Errno> {
        let (parent, last) = split(path);
        let published = self.with_place_ungated(path, |place| {
            // One handle for the check and the change: the name may lead elsewhere a moment later.
            let fd = beneath::open_no_follow(place.dir.as_fd(), place.name, OFlags::PATH)?;
            let stat = Stat::from(&rustix::fs::fstat(&fd)?);
            if stat.kind != Kind::Directory || (stat.dev, stat.ino) != tree.file {
                return Err(Errno::NOENT);
            }
            if stat.mode != tree.mode {
                meta::no_modes_is_fine(change_mode_of(&fd, place, tree.mode))?;
            }
            rename_dir(&place.dir, place.name, &place.dir, last).map(|()| true).or_else(|error| {
                // A directory that was made meanwhile. Everything else fails as `mkdir` would.
                match error {
                    Errno::EXIST | Errno::NOTEMPTY => self.merge(place, last, path).map(|()| false),
                    error => Err(error),
                }
            })
        });
        if !published.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))? {
            self.parents.forget(path);
            remains.push(root::join(parent, &tree.hidden));
        }
        Ok(())
    }

    /// Moves the content of a tree, whose top is `place`, into the directory `last` beside it. Files
    /// replace files of the same name, as their renames would.
    fn merge(&self, place: &Place<'_>, last: &[u8], path: &[u8]) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let from = beneath::open_no_follow(place.dir.as_fd(), place.name, flags)?;
        let to = beneath::open_no_follow(place.dir.as_fd(), last, OFlags::PATH | OFlags::DIRECTORY)
            .map_err(|error| if error == Errno::LOOP { Errno::NOTDIR } else { error })?;
        // Paths are queued instead of open directories, so that depth uses no file descriptors.
        let mut waiting = vec![Vec::new()];
        while let Some(dir) = waiting.pop() {
            if let Err(error) = self.merge_dir(&from, &to, &dir, path, &mut waiting) {
                self.fail(root::join(path, &dir), &error);
            }
        }
        Ok(())
    }

    fn merge_dir(
        &self,
        from: &OwnedFd,
        to: &OwnedFd,
        dir: &[u8],
        path: &[u8],
        waiting: &mut Vec<Vec<u8>>,
    ) -> io::Result<()> {
        let at = if dir.is_empty() { b"." } else { dir };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let from = beneath::open_by_component(from.as_fd(), at, flags)?;
        let to = beneath::open_by_component(to.as_fd(), at, OFlags::PATH | OFlags::DIRECTORY)?;
        for item in root::read_items(from.as_fd(), usize::MAX)? {
            let below = root::join(dir, &item.name);
            let moved = match item.kind {
                Kind::Directory => rename_dir(&from, &item.name, &to, &item.name),
                _ => rustix::fs::renameat(&from, &item.name, &to, &item.name),
            };
            match moved {
                Ok(()) => {}
                Err(Errno::EXIST | Errno::NOTEMPTY) if item.kind == Kind::Directory => {
                    waiting.push(below);
                }
                Err(error) => self.fail(root::join(path, &below), &error.into()),
            }
        }
        Ok(())
    }

    fn fail(&self, path: Vec<u8>, error: &io::Error) {
        let error = Errno::from_io_error(error).unwrap_or(Errno::IO);
        self.fresh.state().failed.push((path.into(), error));
    }

    /// Whether `target` has its name, if it was written by [`Root::write_fresh`] and is not a
    /// temporary since. The answer is given once.
    pub fn take_named(&self, id: EntryId, target: &RelPath) -> Option<io::Result<()>> {
        let mut state = self.fresh.state();
        if !state.named.remove(&id) {
            return None;
        }
        Some(state.error(target.as_bytes()).map_or(Ok(()), |error| Err(error.into())))
    }

    /// Why `target` cannot get its name: it is in a tree that did not get its own.
    ///
    /// # Errors
    /// The error of the tree.
    pub fn naming_error(&self, target: &RelPath) -> io::Result<()> {
        self.fresh.state().error(target.as_bytes()).map_or(Ok(()), |error| Err(error.into()))
    }

    /// Removes a file that [`Root::write_fresh`] wrote, if its tree has not its name; false if there
    /// is no such file.
    pub fn discard_fresh(&self, id: EntryId) -> bool {
        let _gate = self.fresh.gate.read();
        self.discard_ungated(id)
    }

    fn discard_ungated(&self, id: EntryId) -> bool {
        let file = {
            let mut state = self.fresh.state();
            state.files.remove(&id).or_else(|| state.sealed.remove(&id))
        };
        let Some(target) = file else { return false };
        let _ = self.with_place_ungated(target.as_bytes(), |place| {
            rustix::fs::unlinkat(&place.dir, place.name, AtFlags::empty())
        });
        true
    }

    /// Ends all trees at the end of a run. Files that no sync covered are removed; what is left, the
    /// directories and the temporaries that a later run resumes, gets its name. A tree that cannot
    /// get its name is removed. Call it after all writes have ended.
    pub fn finish_trees(&self, tag: &str) {
        if !self.seal_trees() {
            return;
        }
        for id in self.sealed_files() {
            self.discard_fresh(id);
        }
        self.publish_trees(tag, &[]);
        let trees = {
            let mut state = self.fresh.state();
            self.fresh.any.store(false, Ordering::Release);
            std::mem::take(&mut state.trees)
        };
        for (path, tree) in trees {
            self.remove_hidden(root::join(split(&path).0, &tree.hidden));
            self.parents.forget(&path);
        }
    }

    fn remove_hidden(&self, path: Vec<u8>) {
        if let Ok(path) = RelPath::new(path) {
            // What cannot be removed is left for `clean`.
            let _ = self.remove_tree(&path);
        }
    }
}

/// The failures of all but these files, which tell their own ([`Root::take_named`]).
fn without_files(
    failed: &[(Box<[u8]>, Errno)],
    files: &HashMap<EntryId, RelPath>,
) -> Vec<(Vec<u8>, io::Error)> {
    if failed.is_empty() {
        return Vec::new();
    }
    let files: HashSet<&[u8]> = files.values().map(RelPath::as_bytes).collect();
    let others = failed.iter().filter(|(path, _)| !files.contains(&**path));
    others.map(|(path, error)| (path.to_vec(), (*error).into())).collect()
}

/// Opens the top of a tree that was just made, and makes it private; none if it is not this user's
/// own or cannot be private without the loss of its set-group-id bit. The status has the mode that
/// the kernel gave it.
fn open_top(dir: BorrowedFd<'_>, hidden: &[u8]) -> Result<Option<(OwnedFd, Stat)>, Errno> {
    let fd = beneath::open_no_follow(dir, hidden, OFlags::PATH | OFlags::DIRECTORY)?;
    let stat = Stat::from(&rustix::fs::fstat(&fd)?);
    if !stat.is_own() {
        return Ok(None);
    }
    if stat.mode & 0o777 == HIDDEN_MODE {
        return Ok(Some((fd, stat)));
    }
    let special = stat.mode & 0o7000;
    let place = Place { dir: Parent::Borrowed(dir), name: hidden };
    meta::no_modes_is_fine(change_mode_at(&place, special | HIDDEN_MODE))?;
    // The kernel drops the bit if this user is not in the group of the directory.
    let is_kept = special == 0 || Stat::from(&rustix::fs::fstat(&fd)?).mode & 0o7000 == special;
    Ok(is_kept.then_some((fd, stat)))
}

/// Renames a directory to a name that nothing has.
fn rename_dir(from: impl AsFd, old: &[u8], to: impl AsFd, new: &[u8]) -> Result<(), Errno> {
    let (from, to) = (from.as_fd(), to.as_fd());
    match rustix::fs::renameat_with(from, old, to, new, RenameFlags::NOREPLACE) {
        // NFS and old kernels. Without the flag a directory replaces only an empty directory.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            rustix::fs::renameat(from, old, to, new)
        }
        renamed => renamed,
    }
}

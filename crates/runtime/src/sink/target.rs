//! The destination on disk: locations of entries, their temporaries and their metadata.

mod attributes;
mod backup;
mod leftovers;
mod links;
mod metadata;
mod pieces;
mod rules;
mod spellings;

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use packtrain_disk::{Meta, Root, Trouble, write};
use packtrain_object::{CHUNK, Digest, Entry, EntryId, EntryKind, RelPath, digest::FileHasher};
use packtrain_transfer::message::{Options, Resume};
use packtrain_transfer::{Failure, FailureKind, Found, FoundKind, TargetState};

use super::delete;
use crate::assembly::SMALL_FILE_BYTES;
use crate::traces::is_working_file;
pub use leftovers::Leftovers;
use packtrain_service::paths::show;
pub(crate) use pieces::SharedTarget;

/// Maximum files that are synced one by one instead of with their whole file system.
const MAX_SINGLE_SYNCS: usize = 8;
/// Maximum files kept open between writes.
const OPEN_FILES: usize = 64;

/// The destination.
pub(crate) struct Target {
    pub(crate) root: Arc<Root>,
    /// The path of the destination for messages.
    shown: Vec<u8>,
    /// Path below the root that contains all entries.
    prefix: RelPath,
    /// The name of the single file, if the destination names a file.
    rename: Option<RelPath>,
    /// Tag of the temporaries of this transfer.
    pub(crate) tag: String,
    options: Options,
    open: Mutex<OpenFiles>,
    /// Large files written since the last sync, while there are few.
    dirty: Mutex<Dirty>,
    /// The stream, once it has ended.
    stream: Mutex<Option<EntryId>>,
    /// Whether files were renamed since the last sync.
    pub(crate) renamed: AtomicBool,
    /// Whether owners may be set; otherwise each entry counts as not owned.
    owners: bool,
    not_owned: AtomicU64,
    /// Directories that this transfer creates, which are empty before.
    fresh: Mutex<std::collections::HashSet<Vec<u8>>>,
    /// Names that `--delete` removed to make room for entries.
    room: Mutex<delete::Room>,
    /// The filter rules, for what `--delete` keeps.
    rules: rules::Rules,
    /// Names that the target spells in another way, for `--delete`.
    spellings: spellings::Spellings,
    /// Names that could not become hard links.
    unlinked: AtomicU64,
    /// Entries whose extended attributes are none that the file system can have.
    unattributed: AtomicU64,
    /// The same for access control lists.
    unlisted: AtomicU64,
    /// Entries whose mode or time could not be set.
    unsettled: AtomicU64,
    /// The source has names in the directory for backups.
    fills_backups: AtomicBool,
}

/// Data that the next sync must cover.
#[derive(Default)]
struct Dirty {
    files: HashMap<EntryId, Arc<File>>,
    /// Too many files to sync one by one: syncs the whole file system.
    many: bool,
}

#[derive(Default)]
struct OpenFiles {
    files: HashMap<EntryId, (Arc<File>, u64)>,
    clock: u64,
}

impl Target {
    pub(crate) fn new(
        (root, shown): (Arc<Root>, Vec<u8>),
        prefix: RelPath,
        rename: Option<RelPath>,
        tag: String,
        options: Options,
        owners: bool,
    ) -> Self {
        let (open, fresh) = (Mutex::default(), Mutex::default());
        let (dirty, stream, renamed) = (Mutex::default(), Mutex::default(), AtomicBool::new(false));
        let not_owned = AtomicU64::new(0);
        let rules = rules::Rules::new(&options);
        Self {
            root,
            shown,
            prefix,
            rename,
            tag,
            options,
            open,
            dirty,
            stream,
            renamed,
            owners,
            not_owned,
            fresh,
            room: Mutex::default(),
            rules,
            spellings: spellings::Spellings::default(),
            unlinked: AtomicU64::new(0),
            unattributed: AtomicU64::new(0),
            unlisted: AtomicU64::new(0),
            unsettled: AtomicU64::new(0),
            fills_backups: AtomicBool::new(false),
        }
    }

    /// Whether the destination names a file instead of a directory.
    pub(crate) fn is_renamed(&self) -> bool {
        self.rename.is_some()
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// The name of the source that the target spells as `path`.
    pub(super) fn respelled(&self, path: &[u8]) -> Option<Vec<u8>> {
        self.spellings.of_source(path)
    }

    /// Whether each name in `dir` that is not one of the source is known to be none.
    pub(super) fn knows_spellings(&self, dir: &[u8]) -> bool {
        self.spellings.is_sure(dir)
    }

    pub(super) fn room(&self) -> MutexGuard<'_, delete::Room> {
        self.room.lock()
    }

    /// The location of this entry below the root.
    pub(crate) fn place(&self, entry: &Entry) -> Result<RelPath, Failure> {
        if let Some(name) = &self.rename {
            return Ok(name.clone());
        }
        if self.has_own_tag(entry.path.as_bytes()) {
            let path = show(entry.path.as_bytes());
            let text = format!("{path}: has the name of a temporary of this very transfer");
            return Err(Failure::new(FailureKind::TargetRefused, text));
        }
        // A later transfer would take a journal or temporary from the source for its own.
        if is_working_file(entry) {
            let path = show(entry.path.as_bytes());
            let text = format!("{path}: has the name of a temporary file of packtrain");
            return Err(Failure::new(FailureKind::TargetRefused, text));
        }
        self.below(entry.path.as_bytes())
    }

    /// Whether a path has the mark and tag of this transfer's temporaries.
    fn has_own_tag(&self, path: &[u8]) -> bool {
        let dots = path.iter().enumerate().filter(|(_, b)| **b == b'.').map(|(at, _)| &path[at..]);
        let rests = dots.filter_map(|rest| rest.strip_prefix(b".packtrain-"));
        rests.into_iter().any(|rest| rest.starts_with(self.tag.as_bytes()))
    }

    /// Whether nothing has the name of the destination: a dry run does not make it.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self.root.stat(&self.prefix), Ok(None))
    }

    /// `path` below the prefix.
    pub(crate) fn below(&self, path: &[u8]) -> Result<RelPath, Failure> {
        let joined = match (self.prefix.is_root(), path.is_empty()) {
            (true, _) => path.to_vec(),
            (false, true) => self.prefix.as_bytes().to_vec(),
            (false, false) => [self.prefix.as_bytes(), b"/", path].concat(),
        };
        if joined.is_empty() {
            return Ok(RelPath::root());
        }
        RelPath::new(joined)
            .map_err(|e| Failure::new(FailureKind::TargetRefused, format!("{}: {e}", show(path))))
    }

    fn failure(&self, entry: &Entry, what: &str, error: &io::Error) -> Failure {
        let trouble = self.root.trouble(error);
        let kind = kind_of(trouble);
        let path = show(entry.path.as_bytes());
        if trouble.is_whole_target() {
            return Failure::new(kind, format!("{}: {}", show(&self.shown), trouble.sentence()));
        }
        match trouble {
            Trouble::Other => Failure::new(kind, format!("{path}: {what}: {error}")),
            known => Failure::new(kind, format!("{path}: {what}: {}", known.sentence())),
        }
    }

    /// The state of the target of `entry`.
    pub(crate) fn examine(&self, entry: &Entry) -> TargetState {
        let nothing = TargetState { target: None, temporary: None };
        let Ok(place) = self.place(entry) else { return nothing };
        self.note_backup_name(entry.path.as_bytes());
        let is_dir = entry.kind == EntryKind::Directory;
        if self.is_fresh(&place) {
            self.note_fresh(is_dir, place);
            return nothing;
        }
        let stat = self.root.stat(&place).ok().flatten();
        if self.options.delete && stat.is_some() && !self.is_renamed() && !entry.path.is_root() {
            let respell = !self.options.dry_run && !self.options.verify;
            self.spellings.found(&self.root, &entry.path, &place, respell);
        }
        let is_dir_there = stat.is_some_and(|stat| stat.kind == packtrain_disk::Kind::Directory);
        // With --ignore-existing a link stays, and so does what it leads to.
        let stays = self.options.extra.ignore_existing && is_dir && stat.is_some();
        if !is_dir_there && !stays {
            // A directory replaces a link to a directory, so the link's contents do not count.
            self.note_fresh(is_dir, place.clone());
        }
        let extra = &self.options.extra;
        let is_left_out = extra.ignore_existing || extra.skips_size(entry);
        let in_the_way = is_dir_there && !is_dir && !is_left_out;
        if in_the_way && self.options.delete && self.options.dry_run {
            // A real run does this when it renames the entry.
            if let Err(failure) = self.make_room(entry, &place) {
                self.room().refuse(entry.path.as_bytes(), failure);
            }
        }
        let target = stat.map(|stat| Found {
            kind: match stat.kind {
                packtrain_disk::Kind::File => FoundKind::File,
                packtrain_disk::Kind::Directory => FoundKind::Directory,
                packtrain_disk::Kind::Symlink => FoundKind::Symlink,
                _ => FoundKind::Other,
            },
            size: stat.size,
            // A time that the file system cannot keep better is that of the source.
            mtime: if stat.mtime.is_stored(entry.mtime, stat.ctime_nanos) {
                entry.mtime
            } else {
                stat.mtime
            },
            mode: self.mode_there(entry, stat.mode),
            same_link: matches!(&entry.kind, EntryKind::Symlink { target }
                if stat.kind == packtrain_disk::Kind::Symlink
                    && self.root.read_link(&place).is_ok_and(|there| there == *target)),
            same_attributes: stat.kind == packtrain_disk::Kind::Symlink
                || self.has_attributes(entry, &place) && self.has_acls(entry, &place),
            makes_way: in_the_way
                && (self.options.delete
                    || self.root.list(&place).is_ok_and(|items| items.is_empty())),
        });
        let temporary = if self.options.inplace {
            // The file itself is the unfinished result of an earlier run.
            target.filter(|found| found.kind == FoundKind::File).map(|found| found.size)
        } else if self.is_resumable(entry) {
            self.root.temp_stat(&place, &self.tag).ok().flatten().map(|stat| stat.size)
        } else {
            None
        };
        TargetState { target, temporary }
    }

    fn note_fresh(&self, is_dir: bool, place: RelPath) {
        if is_dir {
            self.fresh.lock().insert(place.into_bytes());
        }
    }

    fn is_fresh(&self, place: &RelPath) -> bool {
        let fresh = self.fresh.lock();
        place.parent().is_some_and(|parent| fresh.contains(parent.as_bytes()))
    }

    /// Plans or creates a directory that its owner can access until its final mode is set.
    pub(crate) fn make_directory(&self, entry: &Entry) -> Result<(), Failure> {
        let place = self.place(entry)?;
        if place.is_root() {
            return Ok(());
        }
        let what = "cannot make the directory";
        // A directory that was just created is empty.
        let there =
            if self.is_fresh(&place) { None } else { self.root.stat(&place).ok().flatten() };
        match there.map(|stat| stat.kind) {
            Some(packtrain_disk::Kind::Directory) => {}
            Some(packtrain_disk::Kind::File | packtrain_disk::Kind::Symlink) => {
                if self.back_up(&place)? != packtrain_disk::Kept::Renamed {
                    self.root.remove(&place).map_err(|e| self.failure(entry, what, &e))?;
                }
                self.note_fresh(true, place.clone());
            }
            Some(packtrain_disk::Kind::Special) | None => self.note_fresh(true, place.clone()),
        }
        let mode = metadata::without_list(entry, entry.permissions().unwrap_or(0o777));
        let mode = (mode | 0o700) & 0o777;
        // With `--inplace` data goes to its name at once.
        if there.is_none() && !self.options.inplace {
            self.root.plan_dir(&place, mode, &self.tag);
            return Ok(());
        }
        self.root.make_dir(&place, mode).map_err(|e| self.failure(entry, what, &e))
    }

    /// Makes the directories that nothing was put into, before directories get their metadata.
    pub(crate) fn make_empty_directories(&self) {
        self.renamed.store(true, Ordering::Release);
        for (path, error) in self.root.make_planned() {
            self.directory_failed(&path, "cannot make the directory", &error);
        }
        self.root.seal_trees();
        self.publish(&[]);
    }

    /// Gives the directories that a sync covered their names; `unverified` are the files in them of
    /// which nobody knows whether they are right. Tells what could not get its name, except files.
    pub(crate) fn publish(&self, unverified: &[EntryId]) {
        self.renamed.store(true, Ordering::Release);
        for (path, error) in self.root.publish_trees(&self.tag, unverified) {
            self.directory_failed(&path, "cannot be put in its place", &error);
        }
    }

    fn directory_failed(&self, path: &[u8], what: &str, error: &io::Error) {
        let prefix = self.prefix.as_bytes();
        let below = path.strip_prefix(prefix).and_then(|path| path.strip_prefix(b"/"));
        let path = below.filter(|_| !prefix.is_empty()).unwrap_or(path);
        let trouble = self.root.trouble(error);
        let text = format!("{what}: {}", trouble.sentence());
        self.room().refuse(path, Failure::new(kind_of(trouble), text));
    }

    pub(crate) fn make_symlink(&self, entry: &Entry) -> Result<(), Failure> {
        let EntryKind::Symlink { target } = &entry.kind else { return Ok(()) };
        let place = self.place(entry)?;
        self.back_up(&place)?;
        let made = match self.root.make_symlink(&place, target) {
            Err(e) if packtrain_disk::classify(&e) == Trouble::IsDirectory => {
                self.make_room(entry, &place)?;
                self.root.make_symlink(&place, target)
            }
            made => made,
        };
        made.map_err(|e| self.failure(entry, "cannot make the symbolic link", &e))?;
        self.renamed.store(true, Ordering::Release);
        let meta = Meta { mode: None, ..self.meta(entry) };
        let _ = self.root.settle(&place, &meta);
        Ok(())
    }

    /// Removes the directory in the place of a file or link: an empty one, or with `--delete` any.
    fn make_room(&self, entry: &Entry, place: &RelPath) -> Result<(), Failure> {
        if self.options.delete {
            // The remover's paths are relative to the directory of the destination.
            let path = self.rename.as_ref().unwrap_or(&entry.path).as_bytes();
            let prefix = self.prefix.as_bytes();
            let below = path.strip_prefix(prefix).and_then(|path| path.strip_prefix(b"/"));
            let inside = self.rename.is_some() && !prefix.is_empty();
            return delete::make_room(self, below.filter(|_| inside).unwrap_or(path));
        }
        self.root
            .remove(place)
            .map_err(|e| self.failure(entry, "cannot remove the directory in its place", &e))
    }

    pub(crate) fn commit(&self, id: EntryId, entry: &Entry) -> Result<(), Failure> {
        self.close(id);
        self.renamed.store(true, Ordering::Release);
        let place = self.place(entry)?;
        let stays = |e: &io::Error| self.failure(entry, "cannot put the file in its place", e);
        if matches!(entry.kind, EntryKind::Symlink { .. }) {
            return self.root.naming_error(&place).map_err(|e| stays(&e));
        }
        if let Some(named) = self.root.take_named(id, &place) {
            return named.map_err(|e| stays(&e));
        }
        if self.in_place(entry) {
            let mut meta = self.meta(entry);
            if meta.mode.is_none()
                && let Ok(Some(stat)) = self.root.stat(&place)
            {
                // A file with new content loses the set-user-id and set-group-id bits.
                meta.mode = Some(stat.mode & 0o777);
            }
            let settled = self.root.settle(&place, &meta);
            return settled.map_err(|e| self.failure(entry, "cannot set mode and time", &e));
        }
        self.root.naming_error(&place).map_err(|e| stays(&e))?;
        self.back_up(&place)?;
        let is_ready = self.mode_when_written(entry).is_some() && !self.is_stream(id);
        let meta = (!is_ready).then(|| self.meta(entry));
        let rename = || match &meta {
            None => self.root.commit_ready(&place, &self.tag),
            Some(meta) => self.root.commit(&place, &self.tag, meta),
        };
        let named = match rename() {
            Err(e) if packtrain_disk::classify(&e) == Trouble::IsDirectory => {
                self.make_room(entry, &place)?;
                rename()
            }
            named => named,
        };
        named.map_err(|e| stays(&e))
    }

    pub(crate) fn discard(&self, id: EntryId, entry: &Entry) {
        self.close(id);
        if self.root.discard_fresh(id) {
            return;
        }
        if let Ok(place) = self.place(entry)
            && !self.in_place(entry)
        {
            let _ = self.root.remove_temp(&place, &self.tag);
        }
    }

    /// The root digest of the file at the entry's target.
    pub(crate) fn hash(&self, entry: &Entry) -> Option<Digest> {
        let file = self.root.open_read(&self.place(entry).ok()?).ok()?;
        hash_file(&file)
    }

    /// The mode with which a small file's temporary is created; none if the mode depends on the
    /// replaced file.
    fn mode_when_written(&self, entry: &Entry) -> Option<u32> {
        self.mode(entry).filter(|_| entry.size().is_some_and(|size| size <= SMALL_FILE_BYTES))
    }

    /// Whether this entry is a stream, whose size was known only at its end.
    fn is_stream(&self, id: EntryId) -> bool {
        *self.stream.lock() == Some(id)
    }

    /// Whether a later run can resume the entry's temporary: only files in the journal, which have
    /// more than one chunk.
    fn is_resumable(&self, entry: &Entry) -> bool {
        self.options.resume != Resume::Off && entry.size().is_some_and(|size| size > CHUNK.get())
    }

    fn in_place(&self, entry: &Entry) -> bool {
        self.options.inplace && entry.size() != Some(0)
    }

    fn is_symlink(&self, place: &RelPath) -> bool {
        let stat = self.root.stat(place).ok().flatten();
        stat.is_some_and(|stat| stat.kind == packtrain_disk::Kind::Symlink)
    }

    /// Closes all files, whose locks another transfer may wait for (`--inplace`).
    pub(crate) fn close_all(&self) {
        self.open.lock().files.clear();
        let mut dirty = self.dirty.lock();
        dirty.many |= !dirty.files.is_empty();
        dirty.files.clear();
    }

    fn close(&self, id: EntryId) {
        self.open.lock().files.remove(&id);
    }

    fn file(&self, id: EntryId, entry: &Entry) -> Result<Arc<File>, Failure> {
        let mut open = self.open.lock();
        open.clock += 1;
        let clock = open.clock;
        if let Some((file, used)) = open.files.get_mut(&id) {
            *used = clock;
            return Ok(Arc::clone(file));
        }
        let place = self.place(entry)?;
        let size = entry.size();
        let opened = if self.in_place(entry) {
            let keep_mode = self.mode(entry).is_none();
            match self.root.open_in_place(&place, size, keep_mode) {
                Err(e) if packtrain_disk::classify(&e) == Trouble::IsDirectory => {
                    self.make_room(entry, &place)?;
                    self.root.open_in_place(&place, size, keep_mode)
                }
                // A link is replaced, as it is without `--inplace`.
                Err(_) if self.is_symlink(&place) => self
                    .root
                    .remove(&place)
                    .and_then(|()| self.root.open_in_place(&place, size, keep_mode)),
                opened => opened,
            }
        } else {
            // The temporary is to be resumed, or this run closed it and opens it again.
            let keep = self.is_resumable(entry) || self.root.has_temp(&place);
            self.root.open_temp(&place, &self.tag, size.unwrap_or(0), keep)
        };
        let file = opened.map_err(|e| self.failure(entry, "cannot write", &e))?;
        // A sync of the file alone does not cover its new name.
        self.dirty.lock().many = true;
        let file = Arc::new(file);
        // The file of a stream is never closed, because opening it again would lose its length.
        if open.files.len() >= OPEN_FILES {
            let oldest = open.files.iter().min_by_key(|(_, (_, used))| *used).map(|(id, _)| *id);
            if let Some(oldest) = oldest {
                open.files.remove(&oldest);
            }
        }
        open.files.insert(id, (Arc::clone(&file), clock));
        Ok(file)
    }

    /// Syncs everything written so far. Few large files are synced individually, because a sync of
    /// the file system would also wait for data of other programs.
    pub(crate) fn sync(&self) -> io::Result<()> {
        // Sealed first: what is in the trees was written before the sync.
        let any_trees = self.root.seal_trees();
        let dirty = std::mem::take(&mut *self.dirty.lock());
        if dirty.many || any_trees {
            return self.root.sync();
        }
        dirty.files.values().try_for_each(|file| write::sync_data(file))
    }

    fn mark_dirty(&self, id: EntryId, file: &Arc<File>) {
        let mut dirty = self.dirty.lock();
        if dirty.many || dirty.files.contains_key(&id) {
            return;
        }
        dirty.files.insert(id, Arc::clone(file));
        if dirty.files.len() > MAX_SINGLE_SYNCS {
            *dirty = Dirty { files: HashMap::new(), many: true };
        }
    }

    /// Sets the length of a stream's file when the stream ends.
    pub(crate) fn set_len(&self, id: EntryId, entry: &Entry, len: u64) -> Result<(), Failure> {
        *self.stream.lock() = Some(id);
        let file = self.file(id, entry)?;
        file.set_len(len).map_err(|e| self.failure(entry, "cannot set the length", &e))
    }
}

/// The BLAKE3 digest of a whole file; `None` if it cannot be read.
pub fn hash_file(file: &File) -> Option<Digest> {
    let mut hasher = FileHasher::new();
    let mut buffer = vec![0; CHUNK.get() as usize];
    let mut at = 0;
    loop {
        let n = file.read_at(&mut buffer, at).ok()?;
        if n == 0 {
            return Some(hasher.root());
        }
        hasher.update(&buffer[..n]);
        at += n as u64;
    }
}

/// The kind of failure for an error at the target.
pub fn kind_of(trouble: Trouble) -> FailureKind {
    match trouble {
        t if t.is_full() => FailureKind::TargetFull,
        Trouble::ReadOnly => FailureKind::TargetRefused,
        Trouble::NotFound => FailureKind::TargetMissing,
        _ => FailureKind::TargetRefused,
    }
}

#[cfg(test)]
mod tests;

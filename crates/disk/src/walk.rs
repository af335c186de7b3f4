//! The walk over the sources: a stream of entries, parents before children. Its memory is bounded
//! by depth times directory size.
//!
//! Directories follow rsync's rule: `dir/` (and `dir/.`, `.`, `..`) means the contents of the
//! directory, `dir` the directory with its name. An unreadable path is a failure of that path, and
//! the walk continues. Pipes, sockets and devices are skipped and counted. Each name of a file is an
//! entry; [`WalkItem::identity`] tells which are names of the same file.

mod list;
mod listed;
mod rules;
mod source;

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use packtrain_object::{
    Acls, Attributes, Entry, EntryKind, Extras, Filters, PATH_TAKEN, RelPath, TreeFilter,
};
use rustix::io::Errno;

use super::acls;
use super::attributes::Attributed;
use super::leftover::LeftoverName;
use super::root::{DirItem, Follow, Root, join, not_moved};
use super::stat::{Kind, Stat};
use list::Listed;
use source::Sources;

/// Options of the walk.
#[derive(Clone, Debug, Default)]
pub struct WalkOptions {
    /// Enter directories; otherwise a directory among the sources is a failure.
    pub recursive: bool,
    /// The filter rules.
    pub filters: Filters,
    /// Return the files of rules of each directory ([`WalkItem::rules`]).
    pub report_rules: bool,
    /// Walk only these names beneath the single source, with their parent directories
    /// (`--files-from`); see [`names`](packtrain_object::filter::names).
    pub files_from: Option<Vec<Vec<u8>>>,
    /// Copy what a symbolic link leads to (`--copy-links`).
    pub copy_links: bool,
    /// Do not enter directories of other file systems (`--one-file-system`).
    pub one_file_system: bool,
    /// Read extended attributes of users (`--xattrs`).
    pub attributes: bool,
    /// Read access control lists (`--acls`).
    pub acls: bool,
}

/// An entry of the walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalkItem {
    /// The entry, with its name at the target.
    pub entry: Entry,
    /// The index of its root in [`Walker::roots`].
    pub root: usize,
    /// Its path beneath the root.
    pub source: RelPath,
    /// The index of its source among the arguments.
    pub argument: usize,
    /// Whether it is a directory of another file system, which was not entered.
    pub is_mount_point: bool,
    /// Device and inode of what its path leads to.
    pub identity: (u64, u64),
    /// Number of names of what its path leads to.
    pub names: u64,
    /// Why its extended attributes are not kept, if they were to be.
    pub no_attributes: Option<NotRead>,
    /// The same for its access control lists.
    pub no_acls: Option<NotRead>,
    /// Of a directory that is entered: the numbers and contents of the files of rules in it, if the
    /// walk returns them.
    pub rules: Vec<(u32, Vec<u8>)>,
}

/// Why extended attributes or access control lists are not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotRead {
    /// The file system has none.
    Unsupported,
    /// They are too many or too long.
    TooLarge,
}

/// A path that cannot be transferred.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", String::from_utf8_lossy(path))]
pub struct WalkFailure {
    /// The path as the user names it.
    pub path: Vec<u8>,
    /// Whether it is one of the sources itself, not an entry in one.
    pub is_source: bool,
    /// Whether the user named it: a source, or a name of the list of files.
    pub is_named: bool,
    /// Whether it is a pipe, socket or device. That is no failure: it is skipped.
    pub is_special: bool,
    /// The reason.
    pub error: io::Error,
}

/// The walk: an iterator over entries and failures.
#[derive(Debug)]
pub struct Walker {
    sources: Sources,
    recursive: bool,
    filters: TreeFilter,
    report_rules: bool,
    /// A directory of the list of names whose files of rules cannot be read.
    bad_rules: Option<Vec<u8>>,
    /// Listed directories whose rules are known: each in the one before.
    listed_rules: Vec<Place>,
    copy_links: bool,
    one_file_system: bool,
    attributes: bool,
    acls: bool,
    listed: Option<Listed>,
    /// The last parent of a listed name that was not a directory.
    no_parent: Option<Vec<u8>>,
    next_source: usize,
    levels: Vec<Level>,
    /// The file system of the source that is being walked.
    device: Option<u64>,
    /// Results that were not returned yet: at most a directory and its failure.
    ready: VecDeque<Result<WalkItem, WalkFailure>>,
    failed: bool,
}

/// A directory that is being walked.
#[derive(Debug)]
struct Level {
    at: Place,
    items: std::vec::IntoIter<DirItem>,
    /// Device and inode of the directory.
    identity: (u64, u64),
}

/// The paths of an entry at the source and at the target.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    source: usize,
    /// Beneath the source's root.
    from: Vec<u8>,
    /// Beneath the target.
    to: Vec<u8>,
}

impl Walker {
    /// Prepares a walk over `sources` in their order. A source that cannot be opened fails at its
    /// turn.
    pub fn new(sources: &[PathBuf], options: WalkOptions) -> Self {
        let named = sources.iter().map(|path| path.as_os_str().as_bytes().to_vec());
        let follow = if options.copy_links { Follow::Anywhere } else { Follow::No };
        let open = |dir: &[u8]| {
            Root::open(Path::new(OsStr::from_bytes(dir))).map(|root| root.following(follow))
        };
        Self::over(named.collect(), open, options)
    }

    /// Prepares a walk over sources beneath `root`, for paths from a peer. Neither `..` nor a link
    /// leads out of the root, not even a source that is a link with a trailing slash. A leading
    /// slash means the root.
    pub fn beneath(root: &Root, sources: Vec<Vec<u8>>, options: WalkOptions) -> Self {
        let follow = if options.copy_links { Follow::Beneath } else { Follow::No };
        let open = |dir: &[u8]| root.open_beneath(dir).map(|root| root.following(follow));
        Self::over(sources, open, options)
    }

    fn over(
        named: Vec<Vec<u8>>,
        open: impl Fn(&[u8]) -> io::Result<Root>,
        options: WalkOptions,
    ) -> Self {
        let WalkOptions {
            recursive,
            filters,
            report_rules,
            files_from,
            copy_links,
            one_file_system,
            attributes,
            acls,
        } = options;
        let as_contents = files_from.is_some();
        Self {
            sources: Sources::open(named, open, as_contents),
            recursive,
            filters: TreeFilter::new(filters),
            report_rules,
            bad_rules: None,
            listed_rules: Vec::new(),
            copy_links,
            one_file_system,
            attributes,
            acls,
            listed: files_from.map(Listed::new),
            no_parent: None,
            next_source: 0,
            levels: Vec::new(),
            device: None,
            ready: VecDeque::new(),
            failed: false,
        }
    }

    /// The open directories that [`WalkItem::root`] refers to.
    pub fn roots(&self) -> &[Arc<Root>] {
        self.sources.roots()
    }

    /// The name of each source at the target; empty for a source that means its contents.
    pub fn target_names(&self) -> Vec<Vec<u8>> {
        self.sources.target_names()
    }

    /// Whether anything has failed so far. Nothing may be deleted at the target then.
    pub fn had_failures(&self) -> bool {
        self.failed
    }

    /// Does one step; false after the last.
    fn step(&mut self) -> bool {
        if let Some(level) = self.levels.last_mut() {
            match level.items.next() {
                // The tree of a transfer that runs here, or of an interrupted one.
                Some(item) if is_hidden_tree(&item) => {}
                Some(item) => {
                    let place = level.at.child(&item.name);
                    // With `--copy-links` only what the link leads to counts.
                    let is_link = self.copy_links && item.kind == Kind::Symlink;
                    self.visit(place, (!is_link).then_some(item.kind), self.recursive);
                }
                None => {
                    if let Some(level) = self.levels.pop() {
                        self.leave_rules(&level.at);
                    }
                }
            }
            return true;
        }
        if self.listed.is_some() && self.sources.len() == 1 {
            return self.step_listed();
        }
        if self.next_source == self.sources.len() {
            return false;
        }
        let source = self.next_source;
        self.next_source += 1;
        self.filters.clear_files();
        self.start(source);
        true
    }

    fn start(&mut self, source: usize) {
        let more_than_one = self.listed.is_some();
        match self.sources.first_place(source) {
            Ok(_) if more_than_one => {
                self.fail_source(
                    source,
                    io::Error::other("a list of files needs exactly one source directory"),
                );
            }
            Ok(place) => self.visit_source(place),
            Err(error) => self.fail_source(source, error),
        }
    }

    fn visit_source(&mut self, place: Place) {
        let source = place.source;
        let kind = match self.sources.stat(&place) {
            Ok(Some(stat)) => {
                self.device = Some(stat.dev);
                stat.kind
            }
            Ok(None) => return self.fail_source(source, Errno::NOENT.into()),
            Err(error) => return self.fail_source(source, error),
        };
        if kind == Kind::Directory && !self.recursive {
            let why = "is a directory; add -r to copy it with what is in it";
            return self.fail_source(source, io::Error::new(io::ErrorKind::IsADirectory, why));
        }
        self.visit(place, Some(kind), self.recursive);
    }

    /// Handles one path: returns it, enters it, skips it or fails it.
    fn visit(&mut self, place: Place, kind: Option<Kind>, enter: bool) {
        if let Some(kind) = kind
            && self.filters.excludes(&place.to, kind == Kind::Directory)
        {
            return;
        }
        let stat = match self.sources.stat(&place) {
            Ok(Some(stat)) => stat,
            Ok(None) => return self.fail_place(&place, self.missing(&place)),
            Err(error) => return self.fail_place(&place, error),
        };
        if kind != Some(stat.kind) && self.filters.excludes(&place.to, stat.kind == Kind::Directory)
        {
            return;
        }
        match self.sources.earlier(&place, &stat) {
            source::Earlier::None if stat.kind == Kind::Special => {
                return self.skip_special(&place);
            }
            source::Earlier::None => self.give(&place, &stat),
            source::Earlier::Same => {}
            source::Earlier::Other => {
                let error = io::Error::new(io::ErrorKind::AlreadyExists, PATH_TAKEN);
                return self.fail_place(&place, error);
            }
        }
        if stat.kind == Kind::Directory && enter && !self.is_mount_point(&stat) {
            self.enter(place, &stat);
        } else if stat.kind == Kind::Directory && self.listed.is_some() {
            self.take_listed_rules(&place);
        }
    }

    /// Why there is no file at a place that was listed.
    fn missing(&self, place: &Place) -> io::Error {
        // The name of a link exists, and what it leads to does not.
        if self.copy_links && self.sources.is_link(place) {
            return io::Error::other("is a link whose target does not exist");
        }
        Errno::NOENT.into()
    }

    fn is_mount_point(&self, stat: &Stat) -> bool {
        self.one_file_system && self.device.is_some_and(|device| device != stat.dev)
    }

    fn skip_special(&mut self, place: &Place) {
        let path = self.sources.shown(place);
        self.ready.push_back(Err(WalkFailure {
            path,
            is_source: false,
            is_named: false,
            is_special: true,
            error: not_moved(),
        }));
    }

    fn give(&mut self, place: &Place, stat: &Stat) {
        match self.entry(place, stat) {
            Ok(item) => self.ready.push_back(Ok(item)),
            Err(error) => self.fail_place(place, error),
        }
    }

    fn entry(&self, place: &Place, stat: &Stat) -> io::Result<WalkItem> {
        let path = rel_path(&place.to)?;
        let source = rel_path(&place.from)?;
        let kind = match stat.kind {
            Kind::File => EntryKind::File { size: stat.size },
            Kind::Directory => EntryKind::Directory,
            Kind::Symlink => {
                EntryKind::Symlink { target: self.sources.root(place).read_link(&source)? }
            }
            Kind::Special => return Err(not_moved()),
        };
        let Stat { mode, mtime, uid, gid, .. } = *stat;
        let (attributes, no_attributes) = self.attributes(place, &source, stat.kind)?;
        let (acls, no_acls) = self.acls(place, &source, stat.kind)?;
        let extras = Extras { attributes, acls, ..Extras::default() };
        let entry = Entry { path, kind, mode, mtime, uid, gid, extras };
        let (root, argument) = (self.sources.root_index(place), place.source);
        let is_mount_point = stat.kind == Kind::Directory && self.is_mount_point(stat);
        let identity = (stat.dev, stat.ino);
        let names = stat.nlink;
        Ok(WalkItem {
            entry,
            root,
            source,
            argument,
            is_mount_point,
            identity,
            names,
            no_attributes,
            no_acls,
            rules: Vec::new(),
        })
    }

    /// The attributes of an entry, or why they are not kept.
    fn attributes(
        &self,
        place: &Place,
        source: &RelPath,
        kind: Kind,
    ) -> io::Result<(Option<Arc<Attributes>>, Option<NotRead>)> {
        if !self.attributes || !matches!(kind, Kind::File | Kind::Directory) {
            return Ok((None, None));
        }
        Ok(match self.sources.root(place).read_attributes(source)? {
            Attributed::Has(attributes) => (Some(Arc::new(attributes)), None),
            Attributed::Unsupported => (None, Some(NotRead::Unsupported)),
            Attributed::TooLarge => (None, Some(NotRead::TooLarge)),
        })
    }

    /// The access control lists of an entry, or why they are not kept.
    fn acls(
        &self,
        place: &Place,
        source: &RelPath,
        kind: Kind,
    ) -> io::Result<(Option<Arc<Acls>>, Option<NotRead>)> {
        if !self.acls || !matches!(kind, Kind::File | Kind::Directory) {
            return Ok((None, None));
        }
        Ok(match self.sources.root(place).read_acls(source)? {
            acls::Listed::Has(acls) => (Some(Arc::new(acls)), None),
            acls::Listed::Unsupported => (None, Some(NotRead::Unsupported)),
            acls::Listed::Unusable => (None, Some(NotRead::TooLarge)),
        })
    }

    fn enter(&mut self, place: Place, stat: &Stat) {
        let identity = (stat.dev, stat.ino);
        if self.copy_links && self.levels.iter().any(|level| level.identity == identity) {
            let why = "is a link to a directory that contains it";
            return self.fail_place(&place, io::Error::other(why));
        }
        match self.sources.root(&place).list_bytes(&place.from) {
            Ok(mut items) => {
                items.sort_unstable_by(|a, b| a.name.cmp(&b.name));
                let has =
                    |name: &[u8]| items.binary_search_by(|item| item.name[..].cmp(name)).is_ok();
                if let Err(error) = self.take_rules(&place, has) {
                    if self.listed.is_some() {
                        // The list may name what is in it, too.
                        self.bad_rules = Some(place.to.clone());
                    }
                    return self.fail_place(&place, error);
                }
                self.levels.push(Level { at: place, items: items.into_iter(), identity });
            }
            Err(error) => self.fail_place(&place, error),
        }
    }

    fn fail_place(&mut self, place: &Place, error: io::Error) {
        let path = self.sources.shown(place);
        let is_source = self.sources.is_first(place);
        self.fail(WalkFailure { path, is_source, is_named: is_source, is_special: false, error });
    }

    /// Fails a name of the list of files.
    fn fail_listed(&mut self, path: Vec<u8>, error: io::Error) {
        let failure =
            WalkFailure { path, is_source: false, is_named: true, is_special: false, error };
        self.fail(failure);
    }

    fn fail_source(&mut self, source: usize, error: io::Error) {
        let path = self.sources.named(source);
        let failure =
            WalkFailure { path, is_source: true, is_named: true, is_special: false, error };
        self.fail(failure);
    }

    fn fail(&mut self, failure: WalkFailure) {
        self.failed = true;
        self.ready.push_back(Err(failure));
    }
}

impl Iterator for Walker {
    type Item = Result<WalkItem, WalkFailure>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(item);
            }
            if !self.step() {
                return None;
            }
        }
    }
}

impl Place {
    fn child(&self, name: &[u8]) -> Self {
        Self { source: self.source, from: join(&self.from, name), to: join(&self.to, name) }
    }
}

/// Whether it is a directory that a transfer fills under a hidden name.
fn is_hidden_tree(item: &DirItem) -> bool {
    item.kind == Kind::Directory
        && LeftoverName::parse(&item.name).is_some_and(|name| name.is_tree())
}

fn rel_path(bytes: &[u8]) -> io::Result<RelPath> {
    RelPath::try_from(bytes.to_vec()).map_err(|_| Errno::NAMETOOLONG.into())
}

//! A directory that is held open, and the operations beneath it.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use packtrain_object::RelPath;
use packtrain_os::entropy;
use parking_lot::Mutex;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, RawDir};
use rustix::io::Errno;

use super::beneath;
use super::file_systems::FileSystems;
use super::fresh_state::FreshTrees;
use super::own;
use super::parents::{Parent, Parents, Place};
use super::stat::{Kind, Stat};
use super::temp_name;
use super::temp_state::TempTable;
use super::trouble::{Trouble, classify};

/// The usual maximum length of a name, in bytes.
const NAME_MAX: usize = 255;
/// Below the limit of every file system in use: eCryptfs has the lowest, 143 bytes.
const NAME_MIN: usize = 128;
/// The tag of the temporary of a symbolic or hard link.
pub(super) const LINK_TAG: &str = "link";

/// A source or destination directory that is held open. The kernel resolves paths beneath it
/// (`openat2` with `RESOLVE_BENEATH`), so neither `..` nor a symbolic link leads out.
///
/// The last component of a path is never followed if it is a link. Safe to share between threads.
pub struct Root {
    fd: OwnedFd,
    path: PathBuf,
    pub(super) parents: Parents,
    /// The temporaries of this run.
    pub(super) made: TempTable,
    /// The directories of this run that do not have their names yet.
    pub(super) fresh: FreshTrees,
    /// The files that this run has opened in place, by device and inode.
    pub(super) in_place: Mutex<HashSet<(u64, u64)>>,
    pub(super) file_systems: FileSystems,
    /// Maximum length of a name on its file system, in bytes.
    pub(super) name_max: usize,
    /// How many times an owner could not be set.
    pub(super) not_owned: AtomicU64,
    /// How many times extended attributes could not be set.
    pub(super) not_attributed: AtomicU64,
    /// How many times access control lists could not be set.
    pub(super) not_listed: AtomicU64,
    /// How many times modification times could not be set.
    pub(super) not_timed: AtomicU64,
    /// Whether links are followed, in the last component too.
    follow: Follow,
}

/// Which symbolic links the reading operations of a [`Root`] follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Follow {
    /// None in the last component; others as long as they stay beneath the root.
    #[default]
    No,
    /// All that stay beneath the root.
    Beneath,
    /// All, wherever they lead: for paths of this process's own user.
    Anywhere,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirItem {
    /// The name, as bytes.
    pub name: Vec<u8>,
    /// Its kind; a link is not followed.
    pub kind: Kind,
}

impl Root {
    /// Opens an existing directory. Links in `path` are followed, because the user named it.
    ///
    /// # Errors
    /// I/O errors, including `NotADirectory`.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |flags| rustix::fs::open(path, flags, Mode::empty());
        // A directory that can be entered but not listed can still be written to.
        let fd = match open(flags | OFlags::RDONLY) {
            Err(Errno::ACCESS) => open(flags | OFlags::PATH)?,
            opened => opened?,
        };
        Self::of(fd, path.to_path_buf())
    }

    /// Opens a directory beneath this one as a root of its own. Links and `..` in `path` are
    /// followed as long as they stay beneath this root. An empty path and leading slashes mean this
    /// root.
    ///
    /// # Errors
    /// I/O errors; `EXDEV` for a path that leads out.
    pub fn open_beneath(&self, path: &[u8]) -> io::Result<Self> {
        let start = path.iter().position(|b| *b != b'/').unwrap_or(path.len());
        let beneath = if start == path.len() { b"." } else { &path[start..] };
        let open = |flags| beneath::open(self.fd(), beneath, flags | OFlags::DIRECTORY);
        let fd = match open(OFlags::RDONLY) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::ACCESS) => {
                open(OFlags::PATH)?
            }
            opened => opened?,
        };
        Self::of(fd, self.path.join(std::ffi::OsStr::from_bytes(&path[start..])))
    }

    pub(super) fn of(fd: OwnedFd, path: PathBuf) -> io::Result<Self> {
        let name_max = rustix::fs::fstatvfs(&fd).map_or(NAME_MAX, |vfs| vfs.f_namemax as usize);
        Ok(Self {
            file_systems: FileSystems::of(&fd)?,
            fd,
            // Some file systems report more than they accept; all accept this minimum.
            name_max: name_max.clamp(NAME_MIN, NAME_MAX),
            path,
            parents: Parents::default(),
            made: TempTable::default(),
            fresh: FreshTrees::default(),
            in_place: Mutex::default(),
            not_owned: AtomicU64::new(0),
            not_attributed: AtomicU64::new(0),
            not_listed: AtomicU64::new(0),
            not_timed: AtomicU64::new(0),
            follow: Follow::No,
        })
    }

    /// The same root, with this rule for links in `stat`, in listings and when files are opened for
    /// reading.
    #[must_use]
    pub fn following(self, follow: Follow) -> Self {
        Self { follow, ..self }
    }

    /// Opens `rel` by the rule for links; `None` if links in the last component are not followed.
    pub(super) fn open_following(&self, rel: &[u8], flags: OFlags) -> Option<io::Result<OwnedFd>> {
        let rel = if rel.is_empty() { b"." } else { rel };
        match self.follow {
            Follow::No => None,
            Follow::Beneath => Some(beneath::open(self.fd(), rel, flags)),
            Follow::Anywhere => {
                let open =
                    || rustix::fs::openat(&self.fd, rel, flags | OFlags::CLOEXEC, Mode::empty());
                Some(rustix::io::retry_on_intr(open).map_err(Into::into))
            }
        }
    }

    /// Opens a directory; it and its parents are created if they do not exist.
    ///
    /// # Errors
    /// I/O errors.
    pub fn create(path: &Path) -> io::Result<Self> {
        match Self::open(path) {
            Err(error) if classify(&error) == Trouble::NotFound => {
                std::fs::create_dir_all(path)?;
                Self::open(path)
            }
            opened => opened,
        }
    }

    /// The path with which it was opened, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The status of `rel`, without following a link; `None` if it does not exist.
    ///
    /// # Errors
    /// I/O errors other than a missing name.
    pub fn stat(&self, rel: &RelPath) -> io::Result<Option<Stat>> {
        self.stat_bytes(rel.as_bytes())
    }

    pub(super) fn stat_bytes(&self, rel: &[u8]) -> io::Result<Option<Stat>> {
        if rel.is_empty() {
            return Ok(Some(Stat::from(&rustix::fs::fstat(&self.fd)?)));
        }
        if let Some(opened) = self.open_following(rel, OFlags::PATH) {
            return match opened {
                Ok(fd) => Ok(Some(Stat::from(&rustix::fs::fstat(fd)?))),
                Err(error) if classify(&error) == Trouble::NotFound => Ok(None),
                Err(error) => Err(error),
            };
        }
        let found = self.with_place(rel, |place| {
            rustix::fs::statat(&place.dir, place.name, AtFlags::SYMLINK_NOFOLLOW)
        });
        match found {
            Ok(stat) => Ok(Some(Stat::from(&stat))),
            Err(error) if classify(&error) == Trouble::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// I/O errors; `EINVAL` if `rel` is not a link.
    pub fn read_link(&self, rel: &RelPath) -> io::Result<Vec<u8>> {
        if self.follow == Follow::Anywhere {
            let link = rustix::fs::readlinkat(&self.fd, rel.as_bytes(), Vec::new())?;
            return Ok(link.into_bytes());
        }
        self.with_place(rel.as_bytes(), |place| {
            rustix::fs::readlinkat(&place.dir, place.name, Vec::new())
        })
        .map(std::ffi::CString::into_bytes)
    }

    /// Opens a regular file for reading; a link in the last component is not followed.
    ///
    /// # Errors
    /// I/O errors; `Unsupported` for a pipe, socket or device.
    pub fn open_read(&self, rel: &RelPath) -> io::Result<File> {
        self.open_with_stat(rel).map(|(file, _)| file)
    }

    /// Like [`Root::open_read`], with the status of the file.
    pub(super) fn open_with_stat(&self, rel: &RelPath) -> io::Result<(File, Stat)> {
        let file = self.open_unchecked(rel)?;
        let stat = Stat::from(&rustix::fs::fstat(&file)?);
        check_is_file(stat.kind)?;
        Ok((file, stat))
    }

    /// Like [`Root::open_read`], for callers that check what they opened.
    pub(super) fn open_unchecked(&self, rel: &RelPath) -> io::Result<File> {
        // NONBLOCK: a pipe in the file's place must not block this thread.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        if let Some(opened) = self.open_following(rel.as_bytes(), flags) {
            return Ok(opened?.into());
        }
        let fd = self.with_place(rel.as_bytes(), |p| {
            beneath::open_no_follow(p.dir.as_fd(), p.name, flags)
        })?;
        Ok(fd.into())
    }

    /// Creates a directory. An existing directory is made writable for its owner, because files
    /// will be written into it; [`Root::settle`] sets its final mode.
    ///
    /// # Errors
    /// I/O errors; `NotADirectory` if another kind of file has the name.
    pub fn make_dir(&self, rel: &RelPath, mode: u32) -> io::Result<()> {
        if rel.as_bytes().is_empty() {
            return Ok(());
        }
        let mode = Mode::from_raw_mode(mode & 0o7777) | Mode::RWXU;
        let made = self.with_place(rel.as_bytes(), |p| rustix::fs::mkdirat(&p.dir, p.name, mode));
        match made {
            Err(error) if classify(&error) == Trouble::Exists => self.keep_dir(rel),
            made => made,
        }
    }

    /// Creates a directory and its missing parents, as [`Root::make_dir`] does.
    ///
    /// # Errors
    /// Those of [`Root::make_dir`].
    pub fn make_dirs(&self, rel: &RelPath, mode: u32) -> io::Result<()> {
        let path = rel.as_bytes();
        let ends = path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
        for end in ends.chain([path.len()]) {
            let above = RelPath::try_from(path[..end].to_vec()).map_err(|_| Errno::NAMETOOLONG)?;
            self.make_dir(&above, mode)?;
        }
        Ok(())
    }

    /// Checks that `rel` is a usable directory.
    fn keep_dir(&self, rel: &RelPath) -> io::Result<()> {
        let stat = self.stat(rel)?.ok_or(Errno::NOENT)?;
        match stat.kind {
            Kind::Directory if stat.mode & 0o700 != 0o700 => {
                // If the directory belongs to another user this fails, and the writes of its files
                // report the error.
                let _ = self.change_mode(rel, stat.mode | 0o700);
                Ok(())
            }
            Kind::Directory => Ok(()),
            // A link to a directory beneath the root is used like a directory.
            Kind::Symlink => {
                beneath::open(self.fd.as_fd(), rel.as_bytes(), OFlags::PATH | OFlags::DIRECTORY)
                    .map(drop)
            }
            _ => Err(Errno::NOTDIR.into()),
        }
    }

    /// Creates a symbolic link; atomically replaces a file or link of that name. The target is
    /// stored unchanged and not interpreted.
    ///
    /// # Errors
    /// I/O errors; `IsADirectory` if a directory has the name.
    pub fn make_symlink(&self, rel: &RelPath, target: &[u8]) -> io::Result<()> {
        self.with_place(rel.as_bytes(), |place| {
            let made = rustix::fs::symlinkat(target, &place.dir, place.name);
            if made != Err(Errno::EXIST) {
                return made;
            }
            let mut temp = temp_name::name(place.name, LINK_TAG, self.name_max);
            if !own::remove(place, &temp) {
                // Another user's file has the name and cannot be removed.
                let tag = temp_name::random_tag(LINK_TAG, entropy::seed());
                temp = temp_name::name(place.name, &tag, self.name_max);
            }
            rustix::fs::symlinkat(target, &place.dir, &temp)?;
            rustix::fs::renameat(&place.dir, &temp, &place.dir, place.name).inspect_err(|_| {
                let _ = rustix::fs::unlinkat(&place.dir, &temp, AtFlags::empty());
            })
        })
    }

    /// The names in a directory, unordered, without `.` and `..`.
    ///
    /// # Errors
    /// I/O errors.
    pub fn list(&self, dir: &RelPath) -> io::Result<Vec<DirItem>> {
        self.list_bytes(dir.as_bytes())
    }

    /// Like [`Root::list`], but at most the first `most` names in the order of the file system.
    ///
    /// # Errors
    /// I/O errors.
    pub fn list_at_most(&self, dir: &RelPath, most: usize) -> io::Result<Vec<DirItem>> {
        self.list_first(dir.as_bytes(), most)
    }

    pub(super) fn list_bytes(&self, dir: &[u8]) -> io::Result<Vec<DirItem>> {
        self.list_first(dir, usize::MAX)
    }

    fn list_first(&self, dir: &[u8], most: usize) -> io::Result<Vec<DirItem>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        if let Some(opened) = self.open_following(dir, flags) {
            return read_items(opened?.as_fd(), most);
        }
        let fd = match dir {
            b"" => beneath::open(self.fd.as_fd(), b".", flags)?,
            dir => self
                .with_place(dir, |p| beneath::open_no_follow(p.dir.as_fd(), p.name, flags))
                .map_err(link_is_no_directory)?,
        };
        read_items(fd.as_fd(), most)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(super) fn forget(&self, rel: &[u8]) {
        self.parents.forget(rel);
    }

    /// Calls `work` with the open parent directory of `rel` and its last name on disk.
    pub(super) fn with_place<T>(
        &self,
        rel: &[u8],
        work: impl Fn(&Place<'_>) -> Result<T, Errno>,
    ) -> io::Result<T> {
        self.make_if_planned(split(rel).0)?;
        let _gate = self.fresh.gate.read();
        self.with_place_ungated(rel, work)
    }

    /// Like [`Root::with_place`], for callers that hold the gate of the fresh trees.
    pub(super) fn with_place_ungated<T>(
        &self,
        rel: &[u8],
        work: impl Fn(&Place<'_>) -> Result<T, Errno>,
    ) -> io::Result<T> {
        let hidden = self.fresh.hidden_name(rel);
        let place = self.place(rel, hidden.as_deref())?;
        match rustix::io::retry_on_intr(|| work(&place)) {
            // The cached directory was deleted, and perhaps created again, by another process.
            Err(Errno::NOENT) if place.is_deleted() => {
                self.parents.forget(split(rel).0);
                Ok(rustix::io::retry_on_intr(|| work(&self.place(rel, hidden.as_deref())?))?)
            }
            done => Ok(done?),
        }
    }

    fn place<'a>(&'a self, rel: &'a [u8], hidden: Option<&'a [u8]>) -> Result<Place<'a>, Errno> {
        let (parent, name) = split(rel);
        let name = hidden.unwrap_or(name);
        if parent.is_empty() {
            let name = if name.is_empty() { b"." } else { name };
            return Ok(Place { dir: Parent::Root(&self.fd), name });
        }
        let dir = self
            .parents
            .get(parent, || self.open_parent(parent))
            .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
        Ok(Place { dir: Parent::Kept(dir), name })
    }

    fn open_parent(&self, path: &[u8]) -> io::Result<OwnedFd> {
        let path = self.fresh.on_disk(path);
        let fd = beneath::open(self.fd.as_fd(), &path, OFlags::PATH | OFlags::DIRECTORY)?;
        self.file_systems.note(self.fd(), &fd, &path)?;
        Ok(fd)
    }
}

impl Place<'_> {
    fn is_deleted(&self) -> bool {
        match &self.dir {
            Parent::Root(_) | Parent::Borrowed(_) => false,
            Parent::Kept(fd) => rustix::fs::fstat(fd).is_ok_and(|stat| stat.st_nlink == 0),
        }
    }
}

impl std::fmt::Debug for Root {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Root").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The first `most` names in an open directory, unordered, without `.` and `..`.
pub(super) fn read_items(fd: BorrowedFd<'_>, most: usize) -> io::Result<Vec<DirItem>> {
    let mut items = Vec::new();
    for item in Dir::read_from(fd)? {
        let item = item?;
        let name = item.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        let kind = match item.file_type() {
            rustix::fs::FileType::Unknown => {
                match rustix::fs::statat(fd, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => Stat::from(&stat).kind,
                    // The entry was removed meanwhile.
                    Err(Errno::NOENT) => continue,
                    Err(error) => return Err(error.into()),
                }
            }
            known => known.into(),
        };
        items.push(DirItem { name: name.to_vec(), kind });
        if items.len() >= most {
            return Ok(items);
        }
    }
    // A directory that was removed meanwhile looks like the end of its names, and is not empty.
    let mut buffer = [MaybeUninit::uninit(); 1024];
    match RawDir::new(fd, &mut buffer).next() {
        Some(Err(Errno::NOENT)) => Err(Errno::NOENT.into()),
        _ => Ok(items),
    }
}

/// A path's parent and its last name.
pub(super) fn split(rel: &[u8]) -> (&[u8], &[u8]) {
    match rel.iter().rposition(|&b| b == b'/') {
        Some(at) => (&rel[..at], &rel[at + 1..]),
        None => (b"", rel),
    }
}

/// The path of `name` in the directory `dir`.
pub(super) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    match (dir.is_empty(), name.is_empty()) {
        (true, _) => name.to_vec(),
        (false, true) => dir.to_vec(),
        (false, false) => [dir, b"/", name].concat(),
    }
}

pub(super) fn absent_is_fine(error: Errno) -> Result<(), Errno> {
    if error == Errno::NOENT { Ok(()) } else { Err(error) }
}

/// Refuses what is not a regular file.
pub(super) fn check_is_file(kind: Kind) -> io::Result<()> {
    match kind {
        Kind::File => Ok(()),
        Kind::Directory => Err(Errno::ISDIR.into()),
        _ => Err(not_moved()),
    }
}

/// The error for a file that is no regular file, directory or link.
pub(super) fn not_moved() -> io::Error {
    let why = "is a pipe, socket or device, which is not moved";
    io::Error::new(io::ErrorKind::Unsupported, why)
}

/// Opening a link as a directory without following it fails with LOOP or NOTDIR; both become
/// NOTDIR.
fn link_is_no_directory(error: io::Error) -> io::Error {
    match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => Errno::NOTDIR.into(),
        _ => error,
    }
}

//! The journal's file: appended, synced, replaced atomically, with reserved space for a full disk.
//!
//! A journal vouches for content, so a journal that fails the checks of `own.rs` is never
//! read. It is removed when this run writes its own. If it cannot be removed, a random name is
//! used, which later runs find by listing the directory.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use packtrain_object::RelPath;
use packtrain_os::entropy;
use packtrain_units::ByteCount;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

use super::own::{self, Existing};
use super::root::{Root, split};
use super::stat::Kind;
use super::trouble::{Trouble, classify};

/// Space reserved after the journal's end, so that records can be written on a full disk.
const RESERVE_BYTES: u64 = 256 << 10;
/// Longer than any journal; a longer file is not a journal.
const MAX_JOURNAL_BYTES: u64 = 1 << 30;
/// The suffix of a journal's name. A random part precedes it if there is one.
const JOURNAL_SUFFIX: &[u8] = b".journal";
/// Tries if another process creates files of the journal's name at the same time.
const MAX_TRIES: u32 = 16;

/// An append-only file beneath a root.
#[derive(Debug)]
pub struct JournalFile {
    root: Arc<Root>,
    rel: RelPath,
    file: File,
    len: u64,
    /// End of the reserved space.
    reserved: u64,
}

impl JournalFile {
    /// Opens or creates the journal at `rel`; also returns its content.
    ///
    /// # Errors
    /// I/O errors; `InvalidData` for a file that is too long.
    pub fn open(root: &Arc<Root>, rel: &RelPath) -> io::Result<(Self, Vec<u8>)> {
        let (file, rel) = match find(root, rel, OFlags::RDWR)? {
            Found::Own(file, rel) => (file, rel),
            Found::Absent | Found::Foreign => create(root, rel)?,
        };
        let mut held = Vec::new();
        (&file).take(MAX_JOURNAL_BYTES + 1).read_to_end(&mut held)?;
        if held.len() as u64 > MAX_JOURNAL_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the journal is longer than any journal; remove it to start anew",
            ));
        }
        let len = held.len() as u64;
        let mut journal = Self { root: Arc::clone(root), rel, file, len, reserved: len };
        journal.reserve();
        if held.is_empty() {
            // The journal may be new. After a crash a journal without a durable name would be lost.
            journal.sync_dir()?;
        }
        Ok((journal, held))
    }

    /// Reads the journal at `rel` without creating it; empty if there is none of this user.
    ///
    /// # Errors
    /// I/O errors.
    pub fn read(root: &Root, rel: &RelPath) -> io::Result<Vec<u8>> {
        match find(root, rel, OFlags::RDONLY) {
            Ok(Found::Own(file, _)) => {
                let mut held = Vec::new();
                file.take(MAX_JOURNAL_BYTES).read_to_end(&mut held)?;
                Ok(held)
            }
            Ok(Found::Absent | Found::Foreign) => Ok(Vec::new()),
            Err(error) if classify(&error) == Trouble::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Removes the journal at `rel` if it belongs to this user.
    ///
    /// # Errors
    /// I/O errors.
    pub fn discard(root: &Root, rel: &RelPath) -> io::Result<()> {
        match find(root, rel, OFlags::RDONLY) {
            Ok(Found::Own(_, rel)) => root.remove(&rel),
            Ok(Found::Absent | Found::Foreign) => Ok(()),
            Err(error) if classify(&error) == Trouble::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Its length.
    pub fn len(&self) -> ByteCount {
        ByteCount(self.len)
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its path beneath its root.
    pub fn rel(&self) -> &RelPath {
        &self.rel
    }

    /// Truncates it to `len`, to remove a torn last record.
    ///
    /// # Errors
    /// I/O errors.
    pub fn truncate(&mut self, len: ByteCount) -> io::Result<()> {
        if len.get() < self.len {
            self.file.set_len(len.get())?;
            self.len = len.get();
            // Truncation released the reserved space.
            self.reserved = self.len;
            self.reserve();
        }
        Ok(())
    }

    /// Appends; the bytes are durable only after [`JournalFile::sync`]. After an error the next
    /// append overwrites the incomplete bytes.
    ///
    /// # Errors
    /// I/O errors.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.len)?;
        self.len += bytes.len() as u64;
        if self.reserved.saturating_sub(self.len) < RESERVE_BYTES / 2 {
            self.reserve();
        }
        Ok(())
    }

    /// Makes all appended bytes durable (`fdatasync`).
    ///
    /// # Errors
    /// I/O errors.
    pub fn sync(&self) -> io::Result<()> {
        super::write::sync_data(&self.file)
    }

    /// A duplicate of the file handle, for the thread that syncs.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Replaces the whole journal by `bytes`, durably and atomically: after a crash the file is the
    /// old or the new one.
    ///
    /// # Errors
    /// I/O errors; the old journal is kept then.
    pub fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        const TAG: &str = "journal";
        let file = self.root.open_temp(&self.rel, TAG, 0, false)?;
        let written = (|| {
            file.write_all_at(bytes, 0)?;
            super::write::sync_data(&file)?;
            self.root.commit_ready(&self.rel, TAG)?;
            self.sync_dir()
        })();
        if let Err(error) = written {
            let _ = self.root.remove_temp(&self.rel, TAG);
            return Err(error);
        }
        self.file = file;
        self.len = bytes.len() as u64;
        self.reserved = self.len;
        self.reserve();
        Ok(())
    }

    /// Makes the journal's name durable, after it was created.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn sync_dir(&self) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // Ungated: a journal is in no fresh tree, and a sync takes long.
        let synced = self.root.with_place_ungated(self.rel.as_bytes(), |place| {
            rustix::fs::fsync(rustix::fs::openat(&place.dir, ".", flags, Mode::empty())?)
        });
        match synced.as_ref().map_err(Errno::from_io_error) {
            // The directory cannot be listed, or its file system does not support syncs of
            // directories.
            Err(Some(Errno::ACCESS | Errno::INVAL | Errno::OPNOTSUPP)) => Ok(()),
            _ => synced,
        }
    }

    /// Removes the journal of a complete transfer.
    ///
    /// # Errors
    /// I/O errors.
    pub fn remove(self) -> io::Result<()> {
        match self.root.remove(&self.rel) {
            Err(error) if classify(&error) == Trouble::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Reserves space after the end. A failure is ignored: the next append tries again, and an
    /// append without space fails itself.
    fn reserve(&mut self) {
        let ahead = FallocateFlags::KEEP_SIZE;
        if rustix::fs::fallocate(&self.file, ahead, self.len, RESERVE_BYTES).is_ok() {
            self.reserved = self.len + RESERVE_BYTES;
        }
    }
}

/// The state of a journal's name.
enum Found {
    Own(File, RelPath),
    Absent,
    Foreign,
}

/// The journal at `rel`, or, if another user's file has that name, the journal with the random name
/// of an earlier run.
fn find(root: &Root, rel: &RelPath, flags: OFlags) -> io::Result<Found> {
    let open = |rel: &RelPath| {
        root.with_place(rel.as_bytes(), |place| own::open(place, place.name, flags))
    };
    match open(rel)? {
        Existing::Own(fd, _) => return Ok(Found::Own(fd.into(), rel.clone())),
        Existing::Absent => return Ok(Found::Absent),
        Existing::Foreign => {}
    }
    let (dir, last) = split(rel.as_bytes());
    let start = [last.strip_suffix(JOURNAL_SUFFIX).unwrap_or(last), b"-"].concat();
    for item in root.list_bytes(dir).unwrap_or_default() {
        let is_other = item.name.starts_with(&start) && item.name.ends_with(JOURNAL_SUFFIX);
        if item.kind != Kind::File || !is_other {
            continue;
        }
        let Ok(other) = beside(dir, &item.name) else { continue };
        if let Existing::Own(fd, _) = open(&other)? {
            return Ok(Found::Own(fd.into(), other));
        }
    }
    Ok(Found::Foreign)
}

/// Creates the journal. A file with its name is removed; if that fails, a random name is used.
fn create(root: &Root, rel: &RelPath) -> io::Result<(File, RelPath)> {
    let (dir, last) = split(rel.as_bytes());
    let mut at = rel.clone();
    for _ in 0..MAX_TRIES {
        let made = root.with_place(at.as_bytes(), |place| own::replace(place, place.name));
        match made {
            Err(error) if classify(&error) == Trouble::Exists => {
                let random = format!("-{:016x}", entropy::seed());
                let start = last.strip_suffix(JOURNAL_SUFFIX).unwrap_or(last);
                at = beside(dir, &[start, random.as_bytes(), JOURNAL_SUFFIX].concat())?;
            }
            made => return Ok((made?.into(), at)),
        }
    }
    Err(Errno::EXIST.into())
}

fn beside(dir: &[u8], name: &[u8]) -> io::Result<RelPath> {
    let path = if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() };
    RelPath::new(path).map_err(|_| Errno::INVAL.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> (tempfile::TempDir, Arc<Root>, RelPath) {
        let dir = tempfile::tempdir().unwrap();
        let root = Arc::new(Root::open(dir.path()).unwrap());
        (dir, root, RelPath::new(b".j".to_vec()).unwrap())
    }

    #[test]
    fn appended_is_found_again() {
        let (_dir, root, rel) = place();
        assert!(JournalFile::read(&root, &rel).unwrap().is_empty());
        let (mut journal, held) = JournalFile::open(&root, &rel).unwrap();
        assert!(held.is_empty() && journal.is_empty());
        journal.append(b"one").unwrap();
        journal.append(b"two").unwrap();
        journal.sync().unwrap();
        journal.sync_dir().unwrap();
        drop(journal);
        assert_eq!(JournalFile::read(&root, &rel).unwrap(), b"onetwo");
        let (mut journal, held) = JournalFile::open(&root, &rel).unwrap();
        assert_eq!(held, b"onetwo");
        journal.truncate(ByteCount(4)).unwrap();
        journal.append(b"!").unwrap();
        assert_eq!(JournalFile::read(&root, &rel).unwrap(), b"onet!");
        journal.remove().unwrap();
        assert_eq!(root.stat(&rel).unwrap(), None);
    }

    #[test]
    fn replaced_goes_on_from_the_new_end() {
        let (_dir, root, rel) = place();
        let (mut journal, _) = JournalFile::open(&root, &rel).unwrap();
        journal.append(&[b'x'; 100_000]).unwrap();
        journal.replace(b"short").unwrap();
        journal.append(b"er").unwrap();
        assert_eq!(JournalFile::read(&root, &rel).unwrap(), b"shorter");
        assert_eq!(root.list(&RelPath::root()).unwrap().len(), 1, "no temporary stays");
    }

    #[test]
    fn the_reserve_does_not_show_in_the_length() {
        let (dir, root, rel) = place();
        let (mut journal, _) = JournalFile::open(&root, &rel).unwrap();
        for _ in 0..100 {
            journal.append(&[1; 8192]).unwrap();
        }
        assert_eq!(std::fs::metadata(dir.path().join(".j")).unwrap().len(), 819_200);
        assert_eq!(journal.len(), ByteCount(819_200));
    }

    #[test]
    fn what_is_not_ours_is_not_read_and_is_replaced() {
        let (dir, root, rel) = place();
        let at = dir.path().join(".j");
        let victim = dir.path().join("victim");
        std::fs::write(&victim, "precious").unwrap();
        let plants: [&dyn Fn(); 4] = [
            &|| std::os::unix::fs::symlink(&victim, &at).unwrap(),
            &|| std::fs::hard_link(&victim, &at).unwrap(),
            &|| rustix::fs::mkfifoat(rustix::fs::CWD, &at, Mode::from_raw_mode(0o600)).unwrap(),
            &|| {
                use std::os::unix::fs::PermissionsExt;
                std::fs::write(&at, "planted").unwrap();
                std::fs::set_permissions(&at, std::fs::Permissions::from_mode(0o666)).unwrap();
            },
        ];
        for plant in plants {
            plant();
            assert!(JournalFile::read(&root, &rel).unwrap().is_empty());
            let (mut journal, held) = JournalFile::open(&root, &rel).unwrap();
            assert!(held.is_empty());
            journal.append(b"ours").unwrap();
            assert_eq!(JournalFile::read(&root, &rel).unwrap(), b"ours");
            journal.remove().unwrap();
        }
        assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
    }

    #[test]
    fn a_name_that_cannot_be_had_gives_way_to_one_that_is_found_again() {
        let (dir, _, _) = place();
        let root = Arc::new(Root::open(dir.path()).unwrap());
        let rel = RelPath::new(b".p.journal".to_vec()).unwrap();
        // A directory cannot be removed like a file, as with another user's file in /tmp.
        std::fs::create_dir(dir.path().join(".p.journal")).unwrap();
        assert!(JournalFile::read(&root, &rel).unwrap().is_empty());
        let (mut journal, _) = JournalFile::open(&root, &rel).unwrap();
        journal.append(b"one").unwrap();
        journal.replace(b"two").unwrap();
        drop(journal);
        assert_eq!(JournalFile::read(&root, &rel).unwrap(), b"two");
        let (journal, held) = JournalFile::open(&root, &rel).unwrap();
        assert_eq!(held, b"two");
        journal.remove().unwrap();
        assert!(JournalFile::read(&root, &rel).unwrap().is_empty());
        JournalFile::discard(&root, &rel).unwrap();
    }
}

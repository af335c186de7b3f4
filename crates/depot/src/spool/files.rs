//! The directory of a session.
//!
//! `head` identifies the session. It gets its name last, when the other files exist. `records`
//! contains the records in sequence, `mark` the number of durable records. A directory without a
//! head was being created or removed when its depot ended, unless it has records that are not marked
//! as ended.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use packtrain_session::SessionId;
use packtrain_session::spool::{HEAD_MAX, Head, MARK_LEN, MARK_SLOT, newest};

use parking_lot::RwLock;

use super::store::Disk;

const HEAD: &str = "head";
const NEW_HEAD: &str = "head.new";
const RECORDS: &str = "records";
const MARK: &str = "mark";

/// The two files that change, until the session has ended.
#[derive(Debug)]
pub(super) struct Files(RwLock<Option<OpenFiles>>);

#[derive(Debug)]
struct OpenFiles {
    records: File,
    mark: File,
}

impl Files {
    fn new(records: File, mark: File) -> Self {
        Self(RwLock::new(Some(OpenFiles { records, mark })))
    }

    /// The files for one operation.
    fn with<T>(&self, work: impl FnOnce(&OpenFiles) -> io::Result<T>) -> io::Result<T> {
        match &*self.0.read() {
            Some(files) => work(files),
            None => Err(io::Error::other("the session has ended")),
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// The path of a session's directory.
pub(super) fn directory(spool: &Path, session: SessionId) -> PathBuf {
    spool.join(session.to_string())
}

/// Creates a session's directory. The head gets its name last, so that a crash leaves a valid
/// state.
pub(super) fn create(spool: &Path, session: SessionId, head: &Head) -> io::Result<Files> {
    let dir = directory(spool, session);
    DirBuilder::new().mode(0o700).create(&dir).map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => io::Error::other(
            "the session's data on this depot is damaged: the depot's owner can remove it",
        ),
        _ => e,
    })?;
    let made = || {
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(dir.join(NEW_HEAD))?;
        file.write_all(&head.write())?;
        file.sync_all()?;
        let files = Files::new(open(&dir.join(RECORDS))?, open(&dir.join(MARK))?);
        fs::rename(dir.join(NEW_HEAD), dir.join(HEAD))?;
        File::open(&dir)?.sync_all()?;
        File::open(spool)?.sync_all()?;
        Ok(files)
    };
    made().inspect_err(|_| {
        let _ = remove(spool, session);
    })
}

/// The state of a directory.
#[derive(Debug)]
pub(super) enum Found {
    /// A valid session.
    Session(Box<Head>, Files),
    /// It was being created or removed when the depot ended; it has been removed now.
    Unfinished,
}

/// Opens a session's directory from an earlier run.
pub(super) fn reopen(spool: &Path, session: SessionId) -> io::Result<Found> {
    let dir = directory(spool, session);
    let bad = |text: &str| io::Error::new(io::ErrorKind::InvalidData, text.to_owned());
    let file = match File::open(dir.join(HEAD)) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            if is_live(&dir, session)? {
                return Err(bad("its head is missing"));
            }
            remove(spool, session)?;
            return Ok(Found::Unfinished);
        }
        Err(e) => return Err(e),
    };
    let mut bytes = Vec::new();
    file.take(HEAD_MAX as u64 + 1).read_to_end(&mut bytes)?;
    let head = Head::read(&bytes).ok_or_else(|| bad("its head is damaged"))?;
    if head.deposit().is_none_or(|deposit| deposit.session != session) {
        return Err(bad("its head is of another session"));
    }
    let files = Files::new(open(&dir.join(RECORDS))?, open(&dir.join(MARK))?);
    Ok(Found::Session(Box::new(head), files))
}

/// Whether there are records that are not marked as ended.
fn is_live(dir: &Path, session: SessionId) -> io::Result<bool> {
    let there = |name: &str| match OpenOptions::new().read(true).open(dir.join(name)) {
        Ok(file) => Ok(Some(file)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    };
    let Some(records) = there(RECORDS)? else { return Ok(false) };
    if records.metadata()?.len() == 0 {
        return Ok(false);
    }
    let Some(mark) = there(MARK)? else { return Ok(true) };
    let marks = Files::new(records, mark).read_marks()?;
    Ok(newest(session, &marks).is_none_or(|mark| !mark.over))
}

/// Removes a session's directory, the head first: without a head the rest counts as unfinished.
pub(super) fn remove(spool: &Path, session: SessionId) -> io::Result<()> {
    let dir = directory(spool, session);
    for name in [HEAD, NEW_HEAD, RECORDS, MARK] {
        match fs::remove_file(dir.join(name)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    fs::remove_dir(dir)
}

/// The sessions in a spool, and the names of other files.
pub(super) fn list(spool: &Path) -> io::Result<(Vec<SessionId>, Vec<String>)> {
    let (mut sessions, mut others) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(spool)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        match session_of(&name) {
            Some(session) if entry.file_type()?.is_dir() => sessions.push(session),
            _ if name == LOCK => {}
            _ => others.push(name),
        }
    }
    Ok((sessions, others))
}

const LOCK: &str = "lock";

/// Locks a spool for one depot, and creates it if it does not exist.
pub(super) fn lock(spool: &Path) -> io::Result<File> {
    let missing = spool.ancestors().take_while(|dir| !dir.exists());
    // The last ancestor of a relative path is empty, which is the current directory.
    let made: Vec<_> = missing.filter(|dir| !dir.as_os_str().is_empty()).collect();
    DirBuilder::new().recursive(true).mode(0o700).create(spool)?;
    for dir in made {
        let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    let lock = open(&spool.join(LOCK))?;
    lock.try_lock().map_err(|_| {
        io::Error::new(
            io::ErrorKind::WouldBlock,
            "another depot uses it: give each depot its own spool",
        )
    })?;
    Ok(lock)
}

fn session_of(name: &str) -> Option<SessionId> {
    let lower = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
    if name.len() != 32 || !name.bytes().all(lower) {
        return None;
    }
    Some(SessionId(u128::from_str_radix(name, 16).ok()?.to_be_bytes()))
}

impl Disk for Files {
    fn write_records(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.with(|files| files.records.write_all_at(bytes, at))
    }

    fn read_records(&self, at: u64, room: &mut [u8]) -> io::Result<()> {
        self.with(|files| files.records.read_exact_at(room, at))
    }

    fn records_len(&self) -> io::Result<u64> {
        self.with(|files| Ok(files.records.metadata()?.len()))
    }

    fn cut_records(&self, len: u64) -> io::Result<()> {
        match &*self.0.read() {
            Some(files) => files.records.set_len(len),
            // They were removed before.
            None => Ok(()),
        }
    }

    fn sync_records(&self) -> io::Result<()> {
        self.with(|files| files.records.sync_data())
    }

    fn write_mark(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.with(|files| files.mark.write_all_at(bytes, at))
    }

    fn read_marks(&self) -> io::Result<Vec<u8>> {
        let most = MARK_SLOT + MARK_LEN as u64;
        self.with(|files| {
            let mut bytes = Vec::new();
            io::Read::take(&files.mark, most).read_to_end(&mut bytes)?;
            Ok(bytes)
        })
    }

    fn sync_mark(&self) -> io::Result<()> {
        self.with(|files| files.mark.sync_data())
    }

    fn close(&self) {
        *self.0.write() = None;
    }
}

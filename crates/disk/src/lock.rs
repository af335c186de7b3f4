//! One transfer at a time: an advisory lock on a file that contains a description of its holder.
//!
//! A lock file that fails the checks of `own.rs` is neither read nor written, and nothing
//! waits for it. It is removed; if that fails, the caller gets an error.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;

use packtrain_object::RelPath;
use rustix::fs::{AtFlags, FlockOperation, OFlags};
use rustix::io::Errno;

use super::own::{self, Existing};
use super::root::Root;
use super::stat::Stat;

/// Maximum length of the holder's description, in bytes.
const WHO_MAX: u64 = 512;
/// Tries if another process removes or replaces the file at the same time.
const MAX_TRIES: u32 = 100;
/// Tries, and the pause between them, before a lock counts as held. A check of a lock takes it for
/// an instant.
const HELD_TRIES: u32 = 20;
const HELD_PAUSE: std::time::Duration = std::time::Duration::from_millis(10);

/// Why a lock was not acquired.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds it.
    #[error("in use by {who}; wait for it or stop it")]
    Held {
        /// The holder's description.
        who: String,
    },
    /// The file with the lock's name is not this user's and cannot be removed, or the file system
    /// does not distinguish the files of different users.
    #[error("another user's file has the name of the lock, and it cannot be removed")]
    Foreign,
    /// The file system does not support locks, so it is unknown whether one is held.
    #[error("the file system has no locks")]
    Unsupported,
    /// An I/O error.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A lock that is held until it is dropped or the process ends for any reason.
#[derive(Debug)]
pub struct Lock {
    root: Arc<Root>,
    rel: RelPath,
    file: File,
    remove: bool,
}

/// The result of opening a lock file.
enum Step {
    Open(std::os::fd::OwnedFd),
    /// The file changed meanwhile; try again.
    Again,
    Foreign,
}

impl Lock {
    /// Acquires the lock on the file `rel`, which is created if it does not exist. `who` describes
    /// the holder to others.
    ///
    /// # Errors
    /// `Held` with the holder's description; `Foreign`; I/O errors.
    pub fn take(root: &Arc<Root>, rel: &RelPath, who: &str) -> Result<Self, LockError> {
        let mut held = 0;
        for _ in 0..MAX_TRIES {
            let mut file = match open(root, rel)? {
                Step::Open(fd) => File::from(fd),
                Step::Again => continue,
                Step::Foreign => return Err(LockError::Foreign),
            };
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) if held < HELD_TRIES => {
                    held += 1;
                    std::thread::sleep(HELD_PAUSE);
                    continue;
                }
                Err(Errno::WOULDBLOCK) => return Err(LockError::Held { who: read_who(&file) }),
                // On a file system without locks the transfer runs without one.
                Err(Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
            // The previous holder removed the file after it was opened here and before it was
            // locked.
            if !is_named(&file, root, rel)? {
                continue;
            }
            // The description is optional: a full disk must not prevent a resume.
            let _ = file.set_len(0).and_then(|()| file.write_all(who.as_bytes()));
            // Before the first data, so that no error of its write-back is missed. A failure leaves
            // the sync as it is.
            let dev = Stat::from(&rustix::fs::fstat(&file).map_err(io::Error::from)?).dev;
            let _ = root.file_systems.note_file(dev, || root.open_read(rel).map(Into::into));
            return Ok(Self { root: Arc::clone(root), rel: rel.clone(), file, remove: true });
        }
        Err(LockError::Foreign)
    }

    /// Acquires the lock if its file exists and nothing holds it; `None` if there is no file. The
    /// file stays when the lock is dropped, unless [`Lock::remove_file`] was called.
    ///
    /// # Errors
    /// `Held`; `Foreign` for a file that is not this user's; `Unsupported`; I/O errors.
    pub fn take_existing(root: &Arc<Root>, rel: &RelPath) -> Result<Option<Self>, LockError> {
        for _ in 0..MAX_TRIES {
            let found = root.with_place(rel.as_bytes(), |p| own::open(p, p.name, OFlags::RDWR));
            let file = match found {
                Ok(Existing::Own(fd, _)) => File::from(fd),
                Ok(Existing::Absent) => return Ok(None),
                Ok(Existing::Foreign) => return Err(LockError::Foreign),
                Err(error) => return Err(error.into()),
            };
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Err(LockError::Held { who: read_who(&file) }),
                Err(Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP) => {
                    return Err(LockError::Unsupported);
                }
                Err(error) => return Err(io::Error::from(error).into()),
            }
            // The previous holder removed the file after it was opened here and before it was
            // locked.
            if is_named(&file, root, rel)? {
                return Ok(Some(Self {
                    root: Arc::clone(root),
                    rel: rel.clone(),
                    file,
                    remove: false,
                }));
            }
        }
        Ok(None)
    }

    /// Whether the lock on the file `rel` is held, whoever owns the file.
    ///
    /// # Errors
    /// I/O errors; `Unsupported` on a file system without locks.
    pub fn is_held(root: &Root, rel: &RelPath) -> Result<bool, LockError> {
        match rustix::fs::flock(root.open_read(rel)?, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(false),
            Err(Errno::WOULDBLOCK) => Ok(true),
            Err(Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP) => Err(LockError::Unsupported),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }

    /// Removes the file when the lock is dropped.
    pub fn remove_file(&mut self) {
        self.remove = true;
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Removed while it is still locked, so that the name still belongs to this lock.
        if self.remove && is_named(&self.file, &self.root, &self.rel).unwrap_or(false) {
            let _ = self.root.remove(&self.rel);
        }
    }
}

fn open(root: &Root, rel: &RelPath) -> io::Result<Step> {
    root.with_place(rel.as_bytes(), |place| {
        match own::open(place, place.name, OFlags::RDWR)? {
            Existing::Own(fd, _) => return Ok(Step::Open(fd)),
            Existing::Foreign if own::remove(place, place.name) => {}
            Existing::Foreign => return Ok(Step::Foreign),
            Existing::Absent => {}
        }
        match own::create(place, place.name) {
            Ok(fd) if Stat::from(&rustix::fs::fstat(&fd)?).is_own_file() => Ok(Step::Open(fd)),
            // This file system does not report this process as the owner of its own files, so the
            // next process would remove the lock.
            Ok(_) => {
                own::remove(place, place.name);
                Ok(Step::Foreign)
            }
            Err(Errno::EXIST) => Ok(Step::Again),
            Err(error) => Err(error),
        }
    })
}

fn is_named(file: &File, root: &Root, rel: &RelPath) -> io::Result<bool> {
    let ours = Stat::from(&rustix::fs::fstat(file.as_fd())?);
    let named = root.with_place(rel.as_bytes(), |p| {
        match rustix::fs::statat(&p.dir, p.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    })?;
    Ok(named.is_some_and(|stat| Stat::from(&stat).same_file(&ours)))
}

fn read_who(file: &File) -> String {
    let mut who = Vec::new();
    let _ = file.take(WHO_MAX).read_to_end(&mut who);
    let who: String = String::from_utf8_lossy(&who).chars().filter(|c| !c.is_control()).collect();
    if who.trim().is_empty() { "another process".into() } else { who.trim().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_told_who_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = Arc::new(Root::open(dir.path()).unwrap());
        let rel = RelPath::new(b".lock".to_vec()).unwrap();
        let lock = Lock::take(&root, &rel, "process 7\non here").unwrap();
        match Lock::take(&root, &rel, "me") {
            Err(LockError::Held { who }) => assert_eq!(who, "process 7on here"),
            other => panic!("{other:?}"),
        }
        drop(lock);
        assert_eq!(root.stat(&rel).unwrap(), None);
        let again = Lock::take(&root, &rel, "me").unwrap();
        drop(again);
    }

    /// It cannot be opened for reading, so its own handle cannot be synced.
    #[test]
    fn the_lock_lets_a_directory_that_cannot_be_listed_be_synced() {
        let dir = tempfile::tempdir().unwrap();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(dir.path(), flags, rustix::fs::Mode::empty()).unwrap();
        let root = Arc::new(Root::of(fd, dir.path().to_path_buf()).unwrap());
        let sync = |root: &Root| rustix::fs::syncfs(&root.file_systems.handles()[0]);
        assert_eq!(sync(&root), Err(Errno::BADF));
        let rel = RelPath::new(b".lock".to_vec()).unwrap();
        let lock = Lock::take(&root, &rel, "me").unwrap();
        assert_eq!(sync(&root), Ok(()));
        drop(lock);
        assert_eq!(sync(&root), Ok(()), "without its name too");
        drop(Lock::take(&root, &rel, "another").unwrap());
    }

    #[test]
    fn a_look_at_the_lock_does_not_refuse_it() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(".lock"), "").unwrap();
        let root = Arc::new(Root::open(dir.path()).unwrap());
        let rel = RelPath::new(b".lock".to_vec()).unwrap();
        let look = Lock::take_existing(&root, &rel).unwrap().expect("nobody holds it");
        let (began, begins) = std::sync::mpsc::channel();
        let taker = std::thread::spawn({
            let (root, rel) = (Arc::clone(&root), rel.clone());
            move || {
                began.send(()).unwrap();
                Lock::take(&root, &rel, "me").map(drop)
            }
        });
        begins.recv().unwrap();
        std::thread::sleep(HELD_PAUSE * 2);
        drop(look);
        taker.join().unwrap().unwrap();
    }

    #[test]
    fn a_file_left_by_a_dead_process_is_free() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(".lock"), "dead").unwrap();
        let root = Arc::new(Root::open(dir.path()).unwrap());
        let rel = RelPath::new(b".lock".to_vec()).unwrap();
        Lock::take(&root, &rel, "me").unwrap();
    }
}

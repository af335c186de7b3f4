//! One transfer at a time: an advisory lock on a file that says who holds it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;

use packtrain_object::RelPath;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::root::Root;
use super::stat::Stat;

/// The longest "who" we read back, in bytes.
const WHO_MAX: u64 = 512;

/// Why a lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds it.
    #[error("in use by {who}; wait for it or stop it")]
    Held {
        /// What the holder says of itself.
        who: String,
    },
    /// What the file system says.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A lock held until it is dropped or the process ends, however it ends.
#[derive(Debug)]
pub struct Lock {
    root: Arc<Root>,
    rel: RelPath,
    file: File,
}

impl Lock {
    /// Takes the lock on the file `rel`, made when it is not there; `who` is what others are told.
    ///
    /// # Errors
    /// `Held` with the holder's words; else what the file system says.
    pub fn take(root: &Arc<Root>, rel: &RelPath, who: &str) -> Result<Self, LockError> {
        loop {
            let mut file = open(root, rel)?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Err(LockError::Held { who: read_who(&file) }),
                // A file system without locks: better unlocked than not at all.
                Err(Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
            // The holder before us removed the file between our opening and locking it.
            if !is_named(&file, root, rel)? {
                continue;
            }
            // Who holds it is a courtesy: a full disk must not stop a resume.
            let _ = file.set_len(0).and_then(|()| file.write_all(who.as_bytes()));
            return Ok(Self { root: Arc::clone(root), rel: rel.clone(), file });
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While it is still locked, so that the name is ours to remove.
        if is_named(&self.file, &self.root, &self.rel).unwrap_or(false) {
            let _ = self.root.remove(&self.rel);
        }
    }
}

fn open(root: &Root, rel: &RelPath) -> io::Result<File> {
    let flags = OFlags::RDWR
        | OFlags::CREATE
        | OFlags::NOFOLLOW
        | OFlags::CLOEXEC
        | OFlags::NONBLOCK
        | OFlags::NOCTTY;
    let mode = Mode::from_raw_mode(0o600);
    root.with_place(rel.as_bytes(), |p| rustix::fs::openat(&p.dir, p.name, flags, mode))
        .map(File::from)
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

    #[test]
    fn a_file_left_by_a_dead_process_is_free() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(".lock"), "dead").unwrap();
        let root = Arc::new(Root::open(dir.path()).unwrap());
        let rel = RelPath::new(b".lock".to_vec()).unwrap();
        Lock::take(&root, &rel, "me").unwrap();
    }
}

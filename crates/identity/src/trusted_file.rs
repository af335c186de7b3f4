//! Reads a file of authorizations if no user except this one and root can have changed it, like
//! sshd's `StrictModes`.
//!
//! The file is opened once, and the open file is checked and read. It and each directory above it
//! must belong to this user or root and must not be writable by others. A directory that others may
//! write is accepted if it is sticky (`/tmp`), because there only the owner of a file can rename or
//! remove it. As in sshd, the check ends at the home directory.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat, open, openat};
use rustix::process::geteuid;

use crate::statefile::MAX_FILE_BYTES;

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// It cannot be read.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// Users other than its owner may write the file or the directory.
    #[error("{path} can be written by others: run chmod go-w on it")]
    Writable {
        /// The file, or a directory above it.
        path: PathBuf,
    },
    /// It belongs to another user.
    #[error("{path} belongs to user {owner}: it must be this user's or root's")]
    Owner {
        /// The file, or a directory above it.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// It is a device, a pipe or a directory.
    #[error("{path} is not a regular file")]
    Kind {
        /// Its path.
        path: PathBuf,
    },
}

/// The text of the file at `path`; `None` if it does not exist.
pub(crate) fn read(path: &Path) -> Result<Option<String>, TrustError> {
    let home = std::env::var_os("HOME").and_then(|home| std::fs::canonicalize(home).ok());
    read_below(path, home.as_deref(), geteuid().as_raw())
}

fn read_below(path: &Path, home: Option<&Path>, user: u32) -> Result<Option<String>, TrustError> {
    let failed = |error: io::Error| TrustError::Io { path: path.to_owned(), error };
    let missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let file = std::fs::canonicalize(path).and_then(|full| open_chain(&full).map(|c| (full, c)));
    let (full, mut chain) = match file {
        Ok(opened) => opened,
        Err(error) if missing(&error) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let Some(file) = chain.pop() else { return Err(TrustError::Kind { path: full }) };
    let found = fstat(&file).map_err(|e| failed(e.into()))?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(TrustError::Kind { path: full });
    }
    check(file.as_fd(), &full, user, false)?;
    let above: Vec<&Path> = full.ancestors().skip(1).collect();
    for (directory, name) in chain.iter().rev().zip(above) {
        check(directory.as_fd(), name, user, true)?;
        if home.is_some_and(|home| home == name) {
            break;
        }
    }
    let mut text = String::new();
    File::from(file).take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        let error = io::Error::new(io::ErrorKind::InvalidData, "the file is far too long");
        return Err(failed(error));
    }
    Ok(Some(text))
}

/// Opens every component of a path, from `/` to the file, each beneath the previous one, without
/// following links.
fn open_chain(full: &Path) -> io::Result<Vec<OwnedFd>> {
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut chain = vec![open("/", directory, Mode::empty())?];
    let mut names = full
        .components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name),
            _ => None,
        })
        .peekable();
    while let Some(name) = names.next() {
        let flags = match names.peek() {
            Some(_) => directory,
            // Opening a pipe without a writer must not block.
            None => OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC,
        };
        if let Some(above) = chain.last() {
            let next = openat(above, name, flags | OFlags::NOFOLLOW, Mode::empty())?;
            chain.push(next);
        }
    }
    Ok(chain)
}

fn check(fd: BorrowedFd<'_>, path: &Path, user: u32, directory: bool) -> Result<(), TrustError> {
    let path = || path.to_owned();
    let found = fstat(fd).map_err(|e| TrustError::Io { path: path(), error: e.into() })?;
    if found.st_uid != 0 && found.st_uid != user {
        return Err(TrustError::Owner { path: path(), owner: found.st_uid });
    }
    let mode = Mode::from_raw_mode(found.st_mode);
    let sticky = directory && mode.contains(Mode::SVTX);
    if mode.intersects(Mode::WGRP | Mode::WOTH) && !sticky {
        return Err(TrustError::Writable { path: path() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("ours");
    }

    fn rig() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("above/keys");
        fs::create_dir(dir.path().join("above")).expect("fine");
        mode(&dir.path().join("above"), 0o755);
        fs::write(&path, "text").expect("fine");
        mode(&path, 0o644);
        (dir, path)
    }

    #[test]
    fn a_file_below_directories_of_ours_is_read() {
        let (dir, path) = rig();
        assert_eq!(read(&path).expect("fine").as_deref(), Some("text"));
        assert_eq!(read(&dir.path().join("none")).expect("no file"), None);
        assert_eq!(read(&dir.path().join("none/at/all")).expect("no file"), None);
        symlink("above/keys", dir.path().join("link")).expect("fine");
        assert_eq!(read(&dir.path().join("link")).expect("fine").as_deref(), Some("text"));
    }

    #[test]
    fn what_others_may_write_is_not_used() {
        let (dir, path) = rig();
        let above = dir.path().join("above");
        for (name, bits, good) in [
            (&path, 0o664, 0o644),
            (&path, 0o646, 0o600),
            (&above, 0o775, 0o755),
            (&above, 0o757, 0o700),
        ] {
            mode(name, bits);
            match read(&path) {
                Err(TrustError::Writable { path }) => {
                    assert!(path.ends_with(name.file_name().unwrap()))
                }
                other => panic!("{bits:o}: {other:?}"),
            }
            mode(name, good);
            assert!(read(&path).expect("as it was").is_some(), "{good:o}");
        }
        mode(&above, 0o1777);
        assert!(read(&path).expect("sticky, as /tmp").is_some());
        // Directories above the home directory are not checked, as in sshd.
        mode(dir.path(), 0o777);
        let user = geteuid().as_raw();
        let home = fs::canonicalize(&above).expect("there");
        assert!(read_below(&path, Some(&home), user).expect("below home").is_some());
        assert!(matches!(read_below(&path, None, user), Err(TrustError::Writable { .. })));
    }

    #[test]
    fn what_belongs_to_others_is_not_used() {
        let (_dir, path) = rig();
        // Another user sees it as foreign, unless it belongs to root.
        let owner = fs::metadata(&path).expect("there").uid();
        let seen = read_below(&path, None, owner.wrapping_add(1));
        if owner == 0 {
            assert!(seen.expect("root's").is_some());
            std::os::unix::fs::chown(&path, Some(12_345), None).expect("root may");
            let seen = read(&path);
            assert!(matches!(seen, Err(TrustError::Owner { owner: 12_345, .. })), "{seen:?}");
        } else {
            assert!(matches!(seen, Err(TrustError::Owner { .. })), "{seen:?}");
        }
    }

    #[test]
    fn only_a_regular_file_is_read() {
        let (dir, path) = rig();
        let above = dir.path().join("above");
        assert!(matches!(read(&above), Err(TrustError::Kind { .. })));
        assert!(matches!(read(Path::new("/")), Err(TrustError::Kind { .. })));
        fs::remove_file(&path).expect("fine");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        if made.is_ok_and(|status| status.success()) {
            mode(&path, 0o600);
            assert!(matches!(read(&path), Err(TrustError::Kind { .. })), "and it does not wait");
        }
    }
}

//! Small files that several processes read and rewrite: `known_hosts`, tickets.
//!
//! A writer holds a lock on `NAME.lock` in the same directory, writes a temporary, syncs it and
//! renames it. A reader sees the old or the new text, complete, also after a crash.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Maximum size of such a file, in bytes; a longer one is an error and not read into memory.
pub(crate) const MAX_FILE_BYTES: u64 = 16 << 20;

/// The text of the file at `path`; `None` if it does not exist.
pub fn read(path: &Path) -> io::Result<Option<String>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let mut text = String::new();
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is far too long"));
    }
    Ok(Some(text))
}

/// Reads the file, calls `change` for its new text, and replaces it, all under its lock. If
/// `change` returns no text, the file is not changed. Only its owner can read the file (0600).
pub(crate) fn update<T>(
    path: &Path,
    change: impl FnOnce(&str) -> (Option<String>, T),
) -> io::Result<T> {
    make_parent(path)?;
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(beside(path, "", ".lock"))?;
    // Released when the file is closed.
    lock.lock()?;
    let old = read(path)?.unwrap_or_default();
    let (new, result) = change(&old);
    if let Some(new) = new {
        replace(path, new.as_bytes())?;
    }
    Ok(result)
}

/// Writes `contents` to a new file that only its owner can read, and renames it to `path`. The name
/// never refers to a file that others can read or that is incomplete.
pub fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    make_parent(path)?;
    replace_whole(path, contents, &Mode::New(0o600))
}

/// The permissions of a file that replaces another.
#[derive(Debug)]
pub enum Mode {
    /// These, without those of the umask.
    New(u32),
    /// Those of the old file.
    Kept(Permissions),
}

/// Writes `contents` to a new file and renames it to `path`, so that a full disk or a crash leaves the
/// old one.
pub fn replace_whole(path: &Path, contents: &[u8], mode: &Mode) -> io::Result<()> {
    let temporary = beside(path, ".", &format!(".{}.tmp", std::process::id()));
    let _ = fs::remove_file(&temporary);
    let written = write_new(&temporary, contents, mode).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
        return written;
    }
    File::open(parent(path))?.sync_all()
}

fn write_new(path: &Path, contents: &[u8], mode: &Mode) -> io::Result<()> {
    let bits = if let Mode::New(bits) = mode { *bits } else { 0o600 };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(bits).open(path)?;
    file.write_all(contents)?;
    if let Mode::Kept(permissions) = mode {
        file.set_permissions(permissions.clone())?;
    }
    file.sync_all()
}

fn make_parent(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(parent(path))
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

fn beside(path: &Path, before: &str, after: &str) -> PathBuf {
    let mut name = OsString::from(before);
    name.push(path.file_name().unwrap_or_default());
    name.push(after);
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn many_writers_lose_nothing() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("deep/er/file");
        std::thread::scope(|scope| {
            for writer in 0..8 {
                let path = &path;
                scope.spawn(move || {
                    for line in 0..20 {
                        update(path, |old| (Some(format!("{old}{writer} {line}\n")), ()))
                            .expect("the directory can be written");
                    }
                });
            }
        });
        let text = read(&path).expect("readable").expect("there");
        assert_eq!(text.lines().count(), 160);
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn no_text_leaves_the_file_alone_and_errors_leave_no_temporary() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("file");
        assert_eq!(update(&path, |old| (None, old.len())).expect("fine"), 0);
        assert!(read(&path).expect("fine").is_none());
        fs::create_dir_all(path.join("x")).expect("fine");
        assert!(replace(&path, b"no file can take a full directory's place").is_err());
        let names: Vec<_> = fs::read_dir(dir.path()).expect("fine").collect();
        assert_eq!(names.len(), 2, "the directory and the lock: {names:?}");
    }
}

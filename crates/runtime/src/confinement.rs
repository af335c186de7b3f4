//! The directory that a client of a server sees as `/`.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use packtrain_disk::Root;

/// A directory held open: all that a client asks for lies beneath it, whatever its name stands for
/// meanwhile.
#[derive(Clone)]
pub struct Confinement(Arc<Root>);

impl Confinement {
    /// Opens the directory at `path`. Links in `path` are followed: a server's owner named it.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(Arc::new(Root::open(path)?)))
    }

    /// Opens a directory beneath this one. The kernel looks it up beneath this very directory, so
    /// no link or rename leads out, and none that comes later moves it.
    pub fn beneath(&self, path: &Path) -> io::Result<Self> {
        use std::os::unix::ffi::OsStrExt;
        Ok(Self(Arc::new(self.0.open_beneath(path.as_os_str().as_bytes())?)))
    }

    /// The directory, as a root of its own.
    pub(crate) fn root(&self) -> io::Result<Root> {
        self.0.open_beneath(b"")
    }
}

impl fmt::Debug for Confinement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Confinement({})", self.0.path().display())
    }
}

impl fmt::Display for Confinement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.path().display().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use packtrain_object::RelPath;

    use super::*;

    #[test]
    fn a_directory_stays_the_one_that_was_opened_whatever_takes_its_name() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let base = dir.path().join("base");
        fs::create_dir_all(base.join("alice")).expect("fine");
        fs::create_dir(dir.path().join("secret")).expect("fine");
        fs::write(dir.path().join("secret/f"), "theirs").expect("fine");
        fs::write(base.join("alice/f"), "hers").expect("fine");
        let root = Confinement::open(&base).expect("there");
        let alice = root.beneath(Path::new("alice")).expect("there");
        // A client puts a link in the place of the directory after it was opened.
        fs::rename(base.join("alice"), base.join("away")).expect("fine");
        symlink("../secret", base.join("alice")).expect("fine");
        let name = RelPath::new(b"f".to_vec()).expect("a name");
        let mut text = String::new();
        let mut file = alice.root().expect("held open").open_read(&name).expect("there");
        io::Read::read_to_string(&mut file, &mut text).expect("readable");
        assert_eq!(text, "hers");
        // And before: the link leads out.
        assert!(root.beneath(Path::new("alice")).is_err());
        assert!(root.beneath(Path::new("../secret")).is_err());
        assert!(root.beneath(Path::new("away")).is_ok());
    }
}

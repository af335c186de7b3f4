//! The directory that a client of a server sees as `/`.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use packtrain_disk::Root;
use packtrain_transfer::{Failure, FailureKind};

/// An open directory that confines all paths of a client, even if its name later refers to another
/// directory.
#[derive(Clone)]
pub struct Confinement(Arc<Root>);

impl Confinement {
    /// Opens the directory at `path`. Links in `path` are followed, because the owner of the server
    /// chose it.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(Arc::new(Root::open(path)?)))
    }

    /// Opens a directory beneath this one. The kernel resolves the path beneath this directory, so
    /// no link or rename leads out of it, and later links or renames do not change it.
    pub fn beneath(&self, path: &Path) -> io::Result<Self> {
        use std::os::unix::ffi::OsStrExt;
        Ok(Self(Arc::new(self.0.open_beneath(path.as_os_str().as_bytes())?)))
    }

    /// The directory as a separate root.
    pub(crate) fn root(&self) -> io::Result<Root> {
        self.0.open_beneath(b"")
    }

    /// The same, with a failure that does not tell the client where the directory is.
    pub(crate) fn served(&self) -> Result<Root, Failure> {
        self.root()
            .map_err(|e| Failure::new(FailureKind::Fatal, format!("the served directory: {e}")))
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
        // A client replaces the directory with a link after it was opened.
        fs::rename(base.join("alice"), base.join("away")).expect("fine");
        symlink("../secret", base.join("alice")).expect("fine");
        let name = RelPath::new(b"f".to_vec()).expect("a name");
        let mut text = String::new();
        let mut file = alice.root().expect("held open").open_read(&name).expect("there");
        io::Read::read_to_string(&mut file, &mut text).expect("readable");
        assert_eq!(text, "hers");
        // A link that existed before leads out of the directory.
        assert!(root.beneath(Path::new("alice")).is_err());
        assert!(root.beneath(Path::new("../secret")).is_err());
        assert!(root.beneath(Path::new("away")).is_ok());
    }
}

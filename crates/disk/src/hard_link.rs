//! Further names of a file (`--hard-links`).

use std::io;

use packtrain_object::RelPath;
use packtrain_os::entropy;
use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::own;
use super::root::{LINK_TAG, Root};
use super::stat::{Kind, Stat};
use super::temp_name;

/// What became of a further name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HardLinked {
    /// The name was made.
    Made,
    /// Both names were the same file already.
    Same,
    /// They are not, and nothing was to be made.
    Differs,
    /// The first name does not exist any more, or is another file.
    Gone,
    /// The file has as many names as its file system allows.
    TooMany,
    /// Here the file can have no further name: the file system has no hard links, the names lie on
    /// different file systems, or this user may not link the file.
    Impossible,
}

impl Root {
    /// Gives the regular file `first`, which must have this size, the name `further` too. A file or
    /// link that has this name is replaced atomically. Both paths are resolved beneath the root, and no
    /// link in the last component is followed. A file of a user other than `owners` counts as gone:
    /// that user may write to it, and would write to the further name too.
    ///
    /// # Errors
    /// I/O errors; `IsADirectory` if a directory has the name `further`.
    pub fn hard_link(
        &self,
        first: &RelPath,
        size: u64,
        further: &RelPath,
        owners: [u32; 2],
    ) -> io::Result<HardLinked> {
        self.make_hard_link(first, size, further, owners, true)
    }

    /// What [`Root::hard_link`] would do. To learn it, another name beside `further` is made and
    /// removed.
    ///
    /// # Errors
    /// Those of [`Root::hard_link`].
    pub fn try_hard_link(
        &self,
        first: &RelPath,
        size: u64,
        further: &RelPath,
        owners: [u32; 2],
    ) -> io::Result<HardLinked> {
        self.make_hard_link(first, size, further, owners, false)
    }

    fn make_hard_link(
        &self,
        first: &RelPath,
        size: u64,
        further: &RelPath,
        owners: [u32; 2],
        stays: bool,
    ) -> io::Result<HardLinked> {
        let file = match self.linkable(first, size)? {
            Some(file) => file,
            None => return Ok(HardLinked::Gone),
        };
        if self.is_same(&file, further)? {
            return Ok(HardLinked::Same);
        }
        if !owners.contains(&file.uid) {
            return Ok(HardLinked::Gone);
        }
        let linked = self.with_place(further.as_bytes(), |new| {
            let linked = self.with_place_ungated(first.as_bytes(), |old| {
                let link = |name: &[u8]| {
                    rustix::fs::linkat(&old.dir, old.name, &new.dir, name, AtFlags::empty())
                };
                let mut temp = temp_name::name(new.name, LINK_TAG, self.name_max);
                if !own::remove(new, &temp) {
                    // Another user's file has the name and cannot be removed.
                    let tag = temp_name::random_tag(LINK_TAG, entropy::seed());
                    temp = temp_name::name(new.name, &tag, self.name_max);
                }
                link(&temp)?;
                // Somebody may have put another file there since it was examined.
                let made = rustix::fs::statat(&new.dir, &*temp, AtFlags::SYMLINK_NOFOLLOW);
                let renamed = made.and_then(|made| match Stat::from(&made).same_file(&file) {
                    false => Err(Errno::STALE),
                    true if stays => rustix::fs::renameat(&new.dir, &*temp, &new.dir, new.name),
                    true => Ok(()),
                });
                if !stays || renamed.is_err() {
                    own::remove(new, &temp);
                }
                renamed
            });
            linked.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        });
        match linked.as_ref().map_err(Errno::from_io_error) {
            Ok(()) => Ok(HardLinked::Made),
            Err(Some(Errno::STALE)) => Ok(HardLinked::Gone),
            Err(Some(Errno::MLINK)) => Ok(HardLinked::TooMany),
            Err(Some(Errno::PERM | Errno::OPNOTSUPP | Errno::XDEV | Errno::NOSYS)) => {
                Ok(HardLinked::Impossible)
            }
            _ => linked.map(|()| HardLinked::Made),
        }
    }

    /// Whether `further` is a name of the regular file `first`, which must have this size.
    ///
    /// # Errors
    /// I/O errors other than a missing name.
    pub fn is_hard_link(
        &self,
        first: &RelPath,
        size: u64,
        further: &RelPath,
    ) -> io::Result<HardLinked> {
        match self.linkable(first, size)? {
            None => Ok(HardLinked::Gone),
            Some(file) if self.is_same(&file, further)? => Ok(HardLinked::Same),
            Some(_) => Ok(HardLinked::Differs),
        }
    }

    fn linkable(&self, first: &RelPath, size: u64) -> io::Result<Option<Stat>> {
        Ok(self.stat(first)?.filter(|stat| stat.kind == Kind::File && stat.size == size))
    }

    fn is_same(&self, file: &Stat, further: &RelPath) -> io::Result<bool> {
        Ok(self.stat(further)?.is_some_and(|stat| stat.same_file(file)))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    fn rel(path: &str) -> RelPath {
        RelPath::new(path.as_bytes().to_vec()).expect("a path")
    }

    fn me() -> [u32; 2] {
        [rustix::process::geteuid().as_raw(); 2]
    }

    #[test]
    fn a_trial_changes_nothing_and_files_of_others_are_not_linked() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = Root::open(dir.path()).expect("open");
        fs::write(dir.path().join("first"), "four").expect("fine");
        fs::write(dir.path().join("old"), "old").expect("fine");
        for name in ["old", "new"] {
            let tried = root.try_hard_link(&rel("first"), 4, &rel(name), me());
            assert_eq!(tried.expect("fine"), HardLinked::Made);
        }
        let others = me().map(|uid| uid ^ 1);
        let linked = root.hard_link(&rel("first"), 4, &rel("old"), others);
        assert_eq!(linked.expect("fine"), HardLinked::Gone);
        assert_eq!(fs::read(dir.path().join("old")).expect("there"), b"old");
        assert_eq!(fs::metadata(dir.path().join("first")).expect("there").nlink(), 1);
        assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), 2);
    }

    #[test]
    fn a_file_gets_further_names_and_nothing_else_changes() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        let root = Root::open(dir.path()).expect("open");
        fs::create_dir(at("d")).expect("fine");
        fs::write(at("first"), "four").expect("fine");
        fs::write(at("old"), "old version").expect("fine");
        fs::hard_link(at("old"), at("outside")).expect("fine");
        let link = |size, name: &str| root.hard_link(&rel("first"), size, &rel(name), me());
        assert_eq!(link(4, "d/new").expect("fine"), HardLinked::Made);
        assert_eq!(link(4, "d/new").expect("fine"), HardLinked::Same);
        assert_eq!(link(4, "old").expect("fine"), HardLinked::Made);
        assert_eq!(link(5, "other").expect("fine"), HardLinked::Gone, "another size");
        assert!(link(4, "d").is_err(), "a directory stays");
        let ino = |name: &str| fs::metadata(at(name)).expect("there").ino();
        assert_eq!([ino("d/new"), ino("old")], [ino("first"); 2]);
        // The other name of the file that was replaced keeps its content.
        assert_eq!(fs::read(at("outside")).expect("there"), b"old version");
        assert_eq!(fs::metadata(at("outside")).expect("there").nlink(), 1);
        let names = || fs::read_dir(dir.path()).expect("a directory").count();
        assert_eq!(names(), 4, "no temporary is left");
        let check = |name: &str| root.is_hard_link(&rel("first"), 4, &rel(name));
        assert_eq!(check("old").expect("fine"), HardLinked::Same);
        assert_eq!(check("outside").expect("fine"), HardLinked::Differs);
        assert_eq!(check("none").expect("fine"), HardLinked::Differs);
        fs::remove_file(at("first")).expect("fine");
        assert_eq!(check("old").expect("fine"), HardLinked::Gone);
    }

    #[test]
    fn neither_end_leaves_the_root_and_links_are_not_followed() {
        let dir = tempfile::tempdir().expect("a directory");
        let base = dir.path().join("base");
        fs::create_dir(&base).expect("fine");
        fs::write(dir.path().join("secret"), "four").expect("fine");
        fs::write(base.join("first"), "four").expect("fine");
        symlink("..", base.join("out")).expect("fine");
        symlink("../secret", base.join("link")).expect("fine");
        let root = Root::open(&base).expect("open");
        let link = |first: &str, name: &str| root.hard_link(&rel(first), 4, &rel(name), me());
        assert!(link("out/secret", "x").is_err());
        assert!(link("first", "out/x").is_err());
        assert_eq!(link("link", "x").expect("fine"), HardLinked::Gone, "it is a symbolic link");
        assert!(!base.join("x").exists() && !dir.path().join("x").exists());
        // A symbolic link that has the further name is replaced, not what it leads to.
        assert_eq!(link("first", "link").expect("fine"), HardLinked::Made);
        assert_eq!(fs::metadata(dir.path().join("secret")).expect("there").nlink(), 1);
    }
}

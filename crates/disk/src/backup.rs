//! Keeps the old version of a file under another name (`--backup`).

use std::io;

use packtrain_object::{RelPath, directories_above};
use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::root::{Root, split};
use super::stat::{Kind, Stat};

/// What became of the old version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// There was nothing to keep: no such name, or a directory.
    Nothing,
    /// It has both names.
    Linked,
    /// It has only the new name: the file system has no hard links.
    Renamed,
}

impl Root {
    /// Gives the file or link `from` the name `to` too, replacing a file of that name. Missing
    /// parent directories of `to` are created. Where the file system allows it, `from` keeps its
    /// name, so there is no moment without a file of that name.
    ///
    /// # Errors
    /// I/O errors; `IsADirectory` if a directory has the name `to`; `InvalidInput` if both names are
    /// the same.
    pub fn keep_as(&self, from: &RelPath, to: &RelPath) -> io::Result<Kept> {
        if from == to {
            return Err(Errno::INVAL.into());
        }
        match self.stat(from)? {
            None => return Ok(Kept::Nothing),
            Some(stat) if stat.kind == Kind::Directory => return Ok(Kept::Nothing),
            Some(_) => {}
        }
        self.make_backup_dirs(from, to)?;
        self.with_place(from.as_bytes(), |old| {
            let kept = self.with_place_ungated(to.as_bytes(), |new| {
                let link =
                    || rustix::fs::linkat(&old.dir, old.name, &new.dir, new.name, AtFlags::empty());
                let mut linked = link();
                if linked == Err(Errno::EXIST) {
                    let there = rustix::fs::statat(&new.dir, new.name, AtFlags::SYMLINK_NOFOLLOW)?;
                    if Stat::from(&there).kind == Kind::Directory {
                        return Err(Errno::ISDIR);
                    }
                    rustix::fs::unlinkat(&new.dir, new.name, AtFlags::empty())?;
                    linked = link();
                }
                match linked {
                    Ok(()) => Ok(Kept::Linked),
                    Err(
                        Errno::PERM | Errno::OPNOTSUPP | Errno::MLINK | Errno::XDEV | Errno::NOSYS,
                    ) => {
                        rustix::fs::renameat(&old.dir, old.name, &new.dir, new.name)?;
                        Ok(Kept::Renamed)
                    }
                    Err(error) => Err(error),
                }
            });
            kept.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        })
    }

    /// Creates the missing directories of `to`. Those with the same names as the directories of `from`
    /// get their modes, so that nobody can read an old version who could not before.
    fn make_backup_dirs(&self, from: &RelPath, to: &RelPath) -> io::Result<()> {
        let all = 0o777 & !super::meta::umask();
        let old: Vec<&[u8]> = directories_above(from.as_bytes()).collect();
        let new: Vec<&[u8]> = directories_above(to.as_bytes()).collect();
        let alike = old.iter().rev().zip(new.iter().rev());
        let alike = alike.take_while(|(old, new)| split(old).1 == split(new).1).count();
        let twins = old[old.len() - alike..].iter().map(Some);
        let twins = std::iter::repeat_n(None, new.len() - alike).chain(twins);
        for (dir, twin) in new.iter().zip(twins) {
            let place = RelPath::try_from(dir.to_vec()).map_err(|_| Errno::NAMETOOLONG)?;
            let twin = twin.and_then(|twin| self.stat_bytes(twin).ok().flatten());
            self.make_dir(&place, twin.map_or(all, |stat| stat.mode & all))?;
        }
        Ok(())
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

    #[test]
    fn the_old_version_gets_a_second_name() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = Root::open(dir.path()).expect("open");
        fs::write(dir.path().join("f"), "old").expect("fine");
        assert_eq!(root.keep_as(&rel("f"), &rel("f~")).expect("fine"), Kept::Linked);
        assert_eq!(fs::read(dir.path().join("f~")).expect("there"), b"old");
        assert_eq!(fs::metadata(dir.path().join("f")).expect("stays").nlink(), 2);
        // An earlier backup is replaced, and parents are made.
        fs::remove_file(dir.path().join("f")).expect("fine");
        fs::write(dir.path().join("f"), "newer").expect("fine");
        assert_eq!(root.keep_as(&rel("f"), &rel("f~")).expect("fine"), Kept::Linked);
        assert_eq!(root.keep_as(&rel("f"), &rel("old/deep/f")).expect("fine"), Kept::Linked);
        for name in ["f~", "old/deep/f"] {
            assert_eq!(fs::read(dir.path().join(name)).expect("there"), b"newer", "{name}");
        }
        assert_eq!(root.keep_as(&rel("none"), &rel("none~")).expect("fine"), Kept::Nothing);
        assert_eq!(root.keep_as(&rel("old"), &rel("old~")).expect("fine"), Kept::Nothing);
        assert!(root.keep_as(&rel("f"), &rel("old")).is_err(), "a directory is not replaced");
        assert!(root.keep_as(&rel("f"), &rel("f")).is_err(), "a file is no backup of itself");
        assert_eq!(fs::read(dir.path().join("f")).expect("stays"), b"newer");
    }

    #[test]
    fn directories_of_old_versions_are_no_more_open_than_those_of_the_files() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().expect("a directory");
        let root = Root::open(dir.path()).expect("open");
        fs::create_dir_all(dir.path().join("t/secret/deep")).expect("fine");
        let set = |path: &str, mode| {
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(dir.path().join(path), mode).expect("fine");
        };
        set("t/secret/deep", 0o750);
        set("t/secret", 0o700);
        fs::write(dir.path().join("t/secret/deep/f"), "old").expect("fine");
        let from = rel("t/secret/deep/f");
        assert_eq!(root.keep_as(&from, &rel("t/BK/secret/deep/f")).expect("fine"), Kept::Linked);
        let mode = |path: &str| {
            fs::metadata(dir.path().join(path)).expect("there").permissions().mode() & 0o777
        };
        assert_eq!((mode("t/BK/secret"), mode("t/BK/secret/deep")), (0o700, 0o750));
        assert_eq!(mode("t/BK"), 0o777 & !super::super::meta::umask());
    }

    #[test]
    fn a_link_is_kept_as_a_link_and_nothing_leaves_the_root() {
        let dir = tempfile::tempdir().expect("a directory");
        let base = dir.path().join("base");
        fs::create_dir(&base).expect("fine");
        symlink("..", base.join("out")).expect("fine");
        symlink("nowhere", base.join("l")).expect("fine");
        let root = Root::open(&base).expect("open");
        assert_eq!(root.keep_as(&rel("l"), &rel("l~")).expect("fine"), Kept::Linked);
        assert_eq!(fs::read_link(base.join("l~")).expect("a link").as_os_str(), "nowhere");
        assert!(root.keep_as(&rel("l"), &rel("out/l")).is_err());
        assert!(fs::symlink_metadata(dir.path().join("l")).is_err());
    }
}

//! `--delete` where the file system ignores case. A name of the source may be found at the target in
//! another spelling, and that name is not one that the source lacks.

use std::collections::{HashMap, HashSet};

use packtrain_disk::{Root, Spelling};
use packtrain_object::RelPath;
use parking_lot::Mutex;

use super::delete::join;

/// The names of the source that the target spells in another way. Paths of entries are keys.
#[derive(Default)]
pub(super) struct Spellings(Mutex<State>);

#[derive(Default)]
struct State {
    /// The directory of the last name.
    last: Option<Directory>,
    /// The names of the source by those of the target.
    others: HashMap<Vec<u8>, Vec<u8>>,
    /// Directories where the target's spelling of a name is not known.
    unknown: HashSet<Vec<u8>>,
}

/// A directory at the target.
struct Directory {
    place: RelPath,
    /// Its names, if it may ignore case.
    names: Option<HashSet<Vec<u8>>>,
}

impl Spellings {
    /// The entry at `path` was found at `place`. If the target spells it in another way, it gets the
    /// spelling of the source, if `respell`.
    pub(super) fn found(&self, root: &Root, path: &RelPath, place: &RelPath, respell: bool) {
        let above = |path: &RelPath| path.parent().unwrap_or_else(RelPath::root);
        let (dir, name) = (above(place), place.file_name());
        let mut state = self.0.lock();
        if state.last.as_ref().is_none_or(|last| last.place != dir) {
            state.last = Some(Directory { names: names(root, &dir), place: dir });
        }
        let Some(Directory { names: Some(names), .. }) = &mut state.last else { return };
        if names.contains(name) {
            return;
        }
        match root.spelling(place) {
            Ok(Spelling::Same) => {
                names.insert(name.to_vec());
            }
            Ok(Spelling::Other(other)) => {
                // Where this is not possible, the other spelling stays.
                if respell && root.respell(place, &other).is_ok() {
                    names.remove(&other);
                    names.insert(name.to_vec());
                }
                let other = join(above(path).as_bytes(), &other);
                state.others.insert(other, path.as_bytes().to_vec());
            }
            // Another program removed it, so that no name in the directory is it.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Ok(Spelling::Unknown) | Err(_) => {
                state.unknown.insert(above(path).into_bytes());
            }
        }
    }

    /// The name of the source that the target spells as `path`.
    pub(super) fn of_source(&self, path: &[u8]) -> Option<Vec<u8>> {
        self.0.lock().others.get(path).cloned()
    }

    /// Whether each name in `dir` that is not one of the source is known to be none.
    pub(super) fn is_sure(&self, dir: &[u8]) -> bool {
        !self.0.lock().unknown.contains(dir)
    }
}

/// The names in a directory that may ignore case; none if it does not.
fn names(root: &Root, dir: &RelPath) -> Option<HashSet<Vec<u8>>> {
    let may = root.may_ignore_case(dir).unwrap_or(false);
    let items = may.then(|| root.list(dir).unwrap_or_default())?;
    Some(items.into_iter().map(|item| item.name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_gone_leaves_no_doubt() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = Root::open(dir.path()).expect("a directory");
        let path = RelPath::new(b"gone".to_vec()).expect("a path");
        let spellings = Spellings::default();
        // As where case is ignored.
        let names = Some(HashSet::new());
        spellings.0.lock().last = Some(Directory { place: RelPath::root(), names });
        spellings.found(&root, &path, &path, false);
        assert!(spellings.is_sure(b""));
    }
}

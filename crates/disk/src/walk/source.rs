//! The sources as the user names them.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use packtrain_object::{RelPath, SourceName};

use super::super::root::Root;
use super::super::stat::{Kind, Stat};
use super::Place;
use super::list::is_within;

/// All sources, in order.
#[derive(Debug)]
pub(super) struct Sources {
    roots: Vec<Arc<Root>>,
    sources: Vec<Source>,
    /// Sources by the first component of their name at the target; `None` for those that mean their
    /// contents.
    by_name: HashMap<Vec<u8>, Vec<usize>>,
}

#[derive(Debug)]
struct Source {
    named: Vec<u8>,
    /// The index of its root, or the reason why it has none.
    root: Result<usize, Option<io::Error>>,
    /// The name beneath the root; empty if the source means its contents.
    name: Vec<u8>,
}

/// Whether an earlier source has the same name at the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Earlier {
    /// No.
    None,
    /// The same file, or a directory that both sources share.
    Same,
    /// Another file.
    Other,
}

impl Sources {
    pub(super) fn open(
        all_named: Vec<Vec<u8>>,
        open: impl Fn(&[u8]) -> io::Result<Root>,
        as_contents: bool,
    ) -> Self {
        let mut all = Self { roots: Vec::new(), sources: Vec::new(), by_name: HashMap::new() };
        // Sources in the same directory share one open directory.
        let mut opened = HashMap::new();
        for named in all_named {
            let (dir, name) = split_argument(&named, as_contents);
            let root = match opened.get(&dir) {
                Some(at) => Ok(*at),
                None => open(&dir).map(|root| {
                    all.roots.push(Arc::new(root));
                    opened.insert(dir, all.roots.len() - 1);
                    all.roots.len() - 1
                }),
            };
            if root.is_ok() {
                all.by_name.entry(name.clone()).or_default().push(all.sources.len());
            }
            all.sources.push(Source { named, root: root.map_err(Some), name });
        }
        all
    }

    pub(super) fn len(&self) -> usize {
        self.sources.len()
    }

    pub(super) fn roots(&self) -> &[Arc<Root>] {
        &self.roots
    }

    pub(super) fn target_names(&self) -> Vec<Vec<u8>> {
        self.sources.iter().map(|source| source.name.clone()).collect()
    }

    /// The place where the source begins.
    pub(super) fn first_place(&mut self, source: usize) -> io::Result<Place> {
        let at = &mut self.sources[source];
        match &mut at.root {
            Ok(_) => Ok(Place { source, from: at.name.clone(), to: at.name.clone() }),
            Err(error) => Err(error.take().unwrap_or_else(|| io::ErrorKind::NotFound.into())),
        }
    }

    pub(super) fn is_first(&self, place: &Place) -> bool {
        self.sources[place.source].name == place.from
    }

    /// The source as the user named it.
    pub(super) fn named(&self, source: usize) -> Vec<u8> {
        self.sources[source].named.clone()
    }

    /// A path as the user would name it.
    pub(super) fn shown(&self, place: &Place) -> Vec<u8> {
        let source = &self.sources[place.source];
        let beneath = place.from.strip_prefix(&source.name[..]).unwrap_or(&place.from);
        let beneath = beneath.strip_prefix(b"/").unwrap_or(beneath);
        if beneath.is_empty() {
            return source.named.clone();
        }
        let slash: &[u8] = if source.named.ends_with(b"/") { b"" } else { b"/" };
        [&source.named, slash, beneath].concat()
    }

    /// The index of the root of a place in an opened source.
    pub(super) fn root_index(&self, place: &Place) -> usize {
        *self.sources[place.source].root.as_ref().unwrap_or(&0)
    }

    pub(super) fn root(&self, place: &Place) -> &Root {
        &self.roots[self.root_index(place)]
    }

    pub(super) fn stat(&self, place: &Place) -> io::Result<Option<Stat>> {
        self.root(place).stat_bytes(&place.from)
    }

    /// Whether the name at a place is a symbolic link.
    pub(super) fn is_link(&self, place: &Place) -> bool {
        let path = RelPath::try_from(place.from.clone());
        path.is_ok_and(|path| self.root(place).read_link(&path).is_ok())
    }

    /// Checks the earlier sources for the same name at the target. It uses no memory per name, so
    /// trees can be large.
    pub(super) fn earlier(&self, place: &Place, stat: &Stat) -> Earlier {
        if place.source == 0 {
            return Earlier::None;
        }
        let top = place.to.split(|&b| b == b'/').next().unwrap_or_default();
        let contents = self.by_name.get(&b""[..]).into_iter().flatten();
        let named = self.by_name.get(top).filter(|_| !top.is_empty()).into_iter().flatten();
        let mut found = Earlier::None;
        for &source in contents.chain(named).filter(|source| **source < place.source) {
            let same = Place { source, from: place.to.clone(), to: Vec::new() };
            debug_assert!(
                is_within(&same.from, &self.sources[source].name)
                    || self.sources[source].name.is_empty()
            );
            let Ok(Some(other)) = self.stat(&same) else { continue };
            let both_dirs = (other.kind, stat.kind) == (Kind::Directory, Kind::Directory);
            if !both_dirs && !other.same_file(stat) {
                return Earlier::Other;
            }
            found = Earlier::Same;
        }
        found
    }
}

/// The directory to open and the name in it; no name if the source means its contents.
fn split_argument(path: &[u8], as_contents: bool) -> (Vec<u8>, Vec<u8>) {
    match SourceName::of(path) {
        SourceName::Named(name) if !as_contents => {
            let dir = &path[..path.len() - name.len()];
            let dir = if dir.is_empty() { b"." } else { dir };
            (dir.to_vec(), name)
        }
        _ => (path.to_vec(), Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trailing_slash_means_the_contents() {
        for (path, dir, name) in [
            ("dir", ".", "dir"),
            ("dir/", "dir/", ""),
            ("dir/.", "dir/.", ""),
            ("a/dir", "a/", "dir"),
            ("/dir", "/", "dir"),
            ("/", "/", ""),
            (".", ".", ""),
            ("..", "..", ""),
            ("a/..", "a/..", ""),
        ] {
            let (d, n) = split_argument(path.as_bytes(), false);
            assert_eq!((&d[..], &n[..]), (dir.as_bytes(), name.as_bytes()), "{path}");
        }
        assert_eq!(split_argument(b"dir", true), (b"dir".to_vec(), b"".to_vec()));
    }
}

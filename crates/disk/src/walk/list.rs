//! A list of names, sorted so that parents come first.

use std::collections::VecDeque;

/// The role of a path in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// A parent directory of a listed name.
    Parent,
    /// A listed name.
    Name,
}

/// A path beneath the source and its role.
pub(super) type Listing = (Vec<u8>, Part);
/// A name that leads out of the source.
pub(super) type BadName = Vec<u8>;

/// The cleaned names, sorted, without duplicates.
#[derive(Debug)]
pub(super) struct Listed {
    bad: Vec<BadName>,
    names: std::vec::IntoIter<Vec<u8>>,
    last: Vec<u8>,
    parts: VecDeque<Listing>,
    /// A directory that was taken with all its contents.
    taken: Option<Vec<u8>>,
}

impl Listed {
    pub(super) fn new(names: Vec<Vec<u8>>) -> Self {
        let mut bad = Vec::new();
        let mut clean = Vec::with_capacity(names.len());
        for name in names {
            match cleaned(&name) {
                Some(path) => clean.push(path),
                None => bad.push(name),
            }
        }
        // Sorted by component, so that a directory immediately precedes its contents.
        clean.sort_by(|a, b| a.split(|&c| c == b'/').cmp(b.split(|&c| c == b'/')));
        clean.dedup();
        Self {
            bad,
            names: clean.into_iter(),
            last: Vec::new(),
            parts: VecDeque::new(),
            taken: None,
        }
    }

    /// The next path, or an invalid name.
    pub(super) fn next(&mut self) -> Option<Result<Listing, BadName>> {
        if let Some(bad) = self.bad.pop() {
            return Some(Err(bad));
        }
        if let Some(part) = self.parts.pop_front() {
            return Some(Ok(part));
        }
        let taken = self.taken.take();
        let is_taken = |name: &Vec<u8>| taken.as_ref().is_some_and(|dir| is_within(name, dir));
        let name = self.names.find(|name| !is_taken(name))?;
        for (slash, _) in name.iter().enumerate().filter(|(_, b)| **b == b'/') {
            let parent = &name[..slash];
            if !is_within(&self.last, parent) {
                self.parts.push_back((parent.to_vec(), Part::Parent));
            }
        }
        self.last.clone_from(&name);
        self.parts.push_back((name, Part::Name));
        self.parts.pop_front().map(Ok)
    }
}

impl Listed {
    /// Marks the last returned directory as taken with all its contents, so that listed names in it
    /// are skipped.
    pub(super) fn took_all(&mut self) {
        self.taken = Some(self.last.clone());
    }
}

/// Whether `path` is `dir` or lies beneath it.
pub(super) fn is_within(path: &[u8], dir: &[u8]) -> bool {
    dir.is_empty() || path.starts_with(dir) && matches!(path.get(dir.len()), None | Some(b'/'))
}

/// The path without `.`, double and outer slashes; `None` for a path with `..` or a NUL byte.
fn cleaned(name: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(name.len());
    for part in name.split(|&b| b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return None,
            part if part.contains(&0) => return None,
            part => {
                if !out.is_empty() {
                    out.push(b'/');
                }
                out.extend_from_slice(part);
            }
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(names: &[&str]) -> Vec<(String, Part)> {
        let mut listed = Listed::new(names.iter().map(|n| n.as_bytes().to_vec()).collect());
        std::iter::from_fn(|| listed.next())
            .map(|part| part.unwrap())
            .map(|(path, part)| (String::from_utf8(path).unwrap(), part))
            .collect()
    }

    #[test]
    fn parents_come_once_and_first() {
        use Part::{Name, Parent};
        let found = all(&["a/b/d", "./a/b//c", "x", "a/b/c", "a.b"]);
        let wanted = [
            ("a", Parent),
            ("a/b", Parent),
            ("a/b/c", Name),
            ("a/b/d", Name),
            ("a.b", Name),
            ("x", Name),
        ];
        assert_eq!(found, wanted.map(|(path, part)| (path.to_owned(), part)));
    }

    #[test]
    fn names_that_lead_out_are_refused() {
        let mut listed = Listed::new(vec![b"../x".to_vec(), b"a\0".to_vec(), b"ok".to_vec()]);
        assert_eq!(listed.next(), Some(Err(b"a\0".to_vec())));
        assert_eq!(listed.next(), Some(Err(b"../x".to_vec())));
        assert_eq!(listed.next(), Some(Ok((b"ok".to_vec(), Part::Name))));
        assert_eq!(listed.next(), None);
    }
}

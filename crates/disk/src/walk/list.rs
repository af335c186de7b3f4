//! A list of names, sorted so that parents come first.

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
    /// The newest listed name.
    name: Vec<u8>,
    /// Where the search for its next slash begins; none if the name itself was returned.
    at: Option<usize>,
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
        Self { bad, names: clean.into_iter(), name: Vec::new(), at: None, taken: None }
    }

    /// The next path, or an invalid name.
    pub(super) fn next(&mut self) -> Option<Result<Listing, BadName>> {
        if let Some(bad) = self.bad.pop() {
            return Some(Err(bad));
        }
        if let Some(part) = self.part() {
            return Some(Ok(part));
        }
        let taken = self.taken.take();
        let is_taken = |name: &Vec<u8>| taken.as_ref().is_some_and(|dir| is_within(name, dir));
        let name = self.names.find(|name| !is_taken(name))?;
        let last = std::mem::replace(&mut self.name, name);
        self.at = Some(above_both(&last, &self.name));
        self.part().map(Ok)
    }

    /// The next directory above the listed name, or the name itself: one at a time, because together
    /// they can be much longer than the name.
    fn part(&mut self) -> Option<Listing> {
        let from = self.at?;
        let slash = self.name[from..].iter().position(|&b| b == b'/').map(|at| from + at);
        self.at = slash.map(|at| at + 1);
        Some(match slash {
            Some(at) => (self.name[..at].to_vec(), Part::Parent),
            None => (self.name.clone(), Part::Name),
        })
    }
}

impl Listed {
    /// Marks the last returned directory as taken with all its contents, so that listed names in it
    /// are skipped.
    pub(super) fn took_all(&mut self) {
        self.taken = Some(self.name.clone());
    }
}

/// Length of the longest directory, with its slash, that is above `name` and is `last` or above it.
fn above_both(last: &[u8], name: &[u8]) -> usize {
    let same = last.iter().zip(name).take_while(|(a, b)| a == b).count();
    let ends =
        |at: &usize| name.get(*at) == Some(&b'/') && matches!(last.get(*at), None | Some(b'/'));
    (0..=same).rev().find(ends).map_or(0, |at| at + 1)
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

    /// A name of 4 KiB has 2,048 directories above it, which together take 4 MiB.
    #[test]
    fn parents_of_a_deep_name_are_made_one_at_a_time() {
        let deep = ["a"; 2_048].join("/");
        let mut listed = Listed::new(vec![deep.clone().into_bytes(), format!("{deep}b").into()]);
        let parents = std::iter::from_fn(|| listed.next().map(Result::unwrap));
        let parents: Vec<_> = parents.map(|(path, part)| (path.len(), part)).collect();
        assert_eq!(parents.len(), 2_047 + 2, "those of the second name were returned");
        assert_eq!(parents[2_046], (4_093, Part::Parent));
        assert_eq!(parents[2_047..], [(4_095, Part::Name), (4_096, Part::Name)]);
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

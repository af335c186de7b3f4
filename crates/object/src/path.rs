//! Paths below the destination, as bytes: checked once at construction, then safe to join.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Maximum length of a component in bytes (Linux `NAME_MAX`).
const MAX_COMPONENT: usize = 255;
/// Maximum length of a path in bytes (Linux `PATH_MAX`).
pub const MAX_PATH: usize = 4096;
/// Why an entry is refused whose path another one has.
pub const PATH_TAKEN: &str = "another source has something of the same name, which was taken";

/// The directories above a relative path, without the root, from the top.
pub fn directories_above(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    slashes.map(|(at, _)| &path[..at])
}

/// A relative path that cannot leave its root: no empty, `.` or `..` component, no NUL, components
/// of at most 255 bytes, 4096 bytes in total. Names are bytes, not text.
///
/// The empty path is the root itself: the destination directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub struct RelPath(Vec<u8>);

/// Why bytes are not a valid path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It is empty; use [`RelPath::root`] for the root.
    #[error("a path is empty")]
    Empty,
    /// It starts with a slash.
    #[error("a path is absolute")]
    Absolute,
    /// Two slashes in a row, or one at the end.
    #[error("a path has an empty component")]
    EmptyComponent,
    /// A component `.` or `..`.
    #[error("a path has a `.` or `..` component")]
    Dots,
    /// A NUL byte.
    #[error("a path has a NUL byte")]
    Nul,
    /// A component is longer than 255 bytes.
    #[error("a file name is longer than 255 bytes")]
    ComponentTooLong,
    /// The path is longer than 4096 bytes.
    #[error("a path is longer than 4096 bytes")]
    TooLong,
}

impl RelPath {
    /// Checks `bytes`.
    pub fn new(bytes: Vec<u8>) -> Result<Self, PathError> {
        if bytes.is_empty() {
            return Err(PathError::Empty);
        }
        check(&bytes)?;
        Ok(Self(bytes))
    }

    /// The destination directory itself.
    pub const fn root() -> Self {
        Self(Vec::new())
    }

    /// Whether this is the destination directory itself.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The path's bytes; empty for the root.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes themselves.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// The last component; empty for the root.
    pub fn file_name(&self) -> &[u8] {
        self.0.rsplit(|&b| b == b'/').next().unwrap_or_default()
    }

    /// The directory that contains it; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        if self.is_root() {
            return None;
        }
        let cut = self.0.iter().rposition(|&b| b == b'/').unwrap_or(0);
        Some(Self(self.0[..cut].to_vec()))
    }

    /// The components from the root on; none for the root itself.
    pub fn components(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|&b| b == b'/').filter(|c| !c.is_empty())
    }

    /// The path of `name` in this directory; `name` may itself be a relative path.
    pub fn join(&self, name: &[u8]) -> Result<Self, PathError> {
        let mut bytes = Vec::with_capacity(self.0.len() + 1 + name.len().min(MAX_PATH));
        if !self.is_root() {
            bytes.extend_from_slice(&self.0);
            bytes.push(b'/');
        }
        match name {
            [] => return Err(PathError::Empty),
            [b'/', ..] => return Err(PathError::Absolute),
            _ => bytes.extend_from_slice(name),
        }
        Self::new(bytes)
    }
}

fn check(bytes: &[u8]) -> Result<(), PathError> {
    if bytes.len() > MAX_PATH {
        return Err(PathError::TooLong);
    }
    if bytes.first() == Some(&b'/') {
        return Err(PathError::Absolute);
    }
    for component in bytes.split(|&b| b == b'/') {
        match component {
            [] => return Err(PathError::EmptyComponent),
            b"." | b".." => return Err(PathError::Dots),
            long if long.len() > MAX_COMPONENT => return Err(PathError::ComponentTooLong),
            name if name.contains(&0) => return Err(PathError::Nul),
            _ => {}
        }
    }
    Ok(())
}

impl TryFrom<Vec<u8>> for RelPath {
    type Error = PathError;
    /// As [`RelPath::new`], but empty bytes are the root, as in the serialised form.
    fn try_from(bytes: Vec<u8>) -> Result<Self, PathError> {
        if bytes.is_empty() { Ok(Self::root()) } else { Self::new(bytes) }
    }
}

impl From<RelPath> for Vec<u8> {
    fn from(path: RelPath) -> Self {
        path.0
    }
}

impl AsRef<[u8]> for RelPath {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for RelPath {
    /// For people: control characters and bytes that are not UTF-8 are escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() {
            return f.write_str(".");
        }
        for part in self.0.utf8_chunks() {
            for c in part.valid().chars() {
                if c.is_control() {
                    write!(f, "{}", c.escape_default())?;
                } else {
                    write!(f, "{c}")?;
                }
            }
            for byte in part.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{self}`")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn new(bytes: &[u8]) -> Result<RelPath, PathError> {
        RelPath::new(bytes.to_vec())
    }

    #[test]
    fn escapes_and_oddities_are_refused() {
        assert_eq!(new(b""), Err(PathError::Empty));
        assert_eq!(new(b"/etc/passwd"), Err(PathError::Absolute));
        for dots in [&b".."[..], b".", b"a/../b", b"../a", b"a/..", b"./a", b"a/."] {
            assert_eq!(new(dots), Err(PathError::Dots), "{dots:?}");
        }
        assert_eq!(new(b"a//b"), Err(PathError::EmptyComponent));
        assert_eq!(new(b"a/"), Err(PathError::EmptyComponent));
        assert_eq!(new(b"a\0b"), Err(PathError::Nul));
        assert!(new(&[b'x'; 255]).is_ok());
        assert_eq!(new(&[b'x'; 256]), Err(PathError::ComponentTooLong));
        let long = b"x/".repeat(2048);
        assert!(new(&long[..4095]).is_ok());
        assert_eq!(new(&[&long[..], b"x"].concat()), Err(PathError::TooLong));
        assert!(new(b"...").is_ok() && new(b"..a/b..").is_ok() && new(b"\xff\xfe").is_ok());
    }

    #[test]
    fn parts() {
        let path = new(b"a/b/c").unwrap();
        assert_eq!(path.file_name(), b"c");
        assert_eq!(path.parent(), Some(new(b"a/b").unwrap()));
        assert_eq!(new(b"a").unwrap().parent(), Some(RelPath::root()));
        assert_eq!(RelPath::root().parent(), None);
        assert_eq!(path.components().collect::<Vec<_>>(), [b"a", b"b", b"c"]);
        assert_eq!(RelPath::root().components().count(), 0);
        assert_eq!(RelPath::root().join(b"a").unwrap().join(b"b/c"), Ok(path));
        assert_eq!(RelPath::root().join(b"/a"), Err(PathError::Absolute));
        assert_eq!(new(b"a").unwrap().join(b".."), Err(PathError::Dots));
        assert_eq!(new(b"a\x1b[2J\xff").unwrap().to_string(), "a\\u{1b}[2J\\xff");
    }

    proptest! {
        #[test]
        fn what_is_accepted_stays_below_the_root(bytes in prop::collection::vec(
            prop::sample::select(b"ab./\0\xff".to_vec()), 0..12)) {
            if let Ok(path) = RelPath::new(bytes.clone()) {
                prop_assert_eq!(path.as_bytes(), &bytes[..]);
                prop_assert!(path.components().all(|c| c != b"." && c != b".."));
                let rebuilt = path.components()
                    .try_fold(RelPath::root(), |dir, name| dir.join(name));
                prop_assert_eq!(rebuilt, Ok(path.clone()));
                prop_assert_eq!(path.parent().unwrap().join(path.file_name()), Ok(path));
            }
        }
    }
}

//! The name at the destination of a source given by the user.

use serde::{Deserialize, Serialize};

/// The name of a source at the destination. As with rsync, `dir` is copied under its own name and
/// `dir/` means its contents.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SourceName {
    /// The source's contents, directly in the destination: `dir/`, `dir/.`, `.`, `..`, `/`.
    Contents,
    /// One entry with this name and, if it is a directory, everything below it.
    Named(Vec<u8>),
}

impl SourceName {
    /// Its approximate size on the wire, in bytes.
    #[expect(clippy::len_without_is_empty, reason = "no name is empty on the wire")]
    pub fn len(&self) -> usize {
        match self {
            Self::Contents => 1,
            Self::Named(name) => name.len() + 5,
        }
    }

    /// The name of a source given as `path`.
    pub fn of(path: &[u8]) -> Self {
        match path.rsplit(|&b| b == b'/').next().unwrap_or_default() {
            b"" | b"." | b".." => Self::Contents,
            name => Self::Named(name.to_vec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trailing_slash_or_dot_means_the_contents() {
        for path in ["", "/", ".", "..", "dir/", "dir//", "dir/.", "a/..", "~/"] {
            assert_eq!(SourceName::of(path.as_bytes()), SourceName::Contents, "{path}");
        }
        for (path, name) in
            [("dir", "dir"), ("a/dir", "dir"), ("/x", "x"), ("~/a", "a"), ("..a", "..a")]
        {
            let named = SourceName::Named(name.as_bytes().to_vec());
            assert_eq!(SourceName::of(path.as_bytes()), named, "{path}");
        }
    }
}

//! What a source that the user named is called at the destination.

use serde::{Deserialize, Serialize};

/// The name of a source at the destination. As with rsync, `dir` is copied under its own name and
/// `dir/` stands for what is in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SourceName {
    /// The source's contents, directly in the destination: `dir/`, `dir/.`, `.`, `..`, `/`.
    Contents,
    /// One entry of this name and, if it is a directory, what is below it.
    Named(Vec<u8>),
}

impl SourceName {
    /// About how many bytes it takes on the wire.
    #[expect(clippy::len_without_is_empty, reason = "no name is empty on the wire")]
    pub fn len(&self) -> usize {
        match self {
            Self::Contents => 1,
            Self::Named(name) => name.len() + 5,
        }
    }

    /// The name of the source that the user wrote as `path`.
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

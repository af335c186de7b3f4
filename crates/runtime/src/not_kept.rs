//! What the options ask to keep and an end could not keep.

use packtrain_service::{Notice, NoticeLevel};
use serde::{Deserialize, Serialize};

/// Counts for one line each at the end of a copy. Both ends have counts of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotKept {
    /// Sink: names that could not become hard links and are files of their own.
    pub links: u64,
    /// Source: names of files that the table of files with several names had no room for.
    pub untracked_links: u64,
    /// Sink: entries whose extended attributes could not be set.
    pub attributes: u64,
    /// Source: entries of file systems without extended attributes of users.
    pub unsupported_attributes: u64,
    /// Source: entries with more extended attributes than an entry may have.
    pub large_attributes: u64,
    /// Sink: entries whose access control lists could not be set.
    pub acls: u64,
    /// Source: entries of file systems without POSIX access control lists.
    pub unsupported_acls: u64,
    /// Source: entries with access control lists that are too long.
    pub large_acls: u64,
    /// Sink: entries whose mode or time could not be set.
    pub metadata: u64,
}

impl NotKept {
    /// The notices for the user.
    pub fn notices(&self) -> Vec<Notice> {
        let texts = [
            (
                self.links,
                "copied as files of their own, not as hard links, because the target allows no \
                 hard link there",
            ),
            (
                self.untracked_links,
                "copied as files of their own, because --hard-links tracks 4,194,304 files with \
                 several names at a time",
            ),
            (
                self.attributes,
                "copied without extended attributes, because the file system of the target \
                 has none or no room for them",
            ),
            (
                self.unsupported_attributes,
                "without extended attributes to copy, because the file system of the source has none",
            ),
            (
                self.large_attributes,
                "copied without extended attributes, because there are more than 1,024 or \
                 more than 64 KiB of them",
            ),
            (
                self.acls,
                "copied without access control lists, because the target cannot have them \
                 or does not know a user or group of them",
            ),
            (
                self.unsupported_acls,
                "without access control lists to copy, because the file system of the source has none",
            ),
            (
                self.large_acls,
                "copied without access control lists, because they have more than 512 \
                 entries",
            ),
            (
                self.metadata,
                "copied without mode or time, because this user may not set them at the \
                 target or its file system cannot keep them",
            ),
        ];
        let told = texts.into_iter().filter(|(count, _)| *count > 0);
        let notice = |(count, text): (u64, &str)| {
            let names = if count == 1 { "name" } else { "names" };
            Notice::new(NoticeLevel::Warning, format!("{count} {names} {text}"))
        };
        told.map(notice).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_not_kept_is_told() {
        assert!(NotKept::default().notices().is_empty());
        let both = NotKept { links: 2, large_attributes: 1, ..NotKept::default() };
        let texts: Vec<_> = both.notices().into_iter().map(|notice| notice.text).collect();
        assert!(texts[0].starts_with("2 names copied as files of their own"), "{texts:?}");
        assert!(texts[1].contains("64 KiB"), "{texts:?}");
        assert_eq!(texts.len(), 2);
    }
}

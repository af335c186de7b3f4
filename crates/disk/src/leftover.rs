//! Parses the names of files that this program creates in destinations, to remove what an
//! interrupted transfer left.

use super::temp_name::{MARK, RANDOM};

/// Number of digits of a transfer's tag.
const TAG: usize = 8;

/// The kind of a leftover file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeftoverKind {
    /// The temporary of a file or a symbolic link, or a directory that is filled under a hidden name.
    Temporary,
    /// A journal, which lists the durable parts of temporaries.
    Journal,
    /// A lock against a second transfer.
    Lock,
    /// A directory for a copy to standard output.
    Output,
}

/// A parsed name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftoverName {
    /// The kind of file.
    pub kind: LeftoverKind,
    /// The tag of the transfer, which its lock has too; `None` if no lock belongs to it.
    pub tag: Option<String>,
}

impl LeftoverName {
    /// Parses a name. Every digit is checked, because users choose names too.
    pub fn parse(name: &[u8]) -> Option<Self> {
        let own = |kind, tag: Option<&str>| Some(Self { kind, tag: tag.map(str::to_owned) });
        let mark = MARK.as_bytes();
        if let Some(rest) = name.strip_prefix(mark)
            && let Ok(rest) = std::str::from_utf8(rest)
            && let Some((id, end)) = rest.split_once('.')
            && !end.contains('.')
        {
            return match end {
                "journal" => own(LeftoverKind::Journal, Some(tag_of(id)?)),
                "lock" if is_hex(id, TAG) => own(LeftoverKind::Lock, Some(id)),
                "output" if is_hex(id, RANDOM) => own(LeftoverKind::Output, None),
                _ => None,
            };
        }
        let at = name.windows(mark.len()).rposition(|part| part == mark)?;
        let inner = name[..at].strip_prefix(b".").filter(|inner| !inner.is_empty())?;
        let tag = std::str::from_utf8(&name[at + mark.len()..]).ok()?;
        match without_random(tag) {
            "link" => own(LeftoverKind::Temporary, None),
            "journal" => {
                let journal = Self::parse(inner).filter(|it| it.kind == LeftoverKind::Journal)?;
                own(LeftoverKind::Temporary, journal.tag.as_deref())
            }
            tag if is_hex(tag, TAG) => own(LeftoverKind::Temporary, Some(tag)),
            _ => None,
        }
    }

    /// Whether a directory of this name is one that a transfer fills under a hidden name.
    pub fn is_tree(&self) -> bool {
        self.kind == LeftoverKind::Temporary && self.tag.is_some()
    }

    /// The name of the lock of a transfer with this tag.
    pub fn lock_of(tag: &str) -> String {
        format!("{MARK}{tag}.lock")
    }
}

/// The tag at the beginning of a name, without a random part.
fn tag_of(id: &str) -> Option<&str> {
    Some(without_random(id)).filter(|tag| is_hex(tag, TAG))
}

fn without_random(tag: &str) -> &str {
    match tag.split_once('-') {
        Some((start, end)) if is_hex(end, RANDOM) => start,
        _ => tag,
    }
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_program_makes_is_recognised() {
        let tag = "0a1b2c3d";
        let random = "0123456789abcdef";
        for (name, kind, has_tag) in [
            (format!(".f.packtrain-{tag}"), LeftoverKind::Temporary, true),
            (format!(".f.packtrain-{tag}-{random}"), LeftoverKind::Temporary, true),
            (format!(".a.packtrain-b.packtrain-{tag}"), LeftoverKind::Temporary, true),
            (".f.packtrain-link".to_owned(), LeftoverKind::Temporary, false),
            (format!(".f.packtrain-link-{random}"), LeftoverKind::Temporary, false),
            (format!(".packtrain-{tag}.journal"), LeftoverKind::Journal, true),
            (format!(".packtrain-{tag}-{random}.journal"), LeftoverKind::Journal, true),
            (format!("..packtrain-{tag}.journal.packtrain-journal"), LeftoverKind::Temporary, true),
            (format!(".packtrain-{tag}.lock"), LeftoverKind::Lock, true),
            (format!(".packtrain-{random}.output"), LeftoverKind::Output, false),
        ] {
            let found = LeftoverName::parse(name.as_bytes()).unwrap_or_else(|| panic!("{name}"));
            assert_eq!((found.kind, found.tag.as_deref() == Some(tag)), (kind, has_tag), "{name}");
        }
    }

    #[test]
    fn what_users_make_is_not() {
        for name in [
            ".f.packtrain-notes",
            "f.packtrain-0a1b2c3d",
            ".f.packtrain-0A1B2C3D",
            ".f.packtrain-0a1b2c3",
            ".f.packtrain-0a1b2c3d-1",
            ".packtrain-0a1b2c3d",
            ".packtrain-mine.journal",
            ".packtrain-0a1b2c3d.lock.txt",
            "..packtrain-x.packtrain-journal",
            ".packtrain-",
            "",
            ".",
            "..",
        ] {
            assert_eq!(LeftoverName::parse(name.as_bytes()), None, "{name}");
        }
    }
}

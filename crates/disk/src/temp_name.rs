//! The names of temporaries.

/// What a tag may take of a name, in bytes.
pub(crate) const TAG_MAX: usize = 64;
/// What stands before the tag.
pub(crate) const MARK: &str = ".packtrain-";
/// Digits of the part of a name that nobody can guess.
pub(crate) const RANDOM: usize = 16;

/// A tag that nobody can guess.
pub(crate) fn random_tag(tag: &str, random: u64) -> String {
    format!("{tag}-{random:0RANDOM$x}")
}

/// Whether a name is one of ours, made for a file on its way: so that a caller
/// need not move or delete it as if it were the user's.
pub fn is_temp_name(name: &[u8]) -> bool {
    let mark = MARK.as_bytes();
    let after = name.windows(mark.len()).rposition(|part| part == mark).map(|at| at + mark.len());
    name.first() == Some(&b'.') && after.is_some_and(|at| at > mark.len() + 1 && at < name.len())
}

/// The temporary's name: `.NAME.packtrain-TAG`, and for a name too long for that, its beginning
/// with a hash of the whole.
pub(crate) fn name(target: &[u8], tag: &str, max: usize) -> Vec<u8> {
    let fixed = 1 + MARK.len() + tag.len();
    let mut out = Vec::with_capacity(fixed + target.len());
    out.push(b'.');
    if fixed + target.len() <= max {
        out.extend_from_slice(target);
    } else {
        let hash = blake3::hash(target).to_hex();
        let hash = &hash.as_bytes()[..16];
        out.extend_from_slice(whole_characters(target, max.saturating_sub(fixed + 1 + hash.len())));
        out.push(b'~');
        out.extend_from_slice(hash);
    }
    out.extend_from_slice(MARK.as_bytes());
    out.extend_from_slice(tag.as_bytes());
    out
}

/// At most `len` bytes, and no part of a UTF-8 character, which some file systems refuse.
fn whole_characters(name: &[u8], len: usize) -> &[u8] {
    let mut end = len.min(name.len());
    while end > 0 && end < name.len() && name[end] & 0xC0 == 0x80 {
        end -= 1;
    }
    &name[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_within_what_the_file_system_takes() {
        assert_eq!(name(b"a", "t", 255), b".a.packtrain-t");
        for len in [1, 100, 230, 240, 255] {
            for max in [128, 143, 255] {
                let made = name(&vec![b'x'; len], &"t".repeat(TAG_MAX), max);
                assert!(made.len() <= max && is_temp_name(&made), "{len} {max}");
            }
        }
        // Two long names that begin alike.
        let long = |end: u8| name(&[&[b'x'; 254][..], &[end]].concat(), "t", 255);
        assert_ne!(long(b'1'), long(b'2'));
    }

    #[test]
    fn only_our_names_are_ours() {
        assert!(is_temp_name(b".a.packtrain-0f"));
        for other in [&b"a.packtrain-0f"[..], b".a.packtrain-", b".packtrain-0f", b".a", b"", b"."]
        {
            assert!(!is_temp_name(other), "{}", String::from_utf8_lossy(other));
        }
    }
}

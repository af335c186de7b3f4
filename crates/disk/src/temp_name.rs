//! The names of temporaries.

/// Maximum length of a tag, in bytes.
pub(crate) const TAG_MAX: usize = 64;
/// The text before the tag.
pub(crate) const MARK: &str = ".packtrain-";
/// Number of digits of the random part of a name.
pub(crate) const RANDOM: usize = 16;

/// A tag with a random part.
pub(crate) fn random_tag(tag: &str, random: u64) -> String {
    format!("{tag}-{random:0RANDOM$x}")
}

/// The name of a temporary: `.NAME.packtrain-TAG`. If that is too long, NAME is truncated and a
/// hash of the whole name added.
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

/// The first bytes of a name, at most `len`, without a part of a UTF-8 character, which some file
/// systems refuse.
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
                assert!(made.len() <= max && made.ends_with(&[b't'; TAG_MAX]), "{len} {max}");
            }
        }
        // Two long names with the same beginning.
        let long = |end: u8| name(&[&[b'x'; 254][..], &[end]].concat(), "t", 255);
        assert_ne!(long(b'1'), long(b'2'));
    }
}

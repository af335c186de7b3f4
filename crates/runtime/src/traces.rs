//! The working files of running transfers in a destination.

use packtrain_disk::LeftoverName;

/// Whether a name is that of a temporary, a journal or a lock of Packtrain. Every digit counts, because
/// users choose names too.
pub fn is_trace(name: &[u8]) -> bool {
    // First of all what rules out nearly all names.
    name.first() == Some(&b'.') && LeftoverName::parse(name).is_some()
}

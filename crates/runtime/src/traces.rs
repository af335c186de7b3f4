//! The working files of transfers in a destination, or in a source that is one.

use packtrain_disk::LeftoverName;
use packtrain_object::{Entry, EntryKind};

/// Why an entry that the user named is not sent.
pub const IS_WORKING_FILE: &str = "has the name of a temporary file of packtrain: rename it first";

/// Whether a name is that of a temporary, a journal or a lock of Packtrain. Every digit counts, because
/// users choose names too.
pub(crate) fn is_trace(name: &[u8]) -> bool {
    // First of all what rules out nearly all names.
    name.first() == Some(&b'.') && LeftoverName::parse(name).is_some()
}

/// Whether an entry of a source is a working file: it is left out, because it is not user data and a
/// target would treat a file of such a name as its own.
pub fn is_working_file(entry: &Entry) -> bool {
    entry.kind != EntryKind::Directory && is_trace(entry.path.file_name())
}

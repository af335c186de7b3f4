//! The working files of running transfers in a destination.

/// Whether a name is that of a temporary, a journal or a lock of Packtrain.
pub(crate) fn is_trace(name: &[u8]) -> bool {
    packtrain_disk::is_temp_name(name)
        || name
            .strip_prefix(b".packtrain-".as_slice())
            .is_some_and(|rest| rest.ends_with(b".journal") || rest.ends_with(b".lock"))
}

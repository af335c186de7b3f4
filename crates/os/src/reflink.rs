//! Files that share blocks on the disk (reflinks).

#[allow(unsafe_code)]
mod sys;

use std::fs::File;
use std::io;

use packtrain_units::ByteCount;

/// Makes `len` bytes of `to` at `to_offset` the same blocks on the disk as those of `from` at
/// `from_offset`, by `FICLONERANGE` of ioctl_ficlonerange(2). The kernel does it wholly or not at
/// all, and copies a block when either file is written later. Offsets and length must be multiples
/// of the file system's block size; a length that is none must end at the end of `from`, and not
/// before the end of `to`.
///
/// # Errors
/// `EXDEV` between two file systems, `EOPNOTSUPP`, `ENOTTY` or `EINVAL` where the file system cannot
/// do it, and what else it says.
pub fn clone_range(
    from: &File,
    from_offset: u64,
    to: &File,
    to_offset: u64,
    len: ByteCount,
) -> io::Result<()> {
    // To the kernel, no length is all up to the end of the file.
    if len == ByteCount::ZERO {
        return Ok(());
    }
    sys::clone_range(from, from_offset, to, to_offset, len.get())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn what_is_cloned_reads_the_same_and_what_is_not_stays() {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str| {
            let mut options = std::fs::OpenOptions::new();
            options.read(true).write(true).create(true).truncate(true);
            options.open(folder.path().join(name)).unwrap()
        };
        let (from, to) = (open("from"), open("to"));
        let bytes: Vec<u8> = (0..70_000u32).map(|n| (n * 7 + n / 251) as u8).collect();
        from.write_all_at(&bytes, 0).unwrap();
        to.set_len(bytes.len() as u64).unwrap();
        clone_range(&from, 0, &to, 0, ByteCount::ZERO).unwrap();
        let read = || {
            let mut all = vec![1; bytes.len()];
            to.read_exact_at(&mut all, 0).unwrap();
            all
        };
        assert!(read().iter().all(|byte| *byte == 0), "no length is no byte");
        match clone_range(&from, 65_536, &to, 65_536, ByteCount(bytes.len() as u64 - 65_536)) {
            Ok(()) => assert_eq!(read()[65_536..], bytes[65_536..]),
            // Most file systems cannot.
            Err(_) => assert!(read().iter().all(|byte| *byte == 0)),
        }
        assert!(clone_range(&from, 1, &to, 0, ByteCount(10)).is_err(), "no whole block");
    }
}

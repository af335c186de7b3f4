//! Writes at offsets, shared blocks, and holes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use packtrain_os::reflink;
use packtrain_units::ByteCount;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::read::SourceFile;

/// Zeros for file systems that cannot punch holes.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Writes all of `bytes` at `offset`, and continues after short writes.
///
/// # Errors
/// I/O errors; the number of written bytes is unknown then.
pub fn write_all_at(file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    file.write_all_at(bytes, offset)
}

/// Makes `len` bytes of `to` at `offset` share the disk blocks of `from` at `from_offset`
/// ([`reflink::clone_range`]). A failure changes nothing.
///
/// # Errors
/// I/O errors; many file systems cannot share blocks.
pub fn clone_range(
    from: &SourceFile,
    from_offset: u64,
    to: &File,
    offset: u64,
    len: ByteCount,
) -> io::Result<()> {
    reflink::clone_range(from.file(), from_offset, to, offset, len)
}

/// Makes `len` bytes at `offset` read as zeros: punches a hole, or writes zeros if the file system
/// cannot. The file's length does not change, and the part beyond it is ignored.
///
/// # Errors
/// I/O errors.
pub fn punch(file: &File, offset: u64, len: ByteCount) -> io::Result<()> {
    let size = file.metadata()?.len();
    let len = len.get().min(size.saturating_sub(offset));
    if len == 0 {
        return Ok(());
    }
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, mode, offset, len)) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => write_zeros(file, offset, len),
        punched => Ok(punched?),
    }
}

/// Writes `len` zeros at `offset`.
fn write_zeros(file: &File, mut offset: u64, mut len: u64) -> io::Result<()> {
    while len > 0 {
        let n = len.min(ZEROS.len() as u64);
        file.write_all_at(&ZEROS[..n as usize], offset)?;
        offset += n;
        len -= n;
    }
    Ok(())
}

/// Makes a file's data durable, with the metadata needed to read it (`fdatasync`).
///
/// # Errors
/// A write-back error, including a full disk.
pub fn sync_data(file: &File) -> io::Result<()> {
    Ok(rustix::io::retry_on_intr(|| rustix::fs::fdatasync(file))?)
}

/// Starts the write-back of `len` bytes at `offset` without waiting, so that the next sync is
/// short. This is only advice: it makes nothing durable.
pub fn start_writeback(file: &File, offset: u64, len: ByteCount) {
    let Some(len) = std::num::NonZeroU64::new(len.get()) else { return };
    // sync_file_range has no safe wrapper. On Linux DONTNEED starts the write-back of dirty pages
    // as a side effect, and keeps pages that are still dirty.
    let _ = rustix::fs::fadvise(file, offset, Some(len), rustix::fs::Advice::DontNeed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_punched_range_reads_as_zeros_and_keeps_the_length() {
        let file = tempfile::tempfile().unwrap();
        write_all_at(&file, 0, &vec![7; 300_000]).unwrap();
        punch(&file, 4096, ByteCount(200_000)).unwrap();
        punch(&file, 299_000, ByteCount(1 << 40)).unwrap();
        punch(&file, 1 << 40, ByteCount(5)).unwrap();
        let mut all = vec![1; 300_000];
        file.read_exact_at(&mut all, 0).unwrap();
        for (at, byte) in all.iter().enumerate() {
            let hole = (4096..204_096).contains(&at) || at >= 299_000;
            assert_eq!(*byte, if hole { 0 } else { 7 }, "byte {at}");
        }
        assert_eq!(file.metadata().unwrap().len(), 300_000);
    }

    #[test]
    fn zeros_are_written_where_nothing_can_be_punched() {
        let file = tempfile::tempfile().unwrap();
        write_all_at(&file, 0, &vec![7; 200_000]).unwrap();
        write_zeros(&file, 1, 150_000).unwrap();
        let mut all = vec![1; 200_000];
        file.read_exact_at(&mut all, 0).unwrap();
        assert_eq!(all.iter().filter(|b| **b == 0).count(), 150_000);
        assert_eq!((all[0], all[150_001]), (7, 7));
    }
}

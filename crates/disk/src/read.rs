//! Reads source files that may change during the read.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use packtrain_object::{Mtime, RelPath};
use packtrain_units::ByteCount;
use rustix::fs::{Advice, SeekFrom};
use rustix::io::Errno;

use super::root::Root;
use super::stat::Stat;

/// Files up to this size, in bytes, are read completely: a search for holes would cost more than it
/// saves.
const ALWAYS_READ: u64 = 1 << 20;

/// Why a source file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file changed while it was read.
    #[error("the file changed while it was read; run the same command again")]
    Changed,
    /// An I/O error.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A source file with its status at the time when it was opened.
#[derive(Debug)]
pub struct SourceFile {
    file: File,
    at_open: Stat,
}

impl SourceFile {
    /// Opens a regular file beneath `root`.
    ///
    /// # Errors
    /// I/O errors.
    pub fn open(root: &Root, rel: &RelPath) -> io::Result<Self> {
        let file = root.open_read(rel)?;
        let at_open = Stat::from(&rustix::fs::fstat(&file)?);
        Ok(Self { file, at_open })
    }

    /// The status when it was opened.
    pub fn stat(&self) -> &Stat {
        &self.at_open
    }

    /// Its length when it was opened, in bytes.
    pub fn size(&self) -> u64 {
        self.at_open.size
    }

    /// Its modification time when it was opened.
    pub fn mtime(&self) -> Mtime {
        self.at_open.mtime
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Whether it has the size and time of the manifest.
    pub fn matches(&self, size: u64, mtime: Mtime) -> bool {
        self.at_open.size == size && self.at_open.mtime == mtime
    }

    /// Fills `out` from `offset`.
    ///
    /// # Errors
    /// `Changed` if the file is shorter; I/O errors.
    pub fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
        self.file.read_exact_at(out, offset).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => ReadError::Changed,
            _ => ReadError::Io(error),
        })
    }

    /// Checks, after a read, that the file has not changed since it was opened. A file that was
    /// replaced under its name does not matter, because the opened file was read.
    ///
    /// # Errors
    /// `Changed` if its size or time differ; I/O errors.
    pub fn check_unchanged(&self) -> Result<(), ReadError> {
        let now = Stat::from(&rustix::fs::fstat(&self.file).map_err(io::Error::from)?);
        let same = (now.size, now.mtime) == (self.at_open.size, self.at_open.mtime);
        if same { Ok(()) } else { Err(ReadError::Changed) }
    }

    /// Whether a search for holes is useful: the file is longer than 1 MiB and takes less space
    /// than its length.
    pub fn may_have_holes(&self) -> bool {
        self.at_open.size > ALWAYS_READ && self.at_open.is_sparse()
    }

    /// The first hole at or after `from` according to the file system; `None` if the rest is data.
    /// Some file systems have reported wrong holes, so check the range with
    /// [`SourceFile::verify_zero`].
    ///
    /// # Errors
    /// I/O errors; missing support for holes is not an error.
    pub fn next_hole(&self, from: u64) -> io::Result<Option<Range<u64>>> {
        let size = self.at_open.size;
        if !self.may_have_holes() || from >= size {
            return Ok(None);
        }
        let Some(start) = self.seek(SeekFrom::Hole(from))?.filter(|start| *start < size) else {
            return Ok(None);
        };
        // NXIO: no data follows, so the hole extends to the end.
        let end = self.seek(SeekFrom::Data(start))?.unwrap_or(size).min(size);
        Ok((start < end).then_some(start..end))
    }

    /// The ranges of `within` that contain data according to the file system; the gaps are holes,
    /// to be verified.
    ///
    /// # Errors
    /// I/O errors.
    pub fn data_ranges(&self, within: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        let end = within.end.min(self.at_open.size);
        let mut at = within.start;
        let mut data = Vec::new();
        while at < end {
            let hole = self.next_hole(at)?.unwrap_or(end..end);
            let until = hole.start.min(end);
            if at < until {
                data.push(at..until);
            }
            at = hole.end.max(until);
        }
        Ok(data)
    }

    /// Whether every byte of `range` is zero, read in steps of at most 1 MiB. Reading a real hole
    /// needs no disk access.
    ///
    /// # Errors
    /// `Changed` if the file is shorter; I/O errors.
    pub fn verify_zero(&self, range: Range<u64>) -> Result<bool, ReadError> {
        let longest = range.end.saturating_sub(range.start).min(ALWAYS_READ);
        let mut buffer = vec![0; longest as usize];
        let mut at = range.start;
        while at < range.end {
            let step = &mut buffer[..(range.end - at).min(longest) as usize];
            self.read_exact_at(at, step)?;
            if !is_zero(step) {
                return Ok(false);
            }
            at += step.len() as u64;
        }
        Ok(true)
    }

    /// Advises the kernel that the whole file will be read sequentially.
    pub fn advise_sequential(&self) {
        let _ = rustix::fs::fadvise(&self.file, 0, None, Advice::Sequential);
    }

    /// Starts reading `len` bytes at `offset` into the page cache, without waiting.
    pub fn read_ahead(&self, offset: u64, len: ByteCount) {
        if let Some(len) = NonZeroU64::new(len.get()) {
            let _ = rustix::fs::fadvise(&self.file, offset, Some(len), Advice::WillNeed);
        }
    }

    /// Advises the kernel that these bytes are not needed again, so that a file larger than memory
    /// does not evict everything else from the page cache.
    pub fn done_with(&self, offset: u64, len: ByteCount) {
        if let Some(len) = NonZeroU64::new(len.get()) {
            let _ = rustix::fs::fadvise(&self.file, offset, Some(len), Advice::DontNeed);
        }
    }

    fn seek(&self, to: SeekFrom) -> io::Result<Option<u64>> {
        match rustix::fs::seek(&self.file, to) {
            Ok(at) => Ok(Some(at)),
            Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether all bytes are zero; compares at least a machine word at a time.
pub fn is_zero(bytes: &[u8]) -> bool {
    let mut chunks = bytes.chunks_exact(64);
    let zeros = chunks.by_ref().all(|chunk| chunk.iter().fold(0, |any, b| any | b) == 0);
    zeros && chunks.remainder().iter().all(|b| *b == 0)
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;

//! Reads source files that may change during the read.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use packtrain_object::{Mtime, RelPath};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::root::{self, Root};
use super::stat::Stat;

/// Files up to this size, in bytes, are read completely: a search for holes would cost more than it
/// saves.
const ALWAYS_READ_BYTES: u64 = 1 << 20;

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
        let (file, at_open) = root.open_with_stat(rel)?;
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
        self.at_open.size > ALWAYS_READ_BYTES && self.at_open.is_sparse()
    }

    /// The first hole at or after `from` according to the file system; `None` if the rest is data.
    /// Some file systems have reported wrong holes, so check that the
    /// bytes of the range are zero.
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

    fn seek(&self, to: SeekFrom) -> io::Result<Option<u64>> {
        match rustix::fs::seek(&self.file, to) {
            Ok(at) => Ok(Some(at)),
            Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// A small file that is read as a whole, at the cost of four system calls.
#[derive(Debug)]
pub struct SmallSource(File);

impl SmallSource {
    /// Opens a file beneath `root`.
    ///
    /// # Errors
    /// I/O errors.
    pub fn open(root: &Root, rel: &RelPath) -> io::Result<Self> {
        root.open_unchecked(rel).map(Self)
    }

    /// Reads all of it into `out`. One look at its status, after the read, shows both whether it was
    /// the file of the manifest and whether it changed meanwhile.
    ///
    /// # Errors
    /// `Changed` if it has not the length of `out` or the time `mtime`; I/O errors; `Unsupported`
    /// for a pipe, socket or device.
    pub fn read(self, mtime: Mtime, out: &mut [u8]) -> Result<(), ReadError> {
        let read = self.0.read_exact_at(out, 0);
        let stat = Stat::from(&rustix::fs::fstat(&self.0).map_err(io::Error::from)?);
        root::check_is_file(stat.kind)?;
        let is_same = (stat.size, stat.mtime) == (out.len() as u64, mtime);
        match read {
            Ok(()) if is_same => Ok(()),
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error.into()),
            _ => Err(ReadError::Changed),
        }
    }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
